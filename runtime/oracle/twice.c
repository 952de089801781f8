/* SPDX-License-Identifier: Apache-2.0 */
/* twice.c: a result as copies, against the same in two steps. */
#include "oracle/twice.h"

#include <stdlib.h>
#include <string.h>

#include "oracle/backward.h"
#include "oracle/buffer.h"
#include "product/frame.h"
#include "base/error.h"
#include "problem/geometry.h"
#include "problem/result_rules.h"
#include "quantize/quantize_plan.h"

/* Host memory of the second step: D as values, and its quantized tensors. */
struct step {
    char *numbers, *workspace;
    char *copy[2], *sf[2], *global[2]; /* of the rowwise tensor, the columnwise
                                          tensor */
    float *history;
    struct qn_quantize_args args;
};

/* Delayed scaling with a factor that saturates nothing and is not 1. */
static const float factors[2] = {4, 0.25f};

/* A buffer with these bytes, or zeros, if there are any. */
static int fill(struct qn_memory *memory, struct qn_gpu *gpu, const void *from,
                size_t bytes)
{
    int code = bytes ? qn_memory_new(memory, gpu, bytes) : QUERN_OK;

    if (code || !bytes)
        return code;
    return from ? qn_memory_write(memory, 0, from, bytes)
                : qn_memory_clear(memory, 0);
}

int qn_twice_fill(struct qn_job *job, uint64_t seed)
{
    const struct qn_description *need = &job->need;
    const uint64_t random[2] = {seed, 0};
    int code = fill(&job->scale, job->gpu, factors,
                    need->history ? sizeof factors : 0);

    if (!code)
        code = fill(&job->history, job->gpu, NULL,
                    (size_t)need->history * sizeof(float));
    if (!code)
        code = fill(&job->random, job->gpu, random,
                    need->random ? sizeof random : 0);
    return code;
}

static const int roles[2] = {QN_ROLE_D, QN_ROLE_T};

/* Poisoned as buffers of jobs are; at least a byte. */
static char *new_buffer(size_t bytes)
{
    char *data = aligned_alloc(256, (bytes + 256) / 256 * 256);

    return data ? memset(data, QN_MEMORY_POISON, bytes) : NULL;
}

/* The buffers, and D of the first step in one of them. */
static int make_buffers(struct step *s, const struct qn_memory *d,
                        const struct qn_quantize_description *need)
{
    const struct qn_tensor *copies[2] = {&need->args.row, &need->args.column};
    int all;

    s->numbers = new_buffer(d->bytes);
    s->workspace = calloc(1, need->workspace_bytes);
    s->history = calloc((size_t)need->history + 1, sizeof *s->history);
    all = s->numbers && s->workspace && s->history;
    for (int i = 0; i < 2; i++) {
        s->copy[i] = new_buffer(copies[i]->bytes);
        s->sf[i] = new_buffer(copies[i]->sf_bytes);
        s->global[i] = new_buffer(copies[i]->global_bytes);
        all &= s->copy[i] && s->sf[i] && s->global[i];
    }
    return all ? qn_memory_read(d, 0, s->numbers, d->bytes) : qn_error_memory();
}

static void free_buffers(struct step *s)
{
    free(s->numbers);
    free(s->workspace);
    for (int i = 0; i < 2; i++) {
        free(s->copy[i]);
        free(s->sf[i]);
        free(s->global[i]);
    }
    free(s->history);
}

/* The job's seed. */
static int need_random(const struct qn_job *job, uint64_t random[2])
{
    return job->need.random
               ? qn_memory_read(&job->random, 0, random, 2 * sizeof *random)
               : QUERN_OK;
}

/* Put all addresses into the job's arguments. */
static void point(const struct qn_job *job, struct step *s,
                  const struct qn_quantize_description *need, uint64_t *random,
                  float *scale)
{
    struct qn_tensor *copies[2] = {&s->args.row, &s->args.column};

    s->args = need->args;
    s->args.in.data = s->numbers;
    for (int i = 0; i < 2; i++) {
        if (!copies[i]->ndim)
            continue;
        copies[i]->data = s->copy[i];
        copies[i]->sf = s->sf[i];
        copies[i]->global = copies[i]->global_bytes ? s->global[i] : NULL;
    }
    s->args.scale = need->history ? scale : NULL;
    s->args.history = need->history ? s->history : NULL;
    s->args.random = need->random ? random : NULL;
    s->args.first_dims = job->sizes;
    s->args.sizes_type = QUERN_I64;
    s->args.workspace = s->workspace;
}

/* Quantize D of the first step. */
static int quantize(const struct qn_job *job, const struct qn_memory *d,
                    struct step *s)
{
    const struct qn_plan_options options = {.backend = QUERN_BACKEND_HOST};
    struct qn_quantize_description need;
    struct qn_quantize_plan *plan = NULL;
    struct qn_quantization q;
    float scale[2] = {factors[0], factors[1]};
    uint64_t random[2];
    int code = need_random(job, random);

    qn_result_cast(&job->problem, job->recipe, &q);
    if (!code)
        code = qn_quantize_needs(job->ctx, &q, &need);
    if (!code)
        code = make_buffers(s, d, &need);
    if (!code)
        code = qn_quantize_plan(job->ctx, &q, &options, &plan);
    if (!code) {
        point(job, s, &need, random, scale);
        code = qn_quantize_run(plan, &s->args, NULL);
    }
    qn_quantize_plan_free(plan);
    return code;
}

/* Is a buffer of the job byte for byte the other one? */
static int compare(const struct qn_memory *memory, const char *other,
                   int *differ)
{
    char *data = malloc(memory->bytes + 1);
    int code = data ? qn_memory_read(memory, 0, data, memory->bytes)
                    : qn_error_memory();

    if (!code)
        *differ |= memcmp(data, other, memory->bytes) != 0;
    free(data);
    return code;
}

/* All of one copy, of both. */
static int compare_copies(const struct qn_job *job, const struct step *s,
                          int *differ)
{
    const int count = job->problem.copies & QUERN_COLUMNWISE ? 2 : 1;
    int code = QUERN_OK;

    for (int i = 0; i < count && !code; i++) {
        const int role = roles[i];

        code = compare(&job->memory[role], s->copy[i], differ);
        if (!code)
            code = compare(&job->sf[role], s->sf[i], differ);
        if (!code && job->global[role].base)
            code = compare(&job->global[role], s->global[i], differ);
    }
    if (!code && job->history.base)
        code = compare(&job->history, (const char *)s->history, differ);
    return code;
}

/* A buffer's bytes after a run that began as runs that are judged do. */
static char *sums_of(struct qn_job *job, const struct qn_memory *memory)
{
    char *data = malloc(memory->bytes + 1);

    if (data && !qn_backward_begin(job) && !qn_job_run(job) &&
        !qn_job_check(job) && !qn_memory_read(memory, 0, data, memory->bytes))
        return data;
    free(data);
    return NULL;
}

/* Are dbias and dprob the same, to the bit, as those of D as values? */
static int compare_sums(struct qn_job *job, struct qn_job *first, int *differ)
{
    const struct qn_memory *sums[2] = {&job->dbias, &job->dprob};
    int code = QUERN_OK;

    for (int i = 0; i < 2 && !code; i++) {
        char *wanted = sums_of(first, sums[i]), *found = sums_of(job, sums[i]);

        if (!wanted || !found)
            code = QUERN_ENOMEM;
        else
            *differ |= memcmp(wanted, found, sums[i]->bytes) != 0;
        free(wanted);
        free(found);
    }
    return code;
}

int qn_twice_judge(struct qn_job *job, enum qn_oracle oracle, int64_t most,
                   struct qn_verdict *verdict)
{
    const struct qn_options options = {.command = "check",
                                       .backend = job->info.backend,
                                       .against = job->info.backend};
    struct qn_job like = *job, first = {0};
    struct step step = {.numbers = NULL};
    int code = QUERN_OK;

    memset(verdict, 0, sizeof *verdict);
    like.problem.copies = 0;
    if (qn_launch_find(job->plan, QN_WORK_QUANTIZE_D))
        like.problem.dequantize = job->plan->problem.dequantize;
    if (qn_job_beside(&first, &like, &options))
        code = QUERN_EINVAL; /* and said */
    if (!code)
        code = qn_job_run(&first);
    if (!code)
        code = qn_oracle_judge(&first, oracle, most, verdict);
    if (!code)
        code = quantize(job, &first.memory[QN_ROLE_D], &step);
    if (!code)
        code = compare_copies(job, &step, &verdict->differ);
    if (!code && qn_geometry_backward(&job->problem))
        code = compare_sums(job, &first, &verdict->differ);
    if (!code)
        code = qn_buffer_guards(job, &verdict->guards);
    verdict->passed &= !code && !verdict->differ && verdict->guards;
    free_buffers(&step);
    qn_job_free(&first);
    return code;
}
