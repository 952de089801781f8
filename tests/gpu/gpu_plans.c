/*
** gpu_plans.c: the same bits again, two streams at once, fewer multiprocessors,
** and the list for the sanitizers.
*/
#include "gpu.h"

#include <stdlib.h>
#include <string.h>

/* About 1500 rows: some waves of tiles on a few multiprocessors. */
static void middle_case(struct gpu_case *p, const char *what, uint64_t seed)
{
    static const struct qt_pattern pattern = {"middle", 12, 0, {0}, 260};

    memset(p, 0, sizeof *p);
    p->c.what = what;
    p->c.form = QT_BOTH;
    p->c.sizes_type = QUERN_I32;
    p->c.n = 520;
    p->c.k = 456;
    p->c.fill = QT_NORMAL;
    p->c.seed = gpu_options.seed + seed;
    qt_case_layout(&p->c, &pattern);
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

        bad = gpu_run_start(r);
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
static const char *repeat_choice(const struct gpu_case *p,
                                 const struct gpu_choice *choice,
                                 struct gpu_run *r)
{
    const char *bad;
    void *first;

    if (gpu_run_open(r, p, choice, 0))
        return gpu_text("quern_plan: %s", quern_errmsg(gpu_context));
    bad = gpu_run_start(r);
    bad = bad ? bad : gpu_run_finish(r, p);
    if (bad)
        return bad;
    first = download(r);
    bad = repeat(r, p, first, gpu_options.quick ? 5 : 20);
    free(first);
    return bad;
}

/* Nothing is decided by who comes first. */
void gpu_repeats(void)
{
    struct gpu_case p;

    middle_case(&p, "repeats", 31);
    gpu_case_open(&p, GPU_GUARD);
    for (int i = 0; i < gpu_nchoices; i++) {
        struct gpu_run r;
        const char *bad = repeat_choice(&p, &gpu_choices[i], &r);

        gpu_record(bad ? gpu_text("%s: %s", r.label, bad) : NULL);
        gpu_run_close(&r);
    }
    gpu_case_close(&p);
}

/* Both queued before either is waited for. */
static const char *run_both(struct gpu_run r[2], const struct gpu_case p[2])
{
    const char *bad = NULL;

    int rounds = gpu_options.quick ? 4 : 20;

    for (int round = 0; round < rounds && !bad; round++) {
        for (int i = 0; i < 2; i++)
            gpu_buffer_poison(&r[i].d);
        gpu_must(cu.synchronize(), "poisoning D");
        for (int i = 0; i < 2 && !bad; i++)
            if (quern_run(r[i].plan, &r[i].args, r[i].stream))
                bad = gpu_text("quern_run: %s", quern_errmsg(gpu_context));
        for (int i = 0; i < 2; i++) {
            const char *other = gpu_run_finish(&r[i], &p[i]);

            bad = bad ? bad : other;
        }
    }
    return bad;
}

/* Two problems on two streams, each with a part of the multiprocessors. */
void gpu_streams(void)
{
    struct gpu_case p[2];

    for (int i = 0; i < 2; i++) {
        middle_case(&p[i], "two streams", 41 + (uint64_t)i);
        gpu_case_open(&p[i], GPU_GUARD);
    }
    for (int i = 0; i < gpu_nchoices; i++) {
        struct gpu_run r[2] = {0};
        const char *bad = NULL;

        for (int j = 0; j < 2; j++)
            if (gpu_run_open(&r[j], &p[j], &gpu_choices[i], 40 + 4 * j))
                bad = gpu_text("quern_plan: %s", quern_errmsg(gpu_context));
        bad = bad ? bad : run_both(r, p);
        gpu_record(bad ? gpu_text("%s: %s", r[0].label, bad) : NULL);
        for (int j = 0; j < 2; j++)
            gpu_run_close(&r[j]);
    }
    for (int i = 0; i < 2; i++)
        gpu_case_close(&p[i]);
}

/* CTAs of one cluster of a kernel: fewer can't be launched. */
static int cluster_of(const char *name)
{
    for (int i = 0; i < qn_registry_builtin.nkernels; i++) {
        const struct qn_kernel *k = &qn_registry_builtin.kernels[i];

        if (!strcmp(k->name, name))
            return k->cluster[0] * k->cluster[1];
    }
    return 1;
}

/* `sms` is a bound, and a cluster the least there is. */
static const char *with_sms(struct gpu_case *p, const struct gpu_choice *choice,
                            int sms, struct gpu_run *r)
{
    int code = gpu_run_open(r, p, choice, sms), least;
    struct quern_plan_info info;
    const char *bad;

    if (code)
        return gpu_text("quern_plan: %s", quern_errmsg(gpu_context));
    quern_plan_info(r->plan, &info);
    least = cluster_of(info.kernel);
    if (info.sms < 1 || info.sms > (sms > least ? sms : least))
        return gpu_text("asked for %d multiprocessors, the plan takes %d", sms,
                        info.sms);
    bad = gpu_run_start(r);
    return bad ? bad : gpu_run_finish(r, p);
}

/* 1 is the hardest: one multiprocessor does every tile. */
void gpu_sms(void)
{
    static const int sms[] = {1, 2, 3, 5, 17, 64, 131};
    struct gpu_case p;

    middle_case(&p, "sms", 51);
    gpu_case_open(&p, GPU_GUARD);
    for (int i = 0; i < gpu_nchoices; i++)
        for (int j = 0; j < (gpu_options.quick ? 2 : 7); j++) {
            struct gpu_run r;
            const char *bad = with_sms(&p, &gpu_choices[i], sms[j], &r);

            gpu_record(bad ? gpu_text("%s: %s", r.label, bad) : NULL);
            gpu_run_close(&r);
        }
    gpu_case_close(&p);
}

/* ------------------------------------------------------------- sanitizers */

enum { SANITIZED = 150, PROBLEMS = 6 };

/* Each problem keeps its number, so that a report can be run again. */
static void sanitized_case(struct gpu_case *p, int problem)
{
    static const int patterns[] = {4, 0, 7, 4, 2, 9};
    static const int nk[][2] = {{136, 72},  {64, 136}, {128, 64},
                                {264, 200}, {72, 448}, {8, 8}};

    p->c.what = qt_patterns[patterns[problem]].name;
    p->c.form = problem % QT_FORMS;
    p->c.sizes_type = problem % 2 ? QUERN_I64 : QUERN_I32;
    p->c.n = nk[problem][0];
    p->c.k = nk[problem][1];
    p->c.fill = QT_INTEGER;
    p->c.seed = (uint64_t)problem;
    qt_case_layout(&p->c, &qt_patterns[patterns[problem]]);
}

/* At most 150 runs, the same ones every time: small, for a sanitizer that
   makes each a thousand times slower. */
void gpu_sanitized(void)
{
    int left = SANITIZED;

    for (int problem = 0; problem < PROBLEMS; problem++) {
        struct gpu_case p = {0};

        sanitized_case(&p, problem);
        gpu_case_open(&p, 0);
        for (int i = 0; i < gpu_nchoices && left > 0; i++, left--)
            gpu_case_run(&p, &gpu_choices[i], problem % 2 ? 4 : 0);
        gpu_case_close(&p);
    }
}
