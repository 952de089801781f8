/* SPDX-License-Identifier: Apache-2.0 */
/* adapted.c: products with low-rank adapters. */
#include "oracle/adapted.h"

#include <math.h>
#include <stdlib.h>

#include "base/element.h"
#include "base/error.h"

static const float scale = 0.75f;

/* The adapter that the tokens are multiplied by is the first of the two. */
static int down_of(const struct qn_problem *p)
{
    return p->op == QUERN_FPROP ? QUERN_ARG_LORA_A : QUERN_ARG_LORA_B;
}

static int up_of(const struct qn_problem *p)
{
    return p->op == QUERN_FPROP ? QUERN_ARG_LORA_B : QUERN_ARG_LORA_A;
}

/* lora_t and its part of D are of the order of 1. */
int qn_adapted_fill(const struct qn_job *job, const struct quern_operand *o,
                    void *to, size_t bytes)
{
    const struct qn_problem *p = &job->problem;
    const int64_t terms = o->arg == down_of(p) ? p->k : p->lora;
    const uint64_t seed = job->seed ^ (0x10A0 + (uint64_t)o->arg);

    if (o->arg == QUERN_ARG_LORA_SCALE) {
        *(float *)to = scale;
        return QUERN_OK;
    }
    return qn_call_draw(&job->call, o, to, bytes, seed,
                        1 / sqrtf((float)terms));
}

static int type_of(const struct qn_job *job)
{
    return job->operands[QN_ROLE_A].type;
}

/* Element (row, k) of a group's adapter with as many rows and steps of k. */
static double element(const struct qn_job *job, int arg, int group,
                      int64_t rows, int64_t steps, int64_t row, int64_t k)
{
    const int64_t inside = job->problem.b_major == QUERN_MAJOR_K
                               ? row * steps + k
                               : k * rows + row;

    return (double)qn_element_load(job->call.host[arg], type_of(job),
                                   (size_t)(group * rows * steps + inside));
}

void qn_adapted_expect(const struct qn_job *job, int group, const double *a,
                       int64_t k, double *t)
{
    const struct qn_problem *p = &job->problem;

    for (int r = 0; r < p->lora; r++) {
        double sum = 0;

        for (int64_t i = 0; i < k; i++)
            sum += a[i] * element(job, down_of(p), group, p->lora, k, r, i);
        t[r] = sum * (double)scale;
    }
}

int qn_adapted_made(const struct qn_job *job, int group, int64_t row, double *t)
{
    const size_t rank = (size_t)job->problem.lora;
    const size_t at = (size_t)(job->starts[group] + row) * rank;
    unsigned short codes[256];
    int code = qn_memory_read(&job->call.memory[QUERN_ARG_LORA_T], at * 2,
                              codes, rank * 2);

    for (size_t r = 0; r < rank && !code; r++)
        t[r] = (double)qn_element_load(codes, type_of(job), r);
    return code;
}

void qn_adapted_column(const struct qn_job *job, int group, int64_t column,
                       double *u)
{
    const struct qn_problem *p = &job->problem;

    for (int r = 0; r < p->lora; r++)
        u[r] = element(job, up_of(p), group, p->n, p->lora, column, r);
}

int qn_adapted_outside(const struct qn_job *job, int *untouched)
{
    const size_t row = (size_t)job->problem.lora * 2;
    const size_t begin = (size_t)job->rows * row;
    const size_t count = (size_t)(job->problem.m - job->rows) * row;
    unsigned char *data = malloc(count + 1);
    int code = data ? qn_memory_read(&job->call.memory[QUERN_ARG_LORA_T], begin,
                                     data, count)
                    : qn_error_memory();

    for (size_t i = 0; i < count && !code; i++)
        *untouched &= data[i] == QN_MEMORY_POISON;
    free(data);
    return code;
}
