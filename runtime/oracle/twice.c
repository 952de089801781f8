/* SPDX-License-Identifier: Apache-2.0 */
/* twice.c: a result as copies, against the same in two steps. */
#include "oracle/twice.h"

#include <stdlib.h>
#include <string.h>

#include "oracle/backward.h"
#include "oracle/copies.h"
#include "product/frame.h"
#include "problem/geometry.h"
#include "problem/result_rules.h"

const float qn_twice_factors[2] = {4, 0.25f};

/* The second step's input and state. */
struct step {
    const struct qn_job *job;
    const struct qn_memory *d;
};

static int fill(void *user, const struct quern_operand *o, void *to,
                size_t bytes)
{
    const struct step *s = user;

    return o->arg == QUERN_ARG_INPUT
               ? qn_memory_read(s->d, 0, to, bytes)
               : qn_copies_state(o, qn_twice_factors, s->job->seed, to, bytes);
}

/* Quantize D of the first step. */
static int quantize(const struct qn_job *job, const struct qn_memory *d,
                    struct qn_call *second)
{
    struct step step = {job, d};
    const struct qn_call_data data = {.sizes = job->sizes,
                                      .groups = job->problem.groups,
                                      .fill = fill,
                                      .user = &step};
    struct qn_line line = {.kind = QN_LINE_CAST};

    qn_result_cast(&job->problem, job->recipe, &line.of.cast);
    return qn_call_line(second, job->call.ctx, &line, QUERN_BACKEND_HOST,
                        &data);
}

/* Is a buffer of the job byte for byte the other one? */
static int compare(const struct qn_memory *memory,
                   const struct qn_memory *other, int *differ)
{
    int same;
    const int code = qn_memory_same(memory, other, &same);

    *differ |= !same && !code;
    return code;
}

/* All of one tensor, of both, and the history. */
static int compare_copies(const struct qn_job *job,
                          const struct qn_call *second, int *differ)
{
    static const int pairs[][2] = {
        {QUERN_ARG_D, QUERN_ARG_ROWWISE},
        {QUERN_ARG_D_SF, QUERN_ARG_ROWWISE_SF},
        {QUERN_ARG_D_GLOBAL, QUERN_ARG_ROWWISE_GLOBAL},
        {QUERN_ARG_D_COLUMNWISE, QUERN_ARG_COLUMNWISE},
        {QUERN_ARG_D_COLUMNWISE_SF, QUERN_ARG_COLUMNWISE_SF},
        {QUERN_ARG_D_COLUMNWISE_GLOBAL, QUERN_ARG_COLUMNWISE_GLOBAL},
        {QUERN_ARG_HISTORY, QUERN_ARG_HISTORY}};
    int code = QUERN_OK;

    for (size_t i = 0; i < sizeof pairs / sizeof *pairs && !code; i++)
        if (job->call.memory[pairs[i][0]].base)
            code = compare(&job->call.memory[pairs[i][0]],
                           &second->memory[pairs[i][1]], differ);
    return code;
}

/* A buffer's bytes after a run that began as runs that are judged do. */
static char *sums_of(struct qn_job *job, const struct qn_memory *memory)
{
    char *data = malloc(memory->bytes + 1);

    if (data && !qn_backward_begin(job) && !qn_call_run(&job->call) &&
        !qn_memory_read(memory, 0, data, memory->bytes))
        return data;
    free(data);
    return NULL;
}

/* Are dbias and dprob the same, to the bit, as those of D as values? */
static int compare_sums(struct qn_job *job, struct qn_job *first, int *differ)
{
    const struct qn_memory *sums[2] = {&job->call.memory[QUERN_ARG_DBIAS],
                                       &job->call.memory[QUERN_ARG_DPROB]};
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
    /* The library need not contain the kernel of D as values. */
    const int backend = job->call.info.backend == QUERN_BACKEND_AOT
                            ? QUERN_BACKEND_AUTO
                            : job->call.info.backend;
    const struct qn_options options = {
        .command = "check", .backend = backend, .against = backend};
    const struct qn_plan *plan = qn_job_plan(job);
    struct qn_job like = *job, first = {.rows = 0};
    struct qn_call second = {.rows = 0};
    int code = QUERN_OK;

    memset(verdict, 0, sizeof *verdict);
    like.problem.copies = 0;
    if (qn_launch_find(plan, QN_WORK_QUANTIZE_D))
        like.problem.dequantize = plan->problem.dequantize;
    if (qn_job_beside(&first, &like, &options))
        code = QUERN_EINVAL; /* and said */
    if (!code)
        code = qn_call_queue(&first.call);
    if (!code)
        code = qn_oracle_judge(&first, oracle, most, verdict);
    if (!code)
        code = quantize(job, &first.call.memory[QUERN_ARG_D], &second);
    if (!code)
        code = compare_copies(job, &second, &verdict->differ);
    if (!code && qn_geometry_backward(&job->problem))
        code = compare_sums(job, &first, &verdict->differ);
    if (!code)
        code = qn_call_guards(&job->call, &verdict->guards);
    verdict->passed &= !code && !verdict->differ && verdict->guards;
    qn_call_free(&second);
    qn_call_free(&first.call);
    return code;
}
