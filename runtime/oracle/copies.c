/* SPDX-License-Identifier: Apache-2.0 */
/*
** copies.c: the operands of a job whose recipe scales them.
**
** The library quantizes them itself, from bf16 values that are gone afterwards:
** the product is compared with one of the decoded tensors.
*/
#include "oracle/copies.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/random.h"
#include "problem/geometry.h"
#include "problem/quantize.h"
#include "problem/scale.h"
#include "quantize/quantize_plan.h"
#include "oracle/fidelity.h"
#include "oracle/tolerance.h"

/* Buffers of one quantization other than the job's own. */
struct maker {
    struct qn_job *job;
    struct qn_quantization q;
    struct qn_quantize_description need;
    struct qn_quantize_plan *plan;
    struct qn_memory in, workspace, random, scale, history, tokens;
};

/* A buffer with `bytes` from `from`, or with zeros. */
static int fill(struct qn_memory *m, struct qn_gpu *gpu, const void *from,
                size_t bytes)
{
    int code = bytes ? qn_memory_new(m, gpu, bytes) : QUERN_OK;

    if (code || !bytes)
        return code;
    return from ? qn_memory_write(m, 0, from, bytes) : qn_memory_clear(m, 0);
}

static int fill_numbers(struct maker *m, uint64_t seed, float scale)
{
    const size_t bytes = m->need.args.in.bytes;
    void *numbers = malloc(bytes + 1);
    int code = numbers ? QUERN_OK : qn_error_memory();

    if (!code)
        qn_random_fill(numbers, m->q.type, bytes / 2, seed, scale);
    if (!code)
        code = fill(&m->in, m->job->gpu, numbers, bytes);
    free(numbers);
    return code;
}

/* Delayed scaling has a factor of calls before and an empty history. */
static int make_inputs(struct maker *m, uint64_t seed, float scale)
{
    const float factor = qn_tolerance_factor(
        qn_quantize_element(&m->q, m->job->recipe), 4 * scale);
    const float factors[] = {factor, 1 / factor};
    const uint64_t random[] = {seed, 0};
    struct qn_gpu *gpu = m->job->gpu;
    int code = fill_numbers(m, seed, scale);

    if (!code)
        code = qn_memory_new(&m->workspace, gpu, m->need.workspace_bytes);
    if (!code)
        code = qn_memory_workspace(&m->workspace);
    if (!code)
        code =
            fill(&m->random, gpu, random, m->need.random ? sizeof random : 0);
    if (!code)
        code =
            fill(&m->scale, gpu, factors, m->need.history ? sizeof factors : 0);
    if (!code)
        code = fill(&m->history, gpu, NULL,
                    (size_t)m->need.history * sizeof(float));
    if (!code)
        code = fill(&m->tokens, gpu, &m->job->problem.tokens, sizeof(int64_t));
    return code;
}

int qn_copies_room(struct qn_job *job, int role, const struct qn_tensor *copy)
{
    int code = qn_memory_new(&job->memory[role], job->gpu, copy->bytes);

    if (!code)
        code = qn_memory_new(&job->sf[role], job->gpu, copy->sf_bytes);
    if (!code && copy->global_bytes)
        code = qn_memory_new(&job->global[role], job->gpu, copy->global_bytes);
    return code;
}

static int quantize(struct maker *m, int role)
{
    struct qn_quantize_args args = m->need.args;
    struct qn_tensor *copy =
        m->q.copies == QUERN_ROWWISE ? &args.row : &args.column;
    struct qn_job *job = m->job;
    int code = qn_copies_room(job, role, copy);

    if (code)
        return code;
    args.in.data = m->in.data;
    args.workspace = m->workspace.data;
    args.random = (const void *)m->random.data;
    args.scale = (void *)m->scale.data;
    args.history = (void *)m->history.data;
    if (m->q.of != QN_W)
        args.first_dims = job->operands[role].gathered ? m->tokens.data
                                                       : job->sizes_memory.data;
    args.sizes_type = QUERN_I64;
    copy->data = job->memory[role].data;
    copy->sf = job->sf[role].data;
    copy->global = job->global[role].data;
    code = qn_quantize_run(m->plan, &args, NULL);
    return code ? code : qn_quantize_run_check(m->plan, &args, NULL);
}

/* Kernels of casts of a job on a GPU may be compiled for it. */
static int plan(struct maker *m)
{
    const struct qn_plan_options options = {
        .backend = m->job->gpu ? QUERN_BACKEND_AUTO : QUERN_BACKEND_HOST};
    int code = qn_quantize_needs(m->job->ctx, &m->q, &m->need);

    return code ? code
                : qn_quantize_plan(m->job->ctx, &m->q, &options, &m->plan);
}

int qn_copies_make(struct qn_job *job, int role, uint64_t seed, float scale)
{
    struct maker m = {.job = job};
    struct qn_memory *all[] = {&m.in,    &m.workspace, &m.random,
                               &m.scale, &m.history,   &m.tokens};
    int code;

    job->made[role].seed = seed;
    job->made[role].scale = scale;
    qn_scale_source(&job->problem, job->recipe, role, &m.q);
    code = plan(&m);
    if (!code)
        code = make_inputs(&m, seed, scale);
    if (!code)
        code = quantize(&m, role);
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        qn_memory_free(all[i]);
    qn_quantize_plan_free(m.plan);
    return code;
}

/* ------------------------------------------------------------------ oracle */

static int read_back(const struct qn_memory *memory, void **out)
{
    *out = malloc(memory->bytes + 1);
    return *out ? qn_memory_read(memory, 0, *out, memory->bytes)
                : qn_error_memory();
}

/* Rows that are gathered are one group, from here on. */
static const int64_t no_rows = 0;

int qn_copies_decode(const struct qn_job *job, int role,
                     struct qn_decode *decode, void *memory[3])
{
    struct qn_tensor copy = {0};
    int code = read_back(&job->memory[role], &memory[0]);

    if (!code)
        code = read_back(&job->sf[role], &memory[1]);
    if (!code && job->global[role].bytes)
        code = read_back(&job->global[role], &memory[2]);
    copy.data = memory[0];
    copy.sf = memory[1];
    copy.global = memory[2];
    if (!code && job->operands[role].gathered)
        qn_decode_begin(decode, &job->operands[role], &copy, 1, &no_rows,
                        &job->problem.tokens);
    else if (!code)
        qn_decode_begin(decode, &job->operands[role], &copy,
                        job->problem.groups, job->starts, job->sizes);
    decode->multiplied = 1;
    return code;
}

void qn_copies_free(void *memory[3])
{
    for (int i = 0; i < 3; i++)
        free(memory[i]);
}

/* Those of the job, or drawn again. */
static int numbers_of(const struct qn_job *job, int role,
                      const struct qn_quantization *q, void **numbers)
{
    const int64_t groups = q->of == QN_W ? q->groups : 1;
    const size_t count = (size_t)(groups * q->m * q->k);

    *numbers = malloc(count * 2 + 1);
    if (!*numbers)
        return qn_error_memory();
    if (role == QN_ROLE_A && job->problem.quantize)
        memcpy(*numbers, job->numbers, count * 2);
    else
        qn_random_fill(*numbers, q->type, count, job->made[role].seed,
                       job->made[role].scale);
    return QUERN_OK;
}

int qn_copies_judge(const struct qn_job *job, int role, int64_t most, int *held)
{
    const float scale =
        role == QN_ROLE_A && job->problem.quantize ? 1 : job->made[role].scale;
    struct qn_tensor copy = {0};
    struct qn_fidelity f = {.recipe = job->recipe,
                            .copy = &copy,
                            .starts = job->starts,
                            .sizes = job->sizes};
    void *memory[3] = {NULL}, *numbers = NULL;
    struct qn_decode decode;
    double tolerance, error;
    int code;

    if (!qn_scale_source(&job->problem, job->recipe, role, &f.q))
        return QUERN_OK;
    if (job->operands[role].gathered) {
        f.starts = &no_rows;
        f.sizes = &job->problem.tokens;
    }
    code = numbers_of(job, role, &f.q, &numbers);
    f.numbers = numbers;
    if (!code)
        code = qn_copies_decode(job, role, &decode, memory);
    if (!code)
        code = qn_fidelity_tolerance(job->ctx, &f, scale, &tolerance);
    copy.data = memory[0];
    copy.sf = memory[1];
    copy.global = memory[2];
    if (!code)
        code = qn_fidelity_judge(&f, tolerance, most, &error, held);
    qn_copies_free(memory);
    free(numbers);
    return code;
}
