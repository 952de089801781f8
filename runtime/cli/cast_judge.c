/* SPDX-License-Identifier: Apache-2.0 */
/* cast_judge.c: is a quantization right? */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli.h"
#include "oracle/cast.h"
#include "base/element.h"
#include "base/types.h"
#include "problem/quantize.h"
#include "oracle/fidelity.h"
#include "oracle/tolerance.h"

/* A GPU's bytes are the host's, also where poison was before. */
static int compare_host(struct qn_cast *c, const struct qn_options *opt,
                        struct qn_subject_verdict *v)
{
    struct qn_cast host = {0};
    int code = QUERN_OK;
    int status = qn_cast_begin_host(&host, opt, c->call.ctx, &c->q);

    v->oracle = "host backend";
    if (!status)
        code = qn_call_run(&host.call);
    if (!status && !code)
        code = qn_cast_compare(c, &host, &v->error, v->where, sizeof v->where);
    qn_call_free(&host.call);
    if (code)
        return qn_message_code(opt, code, quern_errmsg());
    return status;
}

/* Values without scales are compared directly: 1 - 2xy / (xx + yy). */
static double distance(const struct qn_cast *c)
{
    const struct quern_operand *row =
        qn_call_operand(&c->call, QUERN_ARG_ROWWISE);
    const int64_t stride = quern_extent(&row->pitch, c->q.m);
    double gap = 0, sum = 0;

    for (int64_t i = 0; i < c->rows; i++)
        for (int64_t k = 0; k < c->q.k; k++) {
            const double x =
                (double)qn_element_load(c->call.memory[QUERN_ARG_INPUT].data,
                                        c->q.type, (size_t)(i * c->q.k + k));
            const double y =
                (double)qn_element_load(c->call.memory[QUERN_ARG_ROWWISE].data,
                                        row->type, (size_t)(i * stride + k));

            gap += (x - y) * (x - y);
            sum += x * x + y * y;
        }
    return sum > 0 ? gap / sum : 0;
}

/* One copy, read where it is said to be, next to the values that went in. */
static int compare_copy(const struct qn_cast *c, int copy,
                        struct qn_subject_verdict *v)
{
    enum { LINES = 4096 };
    const struct qn_recipe *recipe =
        qn_context_recipe(c->call.ctx, c->q.recipe);
    const struct qn_tensor tensor = qn_cast_copy(c, copy);
    struct qn_fidelity f = {.q = c->q,
                            .recipe = recipe,
                            .numbers = c->call.memory[QUERN_ARG_INPUT].data,
                            .copy = &tensor,
                            .sizes = c->sizes};
    int64_t starts[QUERN_MAX_GROUPS], first = 0;
    double tolerance, error;
    int code, held = 1;

    for (int i = 0; i < c->q.groups; first += c->sizes[i++])
        starts[i] = first;
    f.starts = starts;
    f.q.copies = copy;
    code = qn_fidelity_tolerance(c->call.ctx, &f, 1, &tolerance);
    if (!code)
        code = qn_fidelity_judge(&f, tolerance, LINES, &error, &held);
    if (code)
        return code;
    v->tolerance = fmax(v->tolerance, tolerance);
    if (!(error <= v->error))
        v->error = error;
    if (!held && !v->where[0])
        snprintf(v->where, sizeof v->where, "; the %s copy does not hold them",
                 copy == QUERN_ROWWISE ? "row" : "column");
    return code;
}

/* The copies next to the values that went in. */
static int compare_numbers(const struct qn_cast *c,
                           const struct qn_options *opt,
                           struct qn_subject_verdict *v)
{
    const struct qn_memory *rowwise = &c->call.memory[QUERN_ARG_ROWWISE];
    const struct qn_memory *columnwise = &c->call.memory[QUERN_ARG_COLUMNWISE];
    int code = QUERN_OK;

    v->oracle = "the values before";
    if (!rowwise[1].bytes && !columnwise[1].bytes) {
        v->tolerance = qn_tolerance_format(c->q.type);
        if (!rowwise->bytes) /* sums are all that is asked for */
            return QN_EXIT_OK;
        v->error = distance(c);
    }
    for (int copy = QUERN_ROWWISE; copy <= QUERN_COLUMNWISE && !code; copy *= 2)
        if (c->q.copies & copy &&
            (copy == QUERN_ROWWISE ? rowwise : columnwise)[1].bytes)
            code = compare_copy(c, copy, v);
    return code ? qn_message_code(opt, code, quern_errmsg()) : QN_EXIT_OK;
}

int qn_cast_error(const struct qn_options *opt, struct quern_context *ctx,
                  const char *recipe, int of, double *error)
{
    struct qn_quantization q;
    struct qn_cast cast = {0};
    struct qn_subject_verdict verdict = {0};
    char text[128];
    int code, status = QN_EXIT_OK;

    snprintf(text, sizeof text,
             "quantize %s of=%s g=1 m=256 k=1024 copies=rowwise", recipe,
             qn_of_name(of));
    code = qn_quantize_parse(ctx, text, &q);
    if (code)
        status = qn_message_code(opt, code, quern_errmsg());
    if (!status)
        status = qn_cast_begin_host(&cast, opt, ctx, &q);
    if (!status && qn_call_run(&cast.call))
        status = QN_EXIT_UNABLE;
    if (!status)
        status = compare_numbers(&cast, opt, &verdict);
    *error = verdict.error;
    qn_call_free(&cast.call);
    return status != QN_EXIT_OK;
}

/* A sum of `count` products that may be added to one of an operand's floats. */
struct sum {
    double value, size;
    int64_t count;
};

static void add(struct sum *sum, double x)
{
    sum->value += x;
    sum->size += fabs(x);
    sum->count++;
}

/* The float at `at` of an operand, next to its sum in float64. */
static int is_sum(const struct qn_cast *c, int arg, int64_t at,
                  const struct sum *sum)
{
    const double got = ((const float *)(void *)c->call.memory[arg].data)[at];

    return fabs(got - sum->value) <= (double)sum->count * ldexp(sum->size, -24);
}

static struct sum sum_before(const struct qn_cast *c, int arg, int64_t at)
{
    const float *before = c->call.host[arg]; /* where it is added to */
    struct sum sum = {.count = 1};

    if (before)
        sum.value = before[at];
    sum.size = fabs(sum.value);
    return sum;
}

static double input(const struct qn_cast *c, int64_t row, int64_t feature)
{
    return qn_element_load(c->call.memory[QUERN_ARG_INPUT].data, c->q.type,
                           (size_t)(row * c->q.k + feature));
}

/* dbias of a group and a feature: its rows times their factors. */
static int is_dbias(const struct qn_cast *c, int64_t first, int group,
                    int64_t feature)
{
    const float *weight = c->call.host[QUERN_ARG_PROB];
    const int64_t at = group * c->q.k + feature;
    struct sum sum = sum_before(c, QUERN_ARG_DBIAS, at);

    for (int64_t row = first; row < first + c->sizes[group]; row++)
        add(&sum, input(c, row, feature) * (weight ? weight[row] : 1));
    return is_sum(c, QUERN_ARG_DBIAS, at, &sum);
}

/* dprob of a row: its features times the bias of its group. */
static int is_dprob(const struct qn_cast *c, int64_t row, int group)
{
    const float *bias = c->call.host[QUERN_ARG_BIAS];
    struct sum sum = sum_before(c, QUERN_ARG_DPROB, row);

    for (int64_t j = 0; j < c->q.k; j++)
        add(&sum, input(c, row, j) * bias[group * c->q.k + j]);
    return is_sum(c, QUERN_ARG_DPROB, row, &sum);
}

/* Says in v->where which sum is wrong, if one is. */
static void compare_sums(const struct qn_cast *c, struct qn_subject_verdict *v)
{
    int64_t first = 0;

    for (int g = 0; g < c->q.groups; first += c->sizes[g++]) {
        for (int64_t j = 0; c->q.dbias && j < c->q.k && !v->where[0]; j++)
            if (!is_dbias(c, first, g, j))
                snprintf(v->where, sizeof v->where,
                         "; dbias is wrong from group %d, feature %lld on", g,
                         (long long)j);
        for (int64_t i = 0; c->q.dprob && i < c->sizes[g] && !v->where[0]; i++)
            if (!is_dprob(c, first + i, g))
                snprintf(v->where, sizeof v->where,
                         "; dprob is wrong from row %lld on",
                         (long long)(first + i));
    }
}

static void say(struct qn_subject_verdict *v, int guards)
{
    const char *word = v->passed ? "passed" : "FAILED";
    const char *written = guards ? "" : "; a guard was written";

    if (v->tolerance > 0)
        snprintf(v->text, sizeof v->text,
                 "%s: distance %.2e (at most %.0e) from %s%s%s", word, v->error,
                 v->tolerance, v->oracle, v->where, written);
    else
        snprintf(v->text, sizeof v->text, "%s: %.0f bytes differ from %s%s%s",
                 word, v->error, v->oracle, v->where, written);
}

/* On a GPU the host is the oracle; on the host its tensors and sums are
   checked directly. */
int qn_cast_judge(struct qn_cast *c, const struct qn_options *opt,
                  struct qn_subject_verdict *v)
{
    int code, status, guards = 1;

    memset(v, 0, sizeof *v);
    code = qn_call_guards(&c->call, &guards);
    if (code)
        return qn_message_code(opt, code, quern_errmsg());
    if (c->call.gpu)
        status = compare_host(c, opt, v);
    else if (c->q.work == QUERN_QUANTIZE && !c->q.activation) {
        status = compare_numbers(c, opt, v);
        if (!status)
            compare_sums(c, v);
    } else
        status = qn_message_fail(opt, QN_EXIT_USAGE,
                                 "--check: on the host copies are compared "
                                 "with the original values, so 'quantize' "
                                 "without an activation is needed; on a GPU "
                                 "every result is compared with the host's");
    v->passed = !status && guards && v->error <= v->tolerance && !v->where[0];
    say(v, guards);
    return status;
}
