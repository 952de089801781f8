/* SPDX-License-Identifier: Apache-2.0 */
/* gpu_plans.c: every kernel compiled, the same bits again, two streams at once,
   fewer multiprocessors, and the list for the sanitizers. */
#include "gpu.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* -------------------------------------------------------------- compiling */

struct compile {
    char failure[GPU_MAX_KERNELS][200]; /* "" if it compiled */
};

/* A problem that any kernel of the variant takes. */
static void line_of(const struct qn_kernel *k, char *line, size_t size)
{
    struct qt_case c = {.op = k->op,
                        .recipe = gpu_variant_recipe(k),
                        .type = k->a.type,
                        .d_type = k->d.type,
                        .a_major = k->a.major,
                        .b_major = k->b.major,
                        .ragged = k->ragged,
                        .groups = 2,
                        .m = 256,
                        .n = 256,
                        .k = 256,
                        .dequantize = gpu_variant_dequantize(k)};

    c.epilogue = gpu_epilogue(k->epilogue, GPU_APART);
    qt_case_text(&c, line, size);
    if (k->microbatches > 1)
        strncat(line, " microbatches=8", size - strlen(line) - 1);
}

/* One kernel; what it was refused for is kept. */
static void compile_one(int i, void *user)
{
    struct compile *work = user;
    struct quern_plan_options options = QUERN_PLAN_OPTIONS_INIT;
    struct quern_plan *plan = NULL;
    char line[256];

    options.backend = QUERN_BACKEND_JIT;
    options.kernel = gpu_kernels[i].kernel->name;
    line_of(gpu_kernels[i].kernel, line, sizeof line);
    if (quern_plan_create(gpu_context, line, &options, &plan))
        snprintf(work->failure[i], sizeof work->failure[i], "%s",
                 quern_errmsg());
    quern_plan_destroy(plan);
}

/* Each kernel once, on all cores; later plans find it loaded. One that is not
   fit for use, as the compiler says, is no failure, but goes no further. */
void gpu_compile(void)
{
    struct compile *work = calloc(1, sizeof *work);

    if (!work)
        gpu_lost("host memory ran out");
    gpu_spread(gpu_nkernels, compile_one, work);
    for (int i = 0; i < gpu_nkernels; i++) {
        const char *failure = work->failure[i];

        gpu_kernels[i].dropped = *failure != 0;
        if (*failure && strstr(failure, "is not used:"))
            gpu_skip(failure);
        else
            gpu_record(*failure ? gpu_text("%s", failure) : NULL);
    }
    free(work);
}

/* Nothing was left out: each kernel was right on some problem. */
void gpu_coverage(void)
{
    for (int i = 0; i < gpu_nkernels; i++)
        if (!gpu_kernels[i].dropped)
            gpu_record(gpu_kernels[i].runs
                           ? NULL
                           : gpu_text("%s was right on no problem",
                                      gpu_kernels[i].kernel->name));
}

/* ---------------------------------------------------------------- repeats */

/* Some 800 rows: waves of tiles on a few multiprocessors. */
static void middle_case(struct gpu_case *p, const struct gpu_variant *v,
                        const char *what, int index)
{
    static const struct qt_pattern pattern = {"middle", 12, 0, {0}, 130};
    static const struct qt_pattern few = {"middle", 3, 0, {0}, 0};

    memset(p, 0, sizeof *p);
    gpu_variant_case(v, &p->c);
    p->c.what = what;
    p->c.epilogue = gpu_variant_epilogue(v, index);
    p->c.form = QT_BOTH;
    p->c.sizes_type = QUERN_I32;
    p->c.fill = QT_NORMAL;
    p->c.seed = gpu_options.seed + (uint64_t)index;
    gpu_variant_sides(&p->c, 264, 200, 392);
    qt_case_layout(&p->c, v->ragged == QUERN_AXIS_NONE ? &few : &pattern);
}

/* A copy of D, to be freed. */
static void *download(const struct gpu_run *r)
{
    void *copy = malloc(r->d.bytes + 1);

    if (!copy)
        gpu_lost("host memory ran out");
    gpu_buffer_download(&r->d, copy);
    return copy;
}

/* NULL if `times` runs leave the bits that the first run left. */
static const char *repeat(struct gpu_run *r, const struct gpu_case *p,
                          void *first, int times)
{
    const char *bad = NULL;

    for (int i = 0; i < times && !bad; i++) {
        void *again;

        bad = gpu_run_start(r, p);
        if (bad)
            break;
        gpu_wait(r->stream, r->label);
        again = download(r);
        if (memcmp(first, again, r->d.bytes))
            bad = gpu_text("run %d gave other bits", i + 2);
        free(again);
    }
    return bad ? bad : gpu_run_guarded(r, p);
}

/* The first run must be right, the others equal to it. */
static const char *repeat_run(const struct gpu_case *p, struct gpu_run *r)
{
    const char *bad = gpu_run_start(r, p);
    void *first;

    bad = bad ? bad : gpu_run_finish(r, p);
    if (bad)
        return bad;
    first = download(r);
    bad = repeat(r, p, first, gpu_options.quick ? 2 : 6);
    free(first);
    return bad;
}

/* Nothing is decided by who comes first. */
void gpu_repeats(void)
{
    for (int i = 0; i < gpu_nvariants; i++) {
        struct gpu_choice choices[GPU_MAX_CHOICES];
        int count = gpu_variant_choices(&gpu_variants[i], 1, choices);
        struct gpu_case p;

        middle_case(&p, &gpu_variants[i], "repeats", i);
        gpu_case_open(&p, GPU_GUARD);
        for (int j = 0; j < count; j++) {
            struct gpu_run r;
            int code = gpu_run_open(&r, &p, &choices[j], 0);

            if (code)
                gpu_run_unopened(&r, code);
            else
                gpu_run_record(&r, repeat_run(&p, &r));
            gpu_run_close(&r);
        }
        gpu_case_close(&p);
    }
}

/* ---------------------------------------------------------------- streams */

/* Both queued before either is waited for. */
static const char *run_both(struct gpu_run r[2], const struct gpu_case p[2])
{
    int rounds = gpu_options.quick ? 2 : 4;
    const char *bad = NULL;

    for (int round = 0; round < rounds && !bad; round++) {
        for (int i = 0; i < 2; i++)
            gpu_run_reset(&r[i], &p[i]);
        for (int i = 0; i < 2 && !bad; i++)
            if (quern_run(r[i].plan, &r[i].args, r[i].stream))
                bad = gpu_text("quern_run: %s", quern_errmsg());
        for (int i = 0; i < 2; i++) {
            const char *other = gpu_run_finish(&r[i], &p[i]);

            bad = bad ? bad : other;
        }
    }
    return bad;
}

static void stream_choice(const struct gpu_case p[2],
                          const struct gpu_choice *choice)
{
    struct gpu_run r[2];
    int codes[2];

    for (int i = 0; i < 2; i++)
        codes[i] = gpu_run_open(&r[i], &p[i], choice, 40 + 4 * i);
    if (codes[0] || codes[1])
        gpu_run_unopened(&r[!codes[0]], codes[!codes[0]]);
    else
        gpu_run_record(&r[0], run_both(r, p));
    for (int i = 0; i < 2; i++)
        gpu_run_close(&r[i]);
}

/* Two problems on two streams, each with a part of the multiprocessors. */
void gpu_streams(void)
{
    for (int i = 0; i < gpu_nvariants; i++) {
        struct gpu_choice choices[GPU_MAX_CHOICES];
        int count = gpu_variant_choices(&gpu_variants[i], 1, choices);
        struct gpu_case p[2];

        for (int j = 0; j < 2; j++) {
            middle_case(&p[j], &gpu_variants[i], "two streams", i + 40 + j * 8);
            gpu_case_open(&p[j], GPU_GUARD);
        }
        for (int j = 0; j < count; j++)
            stream_choice(p, &choices[j]);
        for (int j = 0; j < 2; j++)
            gpu_case_close(&p[j]);
    }
}

/* -------------------------------------------------------- multiprocessors */

/* `sms` is a bound, and a cluster the least there is. */
static const char *with_sms(const struct gpu_case *p, struct gpu_run *r,
                            int sms)
{
    const struct qn_kernel *kernel = r->kernel->kernel;
    int least = kernel->cluster[0] * kernel->cluster[1];
    struct quern_plan_info info;
    const char *bad;

    quern_plan_info(r->plan, &info);
    if (info.sms < 1 || info.sms > (sms > least ? sms : least))
        return gpu_text("asked for %d multiprocessors, the plan takes %d", sms,
                        info.sms);
    bad = gpu_run_start(r, p);
    return bad ? bad : gpu_run_finish(r, p);
}

/* 1 is the hardest: one multiprocessor does every tile. */
void gpu_sms(void)
{
    static const int sms[] = {1, 2, 3, 5, 17, 64, 131};

    for (int i = 0; i < gpu_nvariants; i++) {
        struct gpu_choice choices[GPU_MAX_CHOICES];
        int count = gpu_variant_choices(&gpu_variants[i], 1, choices);
        struct gpu_case p;

        middle_case(&p, &gpu_variants[i], "sms", i + 51);
        gpu_case_open(&p, GPU_GUARD);
        for (int j = 0; j < count * 2; j++) {
            int few = j % 2 ? sms[(i + j / 2) % 7] : 1;
            struct gpu_run r;
            int code = gpu_run_open(&r, &p, &choices[j / 2], few);

            if (code)
                gpu_run_unopened(&r, code);
            else
                gpu_run_record(&r, with_sms(&p, &r, few));
            gpu_run_close(&r);
        }
        gpu_case_close(&p);
    }
}

/* ------------------------------------------------------------- sanitizers */

enum { SANITIZED = 150 };

/* The problem's number stays the same, so that a report can be run again. */
static void sanitized_case(struct gpu_case *p, const struct gpu_variant *v,
                           int problem)
{
    static const int patterns[] = {4, 0, 7, 4, 2, 9};
    static const int sides[][2] = {{136, 72},  {64, 136}, {128, 64},
                                   {264, 200}, {72, 448}, {8, 8}};
    const struct qt_pattern *pattern = &qt_patterns[patterns[problem % 6]];

    memset(p, 0, sizeof *p);
    gpu_variant_case(v, &p->c);
    p->c.what = pattern->name;
    p->c.epilogue = gpu_variant_epilogue(v, problem);
    p->c.form = problem % QT_FORMS;
    p->c.sizes_type = problem % 2 ? QUERN_I64 : QUERN_I32;
    p->c.fill = QT_INTEGER;
    p->c.seed = (uint64_t)problem;
    p->c.pointers[QT_B] = problem % 2;
    p->c.pointers[QT_D] = problem % 3 == 1;
    gpu_variant_sides(&p->c, sides[problem % 6][0], sides[problem % 6][1], 136);
    qt_case_layout(&p->c, pattern);
}

/* At most 150 runs, the same ones every time: small, for a sanitizer that
   makes each a thousand times slower. Kernels of each variant in turns. */
void gpu_sanitized(void)
{
    int left = SANITIZED;

    for (int problem = 0; problem < 4 && left > 0; problem++)
        for (int i = 0; i < gpu_nvariants && left > 0; i++) {
            struct gpu_choice choices[GPU_MAX_CHOICES];
            int count = gpu_variant_choices(&gpu_variants[i], 0, choices);
            struct gpu_case p;

            if (!count)
                continue;
            sanitized_case(&p, &gpu_variants[i], i + problem);
            gpu_case_open(&p, 0);
            gpu_case_run(&p, &choices[(problem * 5 + i) % count],
                         problem % 2 ? 4 : 0);
            gpu_case_close(&p);
            left--;
        }
}
