/*
** gpu_lies.c: sizes that lie, and shapes that no kernel may take.
*/
#include "gpu.h"

#include <stdio.h>
#include <string.h>

/* NULL if the right group is blamed, once, and nothing else was touched. */
static const char *lie_told(struct gpu_run *r, const struct gpu_case *p,
                            const struct qt_lie *lie)
{
    const char *bad = gpu_run_start(r);
    char group[16];
    int code;

    if (bad)
        return bad;
    gpu_wait(r->stream, r->label);
    bad = gpu_run_guarded(r, p);
    if (bad)
        return bad;
    code = quern_check(r->plan, &r->args, r->stream);
    snprintf(group, sizeof group, "group %d", lie->group);
    if (code != QUERN_ESIZES)
        return gpu_text("quern_check returned %d, not ESIZES", code);
    if (!strstr(quern_errmsg(gpu_context), group))
        return gpu_text("expected %s in '%s'", group,
                        quern_errmsg(gpu_context));
    if (quern_check(r->plan, &r->args, r->stream))
        return "the report was not cleared";
    return NULL;
}

/* The same plan and workspace, with right sizes again. */
static const char *truth_told(struct gpu_run *r, const struct gpu_case *p)
{
    const char *bad;

    gpu_buffer_upload(&p->first, p->data.first);
    gpu_buffer_upload(&p->offsets, p->data.offsets);
    bad = gpu_run_start(r);
    return bad ? bad : gpu_run_finish(r, p);
}

/* Right sizes with one wrong entry. */
static void upload_lie(const struct gpu_case *p, const struct qt_lie *lie)
{
    struct qt_data told;

    if (qt_data_make(&p->c, &told))
        gpu_lost("host memory ran out");
    qt_lie_apply(&p->c, lie, told.first, told.offsets);
    gpu_buffer_upload(&p->first, told.first);
    gpu_buffer_upload(&p->offsets, told.offsets);
    qt_data_free(&told);
}

/* The guards are wide here: a wrong row may lie far away. */
static void run_lie(const struct qt_lie *lie, int sizes_type)
{
    struct gpu_case p = {0};

    qt_lie_case(&p.c, lie, sizes_type);
    gpu_case_open(&p, GPU_WIDE_GUARD);
    for (int i = 0; i < gpu_nchoices; i++) {
        struct gpu_run r;
        const char *bad = NULL;

        upload_lie(&p, lie);
        if (gpu_run_open(&r, &p, &gpu_choices[i], 0))
            bad = gpu_text("quern_plan: %s", quern_errmsg(gpu_context));
        if (!bad)
            bad = lie_told(&r, &p, lie);
        if (!bad)
            bad = truth_told(&r, &p);
        gpu_record(bad ? gpu_text("%s: %s", r.label, bad) : NULL);
        gpu_run_close(&r);
    }
    gpu_case_close(&p);
}

/* Each lie as int64, and as int32 where its value fits. */
void gpu_lies(void)
{
    for (int i = 0; i < qt_nlies; i++) {
        if (gpu_options.quick && i % 4)
            continue;
        run_lie(&qt_lies[i], QUERN_I64);
        if (!qt_lies[i].only_i64)
            run_lie(&qt_lies[i], QUERN_I32);
    }
}

/* ----------------------------------------------------------------- refusals */

/* Does the message carry a reason that some kernel's spec states? */
static int gives_reason(const char *message)
{
    for (int i = 0; i < gpu_nchoices; i++) {
        const struct qn_kernel *kernel = gpu_choices[i].kernel;

        for (int j = 0; kernel && j < kernel->nrequires; j++)
            if (strstr(message, kernel->requires[j].reason))
                return 1;
    }
    return 0;
}

/* A shape must be served rightly, or refused with a reason from the spec. */
static const char *refused_or_right(const struct gpu_case *p,
                                    const struct gpu_choice *choice,
                                    int must_refuse, int *refused)
{
    struct gpu_run r;
    const char *bad = NULL;
    int code = gpu_run_open(&r, p, choice, 0);

    *refused = code != QUERN_OK;
    if (code && code != QUERN_ENOKERNEL)
        bad = gpu_text("quern_plan returned %d, not ENOKERNEL: %s", code,
                       quern_errmsg(gpu_context));
    else if (code && !gives_reason(quern_errmsg(gpu_context)))
        bad = gpu_text("refused without a reason: '%s'",
                       quern_errmsg(gpu_context));
    else if (!code && must_refuse)
        bad = "not refused";
    else if (!code && !(bad = gpu_run_start(&r)))
        bad = gpu_run_finish(&r, p);
    if (bad)
        bad = gpu_text("%s: %s", r.label, bad);
    gpu_run_close(&r);
    return bad;
}

/*
** The copy engine wants rows at multiples of 16 bytes, so a k that is not a
** multiple of 8 has no kernel here. An n that is not may have one.
*/
void gpu_refusals(void)
{
    static const int nk[][2] = {{128, 63}, {128, 1},  {128, 68}, {127, 64},
                                {1, 64},   {129, 64}, {130, 64}, {132, 64}};
    int refusals = 0;

    for (int i = 0; i < 8; i++) {
        struct gpu_case p = {0};

        p.c.what = "odd shape";
        p.c.n = nk[i][0];
        p.c.k = nk[i][1];
        p.c.sizes_type = QUERN_I32;
        p.c.fill = QT_INTEGER;
        p.c.seed = (uint64_t)i;
        qt_case_layout(&p.c, &qt_patterns[4]);
        gpu_case_open(&p, GPU_GUARD);
        for (int j = 0; j < gpu_nchoices; j++) {
            int refused;

            gpu_record(refused_or_right(&p, &gpu_choices[j], nk[i][1] % 8 != 0,
                                        &refused));
            refusals += refused;
        }
        gpu_case_close(&p);
    }
    gpu_record(refusals ? NULL : "nothing was refused");
}
