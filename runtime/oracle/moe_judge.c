/* SPDX-License-Identifier: Apache-2.0 */
/* moe_judge.c: are the results of a layer from unpermuted tokens right? */
#include <stdlib.h>
#include <string.h>

#include "base/element.h"
#include "base/error.h"
#include "base/types.h"
#include "oracle/moe_job.h"
#include "oracle/tally.h"

enum { LINES = 24 };

struct judge {
    struct qn_moe_job *j;
    struct qn_mlp mlp; /* of the rows */
    struct qn_layer_numbers in;
    struct qn_layer_reference r; /* of one pair */
    float factor;                /* its probability */
    char *got[QN_TALLY_RESULTS]; /* all bytes of a result; NULL: none */
    struct qn_tally tally;
    int64_t pairs; /* that have rows, of the tokens compared */
    double *want;  /* of one line */
    char *x;       /* of one token, if it is weighted */
};

static size_t element(const struct judge *v)
{
    return (size_t)qn_type_bits(v->mlp.type) / 8;
}

static const char *before(const struct judge *v, int arg, int64_t token)
{
    const char *at = v->j->call.host[arg];

    return at ? at + (size_t)(token * v->mlp.hidden) * element(v) : NULL;
}

/* The reference of a pair. Probabilities of results are those of activations:
   the second product is linear, biases with it. */
static void compute(struct judge *v, int64_t pair, int group)
{
    const int64_t token = pair / v->j->moe.topk;
    const float *prob = v->j->call.host[QUERN_ARG_PROB];
    const int weights = v->j->moe.mlp.probability;

    v->factor = prob ? prob[pair] : 1;
    v->in.x = before(v, QUERN_ARG_X, token);
    v->in.dy = before(v, QUERN_ARG_DY, token);
    v->in.probability = weights > QUERN_WEIGHTS_X ? &v->factor : NULL;
    if (weights == QUERN_WEIGHTS_X) {
        for (int64_t i = 0; i < v->mlp.hidden; i++)
            qn_element_store(
                v->x, v->mlp.type, (size_t)i,
                v->factor * qn_element_load(v->in.x, v->mlp.type, (size_t)i));
        v->in.x = v->x;
    }
    qn_layer_reference_token(&v->r, group, 0);
}

static void compare(struct judge *v, int result, int64_t at, int64_t count,
                    const double *want, double least)
{
    if (v->got[result])
        qn_tally_add(&v->tally, &v->mlp, result, v->got[result], at, count,
                     want, least);
}

/* ------------------------------------------------------------------ tokens */

/* The gradient of a pair's probability, and the squares of its terms. */
static double dprob_of(const struct judge *v, int64_t token, double *terms)
{
    double sum = 0;

    *terms = v->r.terms;
    if (v->j->moe.mlp.probability != QUERN_WEIGHTS_X)
        return v->r.dprob;
    *terms = 0;
    for (int64_t i = 0; i < v->mlp.hidden; i++) {
        const double term =
            v->r.dx[i] * (double)qn_element_load(before(v, QUERN_ARG_X, token),
                                                 v->mlp.type, (size_t)i);

        sum += term;
        *terms += term * term;
    }
    return sum;
}

static void judge_token(struct judge *v, int64_t token)
{
    const int topk = v->j->moe.topk;
    const int64_t hidden = v->mlp.hidden;
    const double weight = v->j->moe.mlp.probability == QUERN_WEIGHTS_X;
    const int64_t row = qn_moe_job_row(v->j, token);
    const char *residual = before(v, QUERN_ARG_C, token);
    double *y = v->want, *dx = v->want + hidden;

    for (int64_t i = 0; i < hidden; i++) {
        y[i] = residual
                   ? (double)qn_element_load(residual, v->mlp.type, (size_t)i)
                   : 0;
        dx[i] = 0;
    }
    for (int64_t pair = token * topk; pair < (token + 1) * topk; pair++) {
        const int group = qn_moe_job_group(v->j, pair);
        double dprob = 0, terms = 0;

        if (group >= 0) {
            compute(v, pair, group);
            dprob = dprob_of(v, token, &terms);
            v->pairs++;
        }
        for (int64_t i = 0; i < hidden && group >= 0; i++) {
            y[i] += v->r.y[i];
            dx[i] += v->r.dx[i] * (weight > 0 ? (double)v->factor : 1);
        }
        compare(v, QN_TALLY_DPROB, pair, 1, &dprob, 2 * terms);
    }
    if (row >= 0) {
        compare(v, QN_TALLY_Y, row * hidden, hidden, y, 0);
        compare(v, QN_TALLY_DX, row * hidden, hidden, dx, 0);
    }
}

/* ------------------------------------------------------------------ groups */

static int judge_group(struct judge *v, int group)
{
    const int64_t pairs = v->j->call.args.rows * v->j->moe.topk;
    struct qn_tally_lines lines[QN_TALLY_RESULTS] = {{0}};
    const int last = v->mlp.bias ? QN_TALLY_DB2 : QN_TALLY_DW2;
    int code = QUERN_OK;

    for (int i = QN_TALLY_DW1; i <= last && !code; i++)
        code = qn_tally_begin(&lines[i], &v->r, i, LINES,
                              v->j->call.host[qn_tally_names[i].arg], group);
    for (int64_t pair = 0; pair < pairs && !code; pair++) {
        if (qn_moe_job_group(v->j, pair) != group)
            continue;
        compute(v, pair, group);
        for (int i = QN_TALLY_DW1; i <= last; i++)
            qn_tally_token(&lines[i], &v->r, 0);
    }
    for (int i = QN_TALLY_DW1; i <= last; i++) {
        const struct qn_tally_lines *l = &lines[i];

        for (int64_t line = 0; line < l->count && !code; line++)
            compare(v, i, qn_tally_line(l, group, line), l->columns,
                    l->sums + line * l->columns, 0);
        free(l->sums);
    }
    return code;
}

static int judge_groups(struct judge *v, int64_t most)
{
    int64_t sizes[QUERN_MAX_GROUPS], rows = 0;
    char done[QUERN_MAX_GROUPS] = {0};
    int group, code = QUERN_OK;

    qn_moe_job_sizes(v->j, sizes);
    while (!code && (group = qn_tally_next(sizes, done, v->mlp.groups)) >= 0) {
        done[group] = 1;
        rows += sizes[group];
        if (rows > most)
            break;
        code = judge_group(v, group);
    }
    return code;
}

/* ----------------------------------------------------------------- verdict */

static int begin(struct judge *v)
{
    int code =
        qn_layer_reference_begin(&v->r, &v->in) ? qn_error_memory() : QUERN_OK;

    v->want = malloc((size_t)(2 * v->mlp.hidden) * sizeof *v->want);
    v->x = malloc((size_t)v->mlp.hidden * sizeof(float));
    if (!v->want || !v->x)
        code = qn_error_memory();
    for (int i = 0; i < QN_TALLY_RESULTS && !code; i++) {
        const struct qn_memory *m = &v->j->call.memory[qn_tally_names[i].arg];

        if (!m->bytes)
            continue;
        v->got[i] = malloc(m->bytes);
        code = v->got[i] ? qn_memory_read(m, 0, v->got[i], m->bytes)
                         : qn_error_memory();
    }
    return code;
}

/* Is a byte of a result poison? */
static int is_poison(const struct judge *v, int result, size_t at)
{
    return (unsigned char)v->got[result][at] == QN_MEMORY_POISON;
}

/* Are rows of y and dx poison that no token has? */
static int look_between(const struct judge *v)
{
    const size_t row = (size_t)v->mlp.hidden * element(v);
    char *written = calloc((size_t)v->j->moe.mlp.m + 1, 1);
    int right = written != NULL;

    for (int64_t i = 0; i < v->j->call.args.rows && right; i++)
        if (qn_moe_job_row(v->j, i) >= 0)
            written[qn_moe_job_row(v->j, i)] = 1;
    for (int i = QN_TALLY_Y; i <= QN_TALLY_DX && right; i++)
        for (size_t k = 0; k < v->j->call.memory[qn_tally_names[i].arg].bytes;
             k++)
            right &= written[k / row] || is_poison(v, i, k);
    free(written);
    return right;
}

/* Results of tokens that the run had not are poison. */
static int look_outside(const struct judge *v)
{
    if (v->j->moe.scatter && !look_between(v))
        return 0;
    for (int i = QN_TALLY_Y; i <= QN_TALLY_DPROB; i++) {
        const size_t bytes = v->j->call.memory[qn_tally_names[i].arg].bytes,
                     each = i == QN_TALLY_DPROB
                                ? (size_t)v->j->moe.topk * sizeof(float)
                                : (size_t)v->mlp.hidden * element(v);

        if (v->j->moe.scatter && i <= QN_TALLY_DX)
            continue;
        for (size_t k = (size_t)v->j->call.args.rows * each; k < bytes; k++)
            if (!is_poison(v, i, k))
                return 0;
    }
    return 1;
}

static void judge_tokens(struct judge *v, int64_t most)
{
    const int64_t tokens = v->j->call.args.rows;
    const int64_t step = tokens > most ? tokens / most : 1;

    for (int64_t token = 0; token < tokens; token += step)
        judge_token(v, token);
    v->tally.values[QN_TALLY_DPROB] = v->pairs; /* others' are 0 */
}

int qn_moe_job_judge(struct qn_moe_job *j, int64_t most,
                     struct qn_layer_verdict *out)
{
    struct judge v = {.j = j};
    double losses = 1;
    int code;

    qn_moe_mlp(&j->moe, &v.mlp);
    v.in = (struct qn_layer_numbers){.mlp = &v.mlp,
                                     .w1 = j->call.host[QUERN_ARG_W1],
                                     .w2 = j->call.host[QUERN_ARG_W2],
                                     .b1 = j->call.host[QUERN_ARG_B1],
                                     .b2 = j->call.host[QUERN_ARG_B2],
                                     .limit = j->call.args.limit,
                                     .slope = j->call.args.slope,
                                     .shift = j->call.args.shift};
    memset(out, 0, sizeof *out);
    code = begin(&v);
    if (!code)
        code = qn_layer_losses(j->call.ctx, j->recipe, &v.mlp, &losses);
    if (!code)
        judge_tokens(&v, most);
    if (!code && !v.mlp.forward_only)
        code = judge_groups(&v, most);
    if (!code) {
        out->untouched = look_outside(&v);
        code = qn_call_guards(&j->call, &out->guards);
    }
    if (!code)
        qn_tally_conclude(&v.tally, j->recipe, &v.mlp, losses, v.pairs, out);
    for (int i = 0; i < QN_TALLY_RESULTS; i++)
        free(v.got[i]);
    free(v.want);
    free(v.x);
    qn_layer_reference_free(&v.r);
    return code;
}

int qn_moe_job_compare(const struct qn_moe_job *a, const struct qn_moe_job *b,
                       const char **where)
{
    int code = QUERN_OK;

    *where = NULL;
    for (int i = 0; i < QN_TALLY_RESULTS && !code && !*where; i++) {
        const struct qn_memory *x = &a->call.memory[qn_tally_names[i].arg];
        int same = 1;

        if (x->bytes)
            code = qn_memory_same(x, &b->call.memory[qn_tally_names[i].arg],
                                  &same);
        if (!same)
            *where = qn_tally_names[i].name;
    }
    return code;
}
