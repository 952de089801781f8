/* SPDX-License-Identifier: Apache-2.0 */
/* gpu_bad_sizes.c: invalid sizes, and shapes that no kernel may take. */
#include "gpu.h"

#include <stdio.h>
#include <string.h>

/* NULL if the right group is blamed, once, and nothing else was touched. */
static const char *bad_size_told(struct gpu_run *r, const struct gpu_case *p,
                                 const struct qt_bad_size *bad_size)
{
    const char *bad = gpu_run_start(r, p);
    char group[16];
    int code;

    if (bad)
        return bad;
    gpu_wait(r->stream, r->label);
    bad = gpu_run_guarded(r, p);
    if (bad)
        return bad;
    code = quern_check(r->plan, &r->args, r->stream);
    snprintf(group, sizeof group, "group %d", bad_size->group);
    if (code != QUERN_ESIZES)
        return gpu_text("quern_check returned %d, not ESIZES", code);
    if (!strstr(quern_errmsg(), group))
        return gpu_text("expected %s in '%s'", group, quern_errmsg());
    gpu_run_digest(r, p, quern_errmsg(), strlen(quern_errmsg()));
    if (quern_check(r->plan, &r->args, r->stream))
        return "the report was not cleared";
    return NULL;
}

static void upload_sizes(const struct gpu_case *p, const void *first,
                         const void *offsets)
{
    gpu_buffer_upload(&p->parts[GPU_FIRST], first);
    gpu_buffer_upload(&p->parts[GPU_OFFSETS], offsets);
}

/* The same plan and workspace, with right sizes again. */
static const char *truth_told(struct gpu_run *r, const struct gpu_case *p)
{
    const char *bad;

    upload_sizes(p, p->data.first, p->data.offsets);
    bad = gpu_run_start(r, p);
    return bad ? bad : gpu_run_finish(r, p);
}

/* Right sizes with one wrong entry. */
static void upload_bad_size(const struct gpu_case *p,
                            const struct qt_bad_size *bad_size)
{
    struct qt_data told;

    if (qt_data_make(&p->c, &told))
        gpu_lost("host memory ran out");
    qt_bad_size_apply(&p->c, bad_size, told.first, told.offsets);
    upload_sizes(p, told.first, told.offsets);
    qt_data_free(&told);
}

static void run_bad_size(const struct gpu_case *p,
                         const struct gpu_choice *choice,
                         const struct qt_bad_size *bad_size)
{
    const char *bad = NULL;
    struct gpu_run r;
    int code;

    upload_bad_size(p, bad_size);
    code = gpu_run_open(&r, p, choice, 0);
    if (code) {
        gpu_run_unopened(&r, code);
    } else {
        bad = bad_size_told(&r, p, bad_size);
        gpu_run_record(&r, bad ? bad : truth_told(&r, p));
    }
    gpu_run_close(&r);
}

/* The guards are wide here: a wrong row may be far away. The model's choices
   hear every invalid size, each kernel one in eight, or in as many as there are
   kernels. */
static void run_variant(const struct gpu_variant *v, int number, int sizes_type)
{
    struct gpu_choice choices[GPU_MAX_CHOICES];
    const struct qt_bad_size *bad_size = &qt_bad_sizes[number];
    int count = gpu_variant_choices(v, 1, choices);
    struct gpu_case p = {0};

    gpu_variant_case(v, &p.c);
    qt_bad_size_case(&p.c, bad_size, sizes_type);
    p.c.epilogue = gpu_variant_epilogue(v, number);
    p.c.outside = number % 2;
    gpu_case_open(&p, GPU_WIDE_GUARD);
    for (int i = 0; i < count; i++)
        if (!choices[i].kernel || (i + number) % 8 % count == 0)
            run_bad_size(&p, &choices[i], bad_size);
    gpu_case_close(&p);
}

/* Each are as int64, and as int32 where its value fits, in turns. */
void gpu_bad_sizes(void)
{
    for (int i = 0; i < gpu_nvariants; i++)
        for (int j = 0; j < qt_nbad_sizes; j++) {
            int narrow = !qt_bad_sizes[j].only_i64 && (i + j) % 2;

            if (gpu_variants[i].ragged == QUERN_AXIS_NONE ||
                (gpu_options.quick && (i + j) % 8))
                continue;
            run_variant(&gpu_variants[i], j, narrow ? QUERN_I32 : QUERN_I64);
        }
}

/* ----------------------------------------------------------------- refusals */

/* Does the message carry a reason that the kernel's spec states, or one of the
   copy engine's own? */
static int gives_reason(const char *message, const struct qn_kernel *kernel)
{
    for (int i = 0; kernel && i < kernel->nrules; i++)
        if (strstr(message, kernel->rules[i].reason))
            return 1;
    return strstr(message, "has no tensor map") ||
           strstr(message, "TMA needs rows");
}

/* A shape must be served rightly, or refused with a reason. */
static void refused_or_right(const struct gpu_case *p,
                             const struct gpu_choice *choice)
{
    const char *message = quern_errmsg();
    struct gpu_run r;
    const char *bad;
    int code = gpu_run_open(&r, p, choice, 0);

    if (!code) {
        bad = gpu_run_start(&r, p);
        gpu_run_record(&r, bad ? bad : gpu_run_finish(&r, p));
    } else if (code != QUERN_ENOKERNEL) {
        gpu_run_unopened(&r, code);
    } else {
        gpu_refused();
        gpu_record(gives_reason(message, choice->kernel->kernel)
                       ? NULL
                       : gpu_text("%s: refused without a reason: '%s'", r.label,
                                  message));
    }
    gpu_run_close(&r);
}

/*
** The copy engine wants rows at multiples of 16 bytes: a side that puts them
** elsewhere is refused by kernels that use it, and only by these.
*/
void gpu_refusals(void)
{
    static const int sides[][2] = {{128, 63}, {128, 1},  {128, 68}, {127, 64},
                                   {1, 64},   {129, 64}, {130, 64}, {132, 64}};

    for (int i = 0; i < gpu_nvariants; i++)
        for (int j = 0; j < 8; j += gpu_options.quick ? 4 : 1) {
            struct gpu_choice choices[GPU_MAX_CHOICES];
            int count = gpu_variant_choices(&gpu_variants[i], 0, choices);
            struct gpu_case p = {0};

            gpu_variant_case(&gpu_variants[i], &p.c);
            p.c.what = "odd shape";
            p.c.epilogue = gpu_variant_epilogue(&gpu_variants[i], 0);
            p.c.sizes_type = QUERN_I32;
            p.c.fill = QT_INTEGER;
            p.c.align = j % 2 ? 2 : 0;
            p.c.seed = (uint64_t)j;
            gpu_variant_sides(&p.c, sides[j][0], sides[j][1], 40);
            qt_case_layout(&p.c, &qt_patterns[4]);
            gpu_case_open(&p, GPU_GUARD);
            for (int k = 0; k < count; k++)
                refused_or_right(&p, &choices[k]);
            gpu_case_close(&p);
        }
}
