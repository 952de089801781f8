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
#include "problem/dequantize_rules.h"
#include "problem/geometry.h"
#include "problem/quantize.h"
#include "problem/scale.h"
#include "oracle/fidelity.h"
#include "oracle/tolerance.h"

int qn_copies_state(const struct quern_operand *o, const float factors[2],
                    uint64_t seed, void *to, size_t bytes)
{
    switch (o->arg) {
    case QUERN_ARG_SCALE:
        memcpy(to, factors, bytes);
        return QUERN_OK;
    case QUERN_ARG_HISTORY:
        memset(to, 0, bytes);
        return QUERN_OK;
    case QUERN_ARG_RANDOM:
        memcpy(to, (uint64_t[]){seed, 0}, bytes);
        return QUERN_OK;
    default:
        return QN_CALL_POISON;
    }
}

/* The values of one quantization. */
struct maker {
    struct qn_call call;
    uint64_t seed;
    float scale, factors[2];
};

static int fill(void *maker, const struct quern_operand *o, void *to,
                size_t bytes)
{
    const struct maker *m = maker;

    if (o->arg != QUERN_ARG_INPUT)
        return qn_copies_state(o, m->factors, m->seed, to, bytes);
    return qn_call_draw(&m->call, o, to, bytes, m->seed, m->scale);
}

/* Kernels of casts of a job on a GPU may be compiled for it. Delayed scaling
   has a factor of calls before. */
int qn_copies_make(struct qn_job *job, int role, uint64_t seed, float scale)
{
    struct maker m = {
        .call.alike = job->call.alike, .seed = seed, .scale = scale};
    const int gathered = job->operands[role].gathered;
    const struct qn_call_data data = {
        .sizes = gathered ? &job->problem.tokens : job->sizes,
        .groups = gathered ? 1 : job->problem.groups,
        .fill = fill,
        .user = &m};
    struct qn_line line = {.kind = QN_LINE_CAST};
    int copy, code;

    job->made[role].seed = seed;
    job->made[role].scale = scale;
    qn_scale_source(&job->problem, job->recipe, role, &line.of.cast);
    m.factors[0] = qn_tolerance_factor(
        qn_quantize_element(&line.of.cast, job->recipe), 4 * scale);
    m.factors[1] = 1 / m.factors[0];
    copy = line.of.cast.copies == QUERN_ROWWISE ? QUERN_ARG_ROWWISE
                                                : QUERN_ARG_COLUMNWISE;
    for (int i = 0; i < 3; i++)
        qn_call_lend(&m.call, copy + i, &job->call, qn_job_arg(role) + i);
    code = qn_call_line(&m.call, job->call.ctx, &line,
                        job->call.gpu ? QUERN_BACKEND_AUTO : QUERN_BACKEND_HOST,
                        &data);
    qn_call_free(&m.call);
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
    const struct qn_memory *from = &job->call.memory[qn_job_arg(role)];
    struct qn_tensor copy = {0};
    int code = read_back(&from[0], &memory[0]);

    if (!code)
        code = read_back(&from[1], &memory[1]);
    if (!code && from[2].bytes)
        code = read_back(&from[2], &memory[2]);
    copy.data = memory[0];
    copy.sf = memory[1];
    copy.global = memory[2];
    if (!code && job->operands[role].gathered)
        qn_decode_begin(decode, &job->operands[role], &copy, 1, &no_rows,
                        &job->problem.tokens);
    else if (!code)
        qn_decode_begin(decode, &job->operands[role], &copy,
                        job->problem.groups, job->starts, job->sizes);
    decode->multiplied = qn_dequantize_type(&job->problem, job->recipe);
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
        memcpy(*numbers, job->call.host[QUERN_ARG_INPUT], count * 2);
    else
        qn_random_fill(*numbers, q->type, count,
                       job->call.alike ? 0 : (size_t)q->k, job->made[role].seed,
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
        code = qn_fidelity_tolerance(job->call.ctx, &f, scale, &tolerance);
    copy.data = memory[0];
    copy.sf = memory[1];
    copy.global = memory[2];
    if (!code)
        code = qn_fidelity_judge(&f, tolerance, most, &error, held);
    qn_copies_free(memory);
    free(numbers);
    return code;
}
