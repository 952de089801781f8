/*
** job.c: a problem with data, ready to run: what run, bench and demo share.
*/
#include "job.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "clock.h"
#include "random.h"
#include "sizes.h"
#include "types.h"

/* `sizes`, or what the split says; an exit status. */
static int draw_sizes(struct qn_job *job, const struct qn_options *opt,
                      const int64_t *sizes)
{
    struct quern_problem *p = &job->problem;
    char why[512];
    int failed = 0;

    if (sizes) {
        memcpy(job->sizes, sizes, (size_t)p->groups * sizeof *sizes);
    } else {
        const int64_t total = p->ragged == QUERN_AXIS_M   ? p->m
                              : p->ragged == QUERN_AXIS_N ? p->n
                                                          : p->k;
        failed = qn_sizes_draw(p->split, p->groups, total, opt->seed,
                               job->sizes, why, sizeof why);
    }
    for (int i = 0; i < p->groups && !failed; i++)
        job->rows += job->sizes[i];
    return failed ? qn_message_fail(opt, QN_EXIT_USAGE, "%s", why) : QN_EXIT_OK;
}

/* Random numbers for one operand: a host copy, and the buffer to run on. */
static int fill_operand(struct qn_job *job, const struct quern_tensor *tensor,
                        uint64_t seed, float scale, void **host,
                        struct qn_memory *memory)
{
    const size_t count = tensor->bytes * 8 / (size_t)qn_type_bits(tensor->type);
    int code;

    *host = malloc(tensor->bytes ? tensor->bytes : 1);
    if (!*host)
        return QUERN_ENOMEM;
    if (qn_random_fill(*host, tensor->type, count, seed, scale))
        return QUERN_EINVAL;
    code = qn_memory_new(memory, job->gpu, tensor->bytes);
    return code ? code : qn_memory_write(memory, 0, *host, tensor->bytes);
}

static int fill_sizes(struct qn_job *job)
{
    const size_t bytes = (size_t)job->problem.groups * sizeof(int64_t);
    int code = qn_memory_new(&job->sizes_memory, job->gpu, bytes);

    return code ? code
                : qn_memory_write(&job->sizes_memory, 0, job->sizes, bytes);
}

/*
** All buffers. The weights are small, so that D is of the order of 1 whatever
** k is. D keeps its poison: a row that no kernel wrote is then seen.
*/
static int fill_all(struct qn_job *job, uint64_t seed)
{
    const struct quern_args *need = &job->need.args;
    const float small = 1 / sqrtf((float)job->problem.k);
    int code;

    code = fill_operand(job, &need->a, 2 * seed, 1, &job->a, &job->a_memory);
    if (!code)
        code = fill_operand(job, &need->b, 2 * seed + 1, small, &job->b,
                            &job->b_memory);
    if (!code)
        code = qn_memory_new(&job->d_memory, job->gpu, need->d.bytes);
    if (!code)
        code = fill_sizes(job);
    if (!code)
        code =
            qn_memory_new(&job->workspace, job->gpu, job->need.workspace_bytes);
    return code ? code : qn_memory_clear(&job->workspace, 0);
}

/* The arguments of quern_run: what describe said, and the addresses. */
static void point(struct qn_job *job)
{
    const int ragged = job->problem.ragged;
    struct quern_args *args = &job->args;

    *args = job->need.args;
    args->a.data = job->a_memory.data;
    args->b.data = job->b_memory.data;
    args->d.data = job->d_memory.data;
    args->workspace = job->workspace.data;
    args->a.sizes_type = args->b.sizes_type = QUERN_I64;
    if (ragged == QUERN_AXIS_M || ragged == QUERN_AXIS_K)
        args->a.first_dims = job->sizes_memory.data;
    if (ragged == QUERN_AXIS_N || ragged == QUERN_AXIS_K)
        args->b.first_dims = job->sizes_memory.data;
}

/* Plan, and open the GPU if the plan is for one. */
static int plan(struct qn_job *job, const struct qn_options *opt)
{
    const struct quern_plan_options options = {.backend = opt->backend,
                                               .kernel = opt->kernel};
    int code = quern_describe(job->ctx, &job->problem, &job->need);

    if (!code)
        code = quern_plan(job->ctx, &job->problem, &options, &job->plan);
    if (code)
        return code;
    quern_plan_info(job->plan, &job->info);
    if (job->info.backend == QUERN_BACKEND_HOST)
        return QUERN_OK;
    return qn_gpu_open(job->ctx, &job->gpu);
}

int qn_job_begin(struct qn_job *job, const struct qn_options *opt,
                 struct quern_context *ctx, const struct quern_problem *problem,
                 const int64_t *sizes)
{
    int code, status;

    *job = (struct qn_job){.ctx = ctx, .problem = *problem};
    status = draw_sizes(job, opt, sizes);
    if (status)
        return status;
    code = plan(job, opt);
    if (!code)
        code = fill_all(job, opt->seed);
    if (code == QUERN_EINVAL && job->plan)
        return qn_message_fail(opt, QN_EXIT_USAGE,
                               "no random data for operands of type %s yet",
                               qn_type_name(job->need.args.a.type));
    if (code)
        return qn_message_code(opt, code,
                               code == QUERN_ENOMEM ? NULL : quern_errmsg(ctx));
    point(job);
    return QN_EXIT_OK;
}

void qn_job_free(struct qn_job *job)
{
    qn_memory_free(&job->a_memory);
    qn_memory_free(&job->b_memory);
    qn_memory_free(&job->d_memory);
    qn_memory_free(&job->sizes_memory);
    qn_memory_free(&job->workspace);
    qn_gpu_close(job->gpu);
    quern_plan_free(job->plan);
    free(job->a);
    free(job->b);
    memset(job, 0, sizeof *job);
}

int qn_job_run(struct qn_job *job)
{
    return quern_run(job->plan, &job->args, NULL);
}

int qn_job_check(struct qn_job *job)
{
    return quern_check(job->plan, &job->args, NULL);
}

/* ------------------------------------------------------------------- timing */

enum { MOST_RUNS = 1000, BATCH = 32 };

/* Queue the launches one behind the other, an event between each two. */
static int queue(struct qn_job *job, struct cu_event **events, int count)
{
    struct qn_gpu *gpu = job->gpu;
    int code = QUERN_OK;

    for (int i = 0; i <= count && !code; i++)
        code = QN_GPU(gpu, cuEventCreate, &events[i], 0);
    if (!code)
        code = QN_GPU(gpu, cuEventRecord, events[0], NULL);
    for (int i = 0; i < count && !code; i++) {
        code = qn_job_run(job);
        if (!code)
            code = QN_GPU(gpu, cuEventRecord, events[i + 1], NULL);
    }
    return code;
}

/* At most BATCH launches; the clock is read while they run. */
static int time_gpu(struct qn_job *job, double *seconds, int count, int *clock)
{
    struct qn_gpu *gpu = job->gpu;
    struct cu_event *events[BATCH + 1] = {NULL};
    int code = queue(job, events, count);

    if (!code)
        *clock = qn_gpu_clock(gpu);
    if (!code)
        code = QN_GPU(gpu, cuEventSynchronize, events[count]);
    for (int i = 0; i < count && !code; i++) {
        float ms = 0;
        code =
            QN_GPU(gpu, cuEventElapsedTime_v2, &ms, events[i], events[i + 1]);
        seconds[i] = ms * 1e-3;
    }
    for (int i = 0; i <= count; i++)
        if (events[i])
            gpu->cuEventDestroy_v2(events[i]);
    return code;
}

/* The host backend runs at once, so wall time is its own. */
static int time_host(struct qn_job *job, double *seconds, int count)
{
    int code = QUERN_OK;

    for (int i = 0; i < count && !code; i++) {
        const double start = qn_clock_seconds();
        code = qn_job_run(job);
        seconds[i] = qn_clock_seconds() - start;
    }
    return code;
}

/* `count` launches in batches that a GPU works off without a pause. */
static int time_runs(struct qn_job *job, double *seconds, int count, int *clock)
{
    int code = QUERN_OK;

    if (!job->gpu)
        return time_host(job, seconds, count);
    for (int i = 0; i < count && !code; i += BATCH)
        code = time_gpu(job, seconds + i, count - i < BATCH ? count - i : BATCH,
                        clock);
    return code;
}

static int compare_seconds(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

int qn_job_measure(struct qn_job *job, int runs, struct qn_job_time *time)
{
    double seconds[MOST_RUNS] = {0};
    int code;

    memset(time, 0, sizeof *time);
    code = time_runs(job, seconds, 2, &time->sm_clock); /* to warm up */
    if (runs < 1)
        runs = seconds[1] > 0 ? (int)fmin(MOST_RUNS, 1 / seconds[1]) : 100;
    if (runs < 3)
        runs = 3;
    if (runs > MOST_RUNS)
        runs = MOST_RUNS;
    if (!code)
        code = time_runs(job, seconds, runs, &time->sm_clock);
    if (!code)
        code = qn_job_check(job);
    if (code)
        return code;
    qsort(seconds, (size_t)runs, sizeof *seconds, compare_seconds);
    time->seconds = seconds[runs / 2];
    time->least = seconds[0];
    time->runs = runs;
    return QUERN_OK;
}

double qn_job_flops(const struct qn_job *job)
{
    const struct quern_problem *p = &job->problem;
    const double rows = (double)job->rows;

    switch (p->ragged) {
    case QUERN_AXIS_M:
        return 2 * rows * (double)p->n * (double)p->k;
    case QUERN_AXIS_N:
        return 2 * rows * (double)p->m * (double)p->k;
    case QUERN_AXIS_K:
        return 2 * rows * (double)p->m * (double)p->n;
    }
    return 2 * p->groups * (double)p->m * (double)p->n * (double)p->k;
}

/* Ragged operands count their rows in use, grouped ones the groups in use. */
double qn_job_bytes(const struct qn_job *job)
{
    const struct quern_tensor *tensors[] = {
        &job->need.args.a, &job->need.args.b, &job->need.args.d};
    double bytes = 0, used = 0;

    for (int i = 0; i < job->problem.groups; i++)
        used += job->sizes[i] > 0;
    for (int i = 0; i < 3; i++) {
        const struct quern_tensor *t = tensors[i];
        const double parts = (double)t->shape[0];
        const int grouped = t->ndim == 3;
        if (parts > 0)
            bytes +=
                (double)t->bytes / parts * (grouped ? used : (double)job->rows);
    }
    return bytes;
}
