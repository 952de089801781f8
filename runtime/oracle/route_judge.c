/* SPDX-License-Identifier: Apache-2.0 */
/* route_judge.c: is the result of a line about routes right? */
#include "oracle/route_job.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/api.h"
#include "base/element.h"
#include "base/error.h"

/* --------------------------------------------------------- next to the host */

/* Poison that is left counts, too; the workspace does not. */
static int compare_one(const struct qn_route_job *a,
                       const struct qn_route_job *b, int arg,
                       struct qn_route_verdict *v)
{
    const size_t bytes = a->call.memory[arg].bytes;
    unsigned char *x = malloc(bytes + 1), *y = malloc(bytes + 1);
    int code = x && y ? qn_memory_read(&a->call.memory[arg], 0, x, bytes)
                      : qn_error_memory();

    if (!code)
        code = qn_memory_read(&b->call.memory[arg], 0, y, bytes);
    for (size_t i = 0; i < bytes && !code; i++)
        if (x[i] != y[i] && v->differ++ == 0)
            snprintf(v->where, sizeof v->where,
                     ", the first %s[%zu]: %#x and %#x", qn_api_name(arg), i,
                     x[i], y[i]);
    free(x);
    free(y);
    return code;
}

static int compare_host(const struct qn_route_job *j,
                        const struct qn_options *opt,
                        struct qn_route_verdict *v)
{
    struct qn_route_job host;
    int code = QUERN_OK;

    v->oracle = "the host backend";
    if (qn_route_job_begin(&host, opt, j->call.ctx, &j->route,
                           QUERN_BACKEND_HOST))
        code = qn_error_set(QUERN_EINVAL, "the host backend has no such run");
    if (!code)
        code = qn_call_run(&host.call);
    for (int arg = 0; arg < QUERN_ARGS_COUNT && !code; arg++)
        if (arg != QUERN_ARG_WORKSPACE)
            code = compare_one(j, &host, arg, v);
    qn_call_free(&host.call);
    return code;
}

/* ----------------------------------------------------------------- the host */

static void note(struct qn_route_verdict *v, int fine, int arg, int64_t at)
{
    if (!fine && v->differ++ == 0)
        snprintf(v->where, sizeof v->where, ", the first %s[%lld]",
                 qn_api_name(arg), (long long)at);
}

static const int *array(const struct qn_route_job *j, int arg)
{
    return (const int *)(const void *)j->call.memory[arg].data;
}

/* An int of an array. */
static void expect(const struct qn_route_job *j, int arg, int64_t at,
                   int64_t value, struct qn_route_verdict *v)
{
    note(v, array(j, arg)[at] == value, arg, at);
}

static int64_t expert_of(const struct qn_route_job *j, int64_t pair)
{
    const void *index = j->call.host[QUERN_ARG_INDEX];

    return j->route.index == QUERN_I64 ? ((const int64_t *)index)[pair]
                                       : ((const int32_t *)index)[pair];
}

/* The order of pairs, one after the other in each group. */
static void judge_route(const struct qn_route_job *j,
                        struct qn_route_verdict *v)
{
    const struct qn_route *r = &j->route;
    int64_t next[QUERN_MAX_GROUPS], rows[QUERN_MAX_GROUPS] = {0}, row = 0;

    for (int64_t i = 0; i < r->m * r->topk; i++) {
        const int64_t group = expert_of(j, i) - r->first;

        if (group >= 0 && group < r->groups)
            rows[group]++;
    }
    for (int g = 0; g < r->groups; row += rows[g++]) {
        next[g] = row;
        expect(j, QUERN_ARG_LENGTHS, g, rows[g], v);
        expect(j, QUERN_ARG_STARTS, g, row, v);
    }
    expect(j, QUERN_ARG_STARTS, r->groups, row, v);
    for (int64_t i = 0; i < r->m * r->topk; i++) {
        const int64_t group = expert_of(j, i) - r->first;
        const int there = group >= 0 && group < r->groups;

        expect(j, QUERN_ARG_INVERSE, i, there ? next[group] : -1, v);
        if (there)
            expect(j, QUERN_ARG_GATHER, next[group]++, i, v);
    }
}

static double value(const struct qn_route_job *j, int arg, int64_t row,
                    int64_t f)
{
    return qn_element_load(j->call.memory[arg].data, j->route.type,
                           (size_t)(row * j->route.k + f));
}

/* A value that was rounded once from fp32. */
static void expect_value(const struct qn_route_job *j, int64_t row, int64_t f,
                         float x, struct qn_route_verdict *v)
{
    float stored;

    qn_element_store(&stored, j->route.type, 0, x);
    note(v,
         value(j, QUERN_ARG_OUTPUT, row, f) ==
             (double)qn_element_load(&stored, j->route.type, 0),
         QUERN_ARG_OUTPUT, row * j->route.k + f);
}

static double weight_of(const struct qn_route_job *j, int64_t pair)
{
    const float *prob = j->call.host[QUERN_ARG_PROB];

    return prob ? (double)prob[pair] : 1;
}

/* The sum of token times row, in any order. */
static void judge_dprob(const struct qn_route_job *j, int64_t pair, int row,
                        struct qn_route_verdict *v)
{
    const float *dprob =
        (const float *)(const void *)j->call.memory[QUERN_ARG_DPROB].data;
    double sum = 0, size = 0;

    for (int64_t f = 0; f < j->route.k && row >= 0; f++) {
        const double x = value(j, QUERN_ARG_INPUT, pair / j->route.topk, f) *
                         value(j, QUERN_ARG_ROWS, row, f);

        sum += x;
        size += fabs(x);
    }
    note(v,
         fabs((double)dprob[pair] - sum) <=
             (double)j->route.k * ldexp(size, -24),
         QUERN_ARG_DPROB, pair);
}

static void judge_permute(const struct qn_route_job *j,
                          struct qn_route_verdict *v)
{
    const struct qn_route *r = &j->route;
    const int *inverse = array(j, QUERN_ARG_INVERSE);

    for (int64_t pair = 0; pair < r->m * r->topk; pair++) {
        for (int64_t f = 0; f < r->k && inverse[pair] >= 0; f++)
            expect_value(j, inverse[pair], f,
                         (float)(value(j, QUERN_ARG_INPUT, pair / r->topk, f) *
                                 weight_of(j, pair)),
                         v);
        if (r->dprob)
            judge_dprob(j, pair, inverse[pair], v);
    }
}

/* fp32: sums and products of two of its values are exact in double, or are
   rounded once more without harm. */
static void judge_combine(const struct qn_route_job *j,
                          struct qn_route_verdict *v)
{
    const struct qn_route *r = &j->route;
    const int *inverse = array(j, QUERN_ARG_INVERSE);

    for (int64_t at = 0; at < r->m * r->k; at++) {
        const int64_t token = at / r->k, f = at % r->k;
        float sum = 0;

        for (int64_t p = token * r->topk; p < (token + 1) * r->topk; p++)
            if (inverse[p] >= 0) {
                const float x =
                    (float)(weight_of(j, p) *
                            value(j, QUERN_ARG_INPUT, inverse[p], f));

                sum = (float)((double)sum + (double)x);
            }
        if (r->residual)
            sum = (float)((double)sum + value(j, QUERN_ARG_C, token, f));
        expect_value(j, token, f, sum, v);
    }
}

static void judge_host(const struct qn_route_job *j, struct qn_route_verdict *v)
{
    v->oracle = "an order and sums that are found pair by pair";
    if (j->route.work == QUERN_ROUTE)
        judge_route(j, v);
    else if (j->route.work == QUERN_PERMUTE)
        judge_permute(j, v);
    else
        judge_combine(j, v);
}

int qn_route_job_judge(struct qn_route_job *j, const struct qn_options *opt,
                       struct qn_route_verdict *v)
{
    int code = QUERN_OK;

    memset(v, 0, sizeof *v);
    v->guards = 1;
    for (int arg = 0; arg < QUERN_ARGS_COUNT && !code; arg++) {
        int fine = 1;

        if (j->call.memory[arg].base)
            code = qn_memory_guards(&j->call.memory[arg], &fine);
        v->guards &= fine;
    }
    if (code)
        return code;
    if (j->call.gpu)
        return compare_host(j, opt, v);
    judge_host(j, v);
    return code;
}
