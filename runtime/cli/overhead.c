/* SPDX-License-Identifier: Apache-2.0 */
/* overhead.c: the time that a program waits in addition to the GPU: plans and
   launches. */
#define _GNU_SOURCE
#include "cli.h"

#include <ftw.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "api/api.h"
#include "base/clock.h"
#include "base/error.h"
#include "choose/values.h"
#include "device/cuda_api.h"
#include "device/driver.h"
#include "product/plan.h"
#include "oracle/timing.h"

enum {
    WARM = 20,    /* contexts from the cache; the quickest counts */
    ROUNDS = 101, /* of launches; the median counts */
    LAUNCHES = 64 /* in a row: far from filling the driver's queue */
};

const struct qn_column qn_overhead_columns[] = {
    {"problem", "problem", "s"},
    {"open_ms", "open ms", "%.2f"},
    {"cold_ms", "cold ms", "%.0f"},
    {"cold_cpu_ms", "of a core", "%.0f"},
    {"warm_ms", "warm ms", "%.3f"},
    {"again_us", "again us", "%.1f"},
    {"run_us", "run us", "%.3f"},
    {"bare_us", "bare us", "%.3f"},
    {"ratio", "ratio", "%.2f"},
    {"kernel", "kernel", "s"},
    {0},
};

/* -------------------------------------------------------------- the cache */

static int remove_one(const char *path, const struct stat *st, int kind,
                      struct FTW *walk)
{
    (void)st, (void)kind, (void)walk;
    return remove(path);
}

/* An unused cache. */
static int make_folder(char *path, size_t size)
{
    const char *parent = getenv("TMPDIR");

    snprintf(path, size, "%s/quern-bench-XXXXXX",
             parent && *parent ? parent : "/tmp");
    return mkdtemp(path) ? QUERN_OK
                         : qn_error_set(QUERN_EIO,
                                        "%s: no such folder can "
                                        "be made",
                                        path);
}

static void remove_folder(const char *path)
{
    nftw(path, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

/* ------------------------------------------------------------------ plans */

struct times {
    double open, cold, cpu, warm, again, run, bare;
};

/* The plans, and their cache folder. */
struct subject {
    const struct qn_options *opt;
    const char *line;
    const char *cache;
};

/* A plan, at once given up again; the seconds that it took. */
static int time_plan(const struct subject *subject, struct quern_context *ctx,
                     double *seconds)
{
    struct quern_plan_options options = QUERN_PLAN_OPTIONS_INIT;
    struct quern_plan *plan = NULL;
    double start;
    int code;

    options.backend = QUERN_BACKEND_JIT;
    options.kernel = subject->opt->kernel;
    start = qn_clock_seconds();
    code = quern_plan_create(ctx, subject->line, &options, &plan);
    *seconds = qn_clock_seconds() - start;
    quern_plan_destroy(plan);
    return code;
}

static double cpu_seconds(void)
{
    struct timespec used;

    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used);
    return (double)used.tv_sec + 1e-9 * (double)used.tv_nsec;
}

/* In a context of its own: opening it, a plan, the same plan again. */
static int time_context(const struct subject *subject, double seconds[3])
{
    struct quern_open_options options = QUERN_OPEN_OPTIONS_INIT;
    struct quern_context *ctx;
    double start;
    int code;

    options.cache = subject->cache;
    options.specs = subject->opt->specs;
    options.specs_count = subject->opt->nspecs;
    start = qn_clock_seconds();
    code = quern_open(&options, &ctx);
    seconds[0] = qn_clock_seconds() - start;
    if (!code)
        code = time_plan(subject, ctx, &seconds[1]);
    if (!code)
        code = time_plan(subject, ctx, &seconds[2]);
    quern_close(ctx);
    return code;
}

static double lesser(double a, double b)
{
    return a < b ? a : b;
}

static int time_plans(const struct subject *subject, struct times *times)
{
    double seconds[3], cpu = cpu_seconds();
    int code = time_context(subject, seconds);

    *times = (struct times){.open = seconds[0],
                            .cold = seconds[1],
                            .cpu = cpu_seconds() - cpu,
                            .warm = 1e9,
                            .again = 1e9};
    for (int i = 0; i < WARM && !code; i++) {
        code = time_context(subject, seconds);
        times->open = lesser(times->open, seconds[0]);
        times->warm = lesser(times->warm, seconds[1]);
        times->again = lesser(times->again, seconds[2]);
    }
    return code;
}

/* --------------------------------------------------------------- launches */

/* The same launch by the library and by the driver only. */
struct launch {
    struct qn_job *job;
    struct qn_values values;
    void *params[QN_PARAM_COUNT];
    struct cu_launch config;
    struct cu_attribute cluster;
};

static int run_library(struct launch *l)
{
    const struct qn_call *call = &l->job->call;

    return quern_run(call->plan, &call->args, NULL);
}

static int run_bare(struct launch *l)
{
    const struct qn_plan *plan = qn_job_plan(l->job);

    return QN_CU(plan->driver, cuLaunchKernelEx, &l->config,
                 plan->kernel_function, l->params, NULL);
}

/* The seconds of one of LAUNCHES; the GPU is idle before and after. */
static int time_launches(struct launch *l, int (*run)(struct launch *),
                         double *seconds)
{
    struct qn_gpu *gpu = l->job->call.gpu;
    const double start = qn_clock_seconds();
    int code = QUERN_OK;

    for (int i = 0; i < LAUNCHES && !code; i++)
        code = run(l);
    *seconds = (qn_clock_seconds() - start) / LAUNCHES;
    return code ? code : QN_GPU(gpu, cuCtxSynchronize);
}

/* In turn, so that both meet the same machine. */
static int time_runs(struct qn_job *job, struct times *times)
{
    const struct qn_plan *plan = qn_job_plan(job);
    double library[ROUNDS], bare[ROUNDS];
    struct launch l = {
        .job = job, .config = plan->launch, .cluster = plan->cluster};
    union qn_given given;
    int code = qn_api_given(job->call.plan, &job->call.args, &given);

    if (!code)
        code = qn_run_prepare(plan, &given.product, &l.values, l.params);
    if (l.config.nattributes)
        l.config.attributes = &l.cluster;
    for (int i = 0; i < ROUNDS && !code; i++) {
        code = time_launches(&l, run_library, &library[i]);
        if (!code)
            code = time_launches(&l, run_bare, &bare[i]);
    }
    if (!code)
        code = qn_call_check(&job->call);
    if (code)
        return code;
    qn_timing_sort(library, ROUNDS);
    qn_timing_sort(bare, ROUNDS);
    times->run = library[ROUNDS / 2];
    times->bare = bare[ROUNDS / 2];
    return QUERN_OK;
}

/* ------------------------------------------------------------------- rows */

static void add_row(cJSON *rows, const struct qn_job *job,
                    const struct times *times)
{
    cJSON *row = cJSON_CreateObject();
    char text[512];

    qn_problem_print(&job->problem, text, sizeof text);
    cJSON_AddStringToObject(row, "problem", text);
    cJSON_AddStringToObject(row, "kernel", job->call.info.kernel);
    cJSON_AddStringToObject(row, "device", job->call.gpu->device.name);
    cJSON_AddNumberToObject(row, "open_ms", times->open * 1e3);
    cJSON_AddNumberToObject(row, "cold_ms", times->cold * 1e3);
    cJSON_AddNumberToObject(row, "cold_cpu_ms", times->cpu * 1e3);
    cJSON_AddNumberToObject(row, "warm_ms", times->warm * 1e3);
    cJSON_AddNumberToObject(row, "again_us", times->again * 1e6);
    cJSON_AddNumberToObject(row, "run_us", times->run * 1e6);
    cJSON_AddNumberToObject(row, "bare_us", times->bare * 1e6);
    cJSON_AddNumberToObject(row, "ratio", times->run / times->bare);
    cJSON_AddItemToArray(rows, row);
}

/* Plans first: the job's own would open the compiler before they do. */
static int add_problem(const struct qn_options *opt, struct quern_context *ctx,
                       const struct qn_problem *problem, cJSON *rows)
{
    struct qn_options jit = *opt;
    char line[512], folder[512];
    struct subject subject = {opt, line, folder};
    struct qn_job job = {0};
    struct times times;
    int code = make_folder(folder, sizeof folder), status;

    qn_problem_print(problem, line, sizeof line);
    if (!code) {
        code = time_plans(&subject, &times);
        remove_folder(folder);
    }
    if (code)
        return qn_message_code(opt, code, quern_errmsg());
    jit.backend = QUERN_BACKEND_JIT;
    status = qn_job_begin(&job, &jit, ctx, problem, NULL);
    if (!status) {
        code = time_runs(&job, &times);
        status = code ? qn_message_code(opt, code, quern_errmsg()) : 0;
    }
    if (!status)
        add_row(rows, &job, &times);
    qn_call_free(&job.call);
    return status;
}

/* --------------------------------------------------------------- together */

/* Threads take one problem after the other. */
struct crowd {
    const struct qn_options *opt;
    const struct qn_problem *problems;
    struct quern_context *ctx;
    struct qn_gpu *gpu;
    int count, next, code;
};

static void *plan_some(void *user)
{
    struct crowd *crowd = user;
    struct qn_driver_scope scope;
    int code =
        qn_driver_enter(crowd->gpu->driver, crowd->gpu->scope.context, &scope);
    int i;

    while (!code && (i = __atomic_fetch_add(&crowd->next, 1,
                                            __ATOMIC_RELAXED)) < crowd->count) {
        char line[512];
        const struct subject subject = {crowd->opt, line, NULL};
        double seconds;

        qn_problem_print(&crowd->problems[i], line, sizeof line);
        code = time_plan(&subject, crowd->ctx, &seconds);
    }
    qn_driver_leave(crowd->gpu->driver, &scope);
    if (code)
        __atomic_store_n(&crowd->code, code, __ATOMIC_RELAXED);
    return NULL;
}

/* The caller's thread is one of them. */
static int plan_all(struct crowd *crowd, int threads, double *seconds)
{
    pthread_t others[64];
    const double start = qn_clock_seconds();
    int started = 0;

    while (started < threads - 1 &&
           !pthread_create(&others[started], NULL, plan_some, crowd))
        started++;
    plan_some(crowd);
    for (int i = 0; i < started; i++)
        pthread_join(others[i], NULL);
    *seconds = qn_clock_seconds() - start;
    return crowd->code;
}

/* That the process may use: `taskset -c 0,1` leaves it two. At most 64. */
static int count_cores(void)
{
    cpu_set_t mine;
    int cores = 1;

    if (!sched_getaffinity(0, sizeof mine, &mine))
        cores = CPU_COUNT(&mine);
    return cores < 1 ? 1 : cores > 64 ? 64 : cores;
}

static int add_together(struct crowd *crowd, cJSON *rows)
{
    const int threads = count_cores();
    struct quern_open_options options = QUERN_OPEN_OPTIONS_INIT;
    char folder[512], text[64];
    double seconds;
    cJSON *row;
    int code = make_folder(folder, sizeof folder);

    if (code)
        return code;
    options.cache = folder;
    options.specs = crowd->opt->specs;
    options.specs_count = crowd->opt->nspecs;
    code = quern_open(&options, &crowd->ctx);
    if (!code)
        code = plan_all(crowd, threads, &seconds);
    quern_close(crowd->ctx);
    remove_folder(folder);
    if (code)
        return code;
    row = cJSON_CreateObject();
    snprintf(text, sizeof text, "all %d by %d threads", crowd->count, threads);
    cJSON_AddStringToObject(row, "problem", text);
    cJSON_AddNumberToObject(row, "cold_ms", seconds * 1e3);
    cJSON_AddItemToArray(rows, row);
    return QUERN_OK;
}

/* With the GPU's context current. */
static int add_all(const struct qn_options *opt, struct quern_context *ctx,
                   struct qn_gpu *gpu, struct qn_problem *problems, int count,
                   cJSON *rows)
{
    struct crowd crowd = {
        .opt = opt, .problems = problems, .gpu = gpu, .count = count};
    int status = QN_EXIT_OK, code = QUERN_OK;

    for (int i = 0; i < count && !status; i++)
        status = add_problem(opt, ctx, &problems[i], rows);
    if (!status && count > 1)
        code = add_together(&crowd, rows);
    return code ? qn_message_code(opt, code, quern_errmsg()) : status;
}

int qn_overhead_rows(const struct qn_options *opt, struct quern_context *ctx,
                     const char *const *texts, int count, cJSON *rows)
{
    struct qn_problem *problems;
    struct qn_gpu *gpu = NULL;
    int status = QN_EXIT_OK, code;

    if (opt->against || (opt->backend != QUERN_BACKEND_AUTO &&
                         opt->backend != QUERN_BACKEND_JIT))
        return qn_message_fail(opt, QN_EXIT_USAGE,
                               "--overhead is that of the backend jit");
    /* NVRTC keeps compiled kernels, from 12.9 on: cold is without that */
    setenv("CUDA_CACHE_DISABLE", "1", 1);
    problems = calloc((size_t)count, sizeof *problems);
    code = problems ? QUERN_OK : QUERN_ENOMEM;

    for (int i = 0; i < count && !code && !status; i++)
        status = qn_source_parse(opt, ctx, texts[i], &problems[i]);
    if (!code && !status)
        code = qn_gpu_open(ctx, &gpu);
    if (!code && !status)
        status = add_all(opt, ctx, gpu, problems, count, rows);
    qn_gpu_close(gpu);
    free(problems);
    return code ? qn_message_code(opt, code, quern_errmsg()) : status;
}
