/* SPDX-License-Identifier: Apache-2.0 */
/* moe_judge.c: are the results of a layer from unpermuted tokens right? */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/element.h"
#include "base/error.h"
#include "base/types.h"
#include "oracle/layer_reference.h"
#include "oracle/moe_job.h"

enum { Y, DX, DPROB, DW1, DW2, DB1, DB2, RESULTS, LINES = 24 };
static const struct {
    const char *name;
    int arg;
} results[RESULTS] = {
    {"y", QUERN_ARG_Y},     {"dx", QUERN_ARG_DX},   {"dprob", QUERN_ARG_DPROB},
    {"dw1", QUERN_ARG_DW1}, {"dw2", QUERN_ARG_DW2}, {"db1", QUERN_ARG_DB1},
    {"db2", QUERN_ARG_DB2},
};

struct judge {
    struct qn_moe_job *j;
    struct qn_mlp mlp; /* of the rows */
    struct qn_layer_numbers in;
    struct qn_layer_reference r; /* of one pair */
    float factor;                /* its probability */
    char *got[RESULTS];          /* all bytes of a result; NULL: none */
    double gap[RESULTS], sum[RESULTS];
    int64_t rows[RESULTS], values[RESULTS];
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

static int type_of(const struct judge *v, int result)
{
    return result <= DX    ? v->mlp.type
           : result == DW1 ? v->mlp.dw_type
           : result == DW2 ? v->mlp.dw_type
                           : QUERN_F32;
}

static void compare(struct judge *v, int result, int64_t at, int64_t count,
                    const double *want, double least)
{
    for (int64_t i = 0; i < count && v->got[result]; i++) {
        const double got = (double)qn_element_load(
            v->got[result], type_of(v, result), (size_t)(at + i));

        v->gap[result] += (want[i] - got) * (want[i] - got);
        v->sum[result] += fmax(want[i] * want[i] + got * got, least);
    }
    v->rows[result] += v->got[result] != NULL;
    v->values[result] += v->got[result] ? count : 0;
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
        compare(v, DPROB, pair, 1, &dprob, 2 * terms);
    }
    if (row >= 0) {
        compare(v, Y, row * hidden, hidden, y, 0);
        compare(v, DX, row * hidden, hidden, dx, 0);
    }
}

/* ------------------------------------------------------------------ groups */

/* The lines of a gradient: of weights some of them, of biases one. */
struct lines {
    int result;
    int64_t count, all, columns;
    double *sums;
};

static int64_t line_at(const struct lines *l, int64_t i)
{
    return l->all <= l->count ? i : i * (l->all - 1) / (l->count - 1);
}

static int begin_lines(const struct judge *v, int result, struct lines *l)
{
    const int64_t all[] = {v->r.operands, v->mlp.hidden, 1, 1},
                  columns[] = {v->mlp.hidden, v->mlp.ffn, v->r.operands,
                               v->mlp.hidden};

    l->result = result;
    l->all = all[result - DW1];
    l->columns = columns[result - DW1];
    l->count = l->all < LINES ? l->all : LINES;
    l->sums = calloc((size_t)(l->count * l->columns), sizeof *l->sums);
    return l->sums ? QUERN_OK : qn_error_memory();
}

/* The values before, or nothing. */
static void add_before(const struct judge *v, const struct lines *l, int group)
{
    const void *old = v->j->call.host[results[l->result].arg];

    for (int64_t i = 0; i < l->count && old; i++)
        for (int64_t k = 0; k < l->columns; k++)
            l->sums[i * l->columns + k] = (double)qn_element_load(
                old, type_of(v, l->result),
                (size_t)((group * l->all + line_at(l, i)) * l->columns + k));
}

static void add_pair(const struct judge *v, const struct lines *l)
{
    const struct qn_layer_reference *r = &v->r;
    const double *left = l->result == DW1 ? r->dpre : r->dy;
    const double *right = l->result == DW1   ? r->x
                          : l->result == DW2 ? r->h
                          : l->result == DB1 ? r->dpre
                                             : r->dy;
    const double factor =
        l->result == DB2 && v->in.probability ? (double)v->factor : 1;

    for (int64_t i = 0; i < l->count; i++)
        for (int64_t k = 0; k < l->columns; k++)
            l->sums[i * l->columns + k] +=
                (l->result <= DW2 ? left[line_at(l, i)] : factor) * right[k];
}

static int judge_group(struct judge *v, int group)
{
    const int64_t pairs = v->j->call.args.rows * v->j->moe.topk;
    struct lines lines[RESULTS - DW1];
    const int count = v->mlp.bias ? 4 : 2;
    int code = QUERN_OK;

    memset(lines, 0, sizeof lines);
    for (int i = 0; i < count && !code; i++) {
        code = begin_lines(v, DW1 + i, &lines[i]);
        if (!code)
            add_before(v, &lines[i], group);
    }
    for (int64_t pair = 0; pair < pairs && !code; pair++) {
        if (qn_moe_job_group(v->j, pair) != group)
            continue;
        compute(v, pair, group);
        for (int i = 0; i < count; i++)
            add_pair(v, &lines[i]);
    }
    for (int i = 0; i < count; i++) {
        const struct lines *l = &lines[i];

        for (int64_t line = 0; line < l->count && !code; line++)
            compare(v, l->result,
                    (group * l->all + line_at(l, line)) * l->columns,
                    l->columns, l->sums + line * l->columns, 0);
        free(l->sums);
    }
    return code;
}

/* The smallest group that is not done yet; -1: none is left. */
static int next_group(const struct judge *v, const int64_t *sizes,
                      const char *done)
{
    int best = -1;

    for (int i = 0; i < v->mlp.groups; i++)
        if (!done[i] && (best < 0 || sizes[i] < sizes[best]))
            best = i;
    return best;
}

static int judge_groups(struct judge *v, int64_t most)
{
    int64_t sizes[QUERN_MAX_GROUPS], rows = 0;
    char done[QUERN_MAX_GROUPS] = {0};
    int group, code = QUERN_OK;

    qn_moe_job_sizes(v->j, sizes);
    while (!code && (group = next_group(v, sizes, done)) >= 0) {
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
    for (int i = 0; i < RESULTS && !code; i++) {
        const struct qn_memory *m = &v->j->call.memory[results[i].arg];

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
    for (int i = Y; i <= DX && right; i++)
        for (size_t k = 0; k < v->j->call.memory[results[i].arg].bytes; k++)
            right &= written[k / row] || is_poison(v, i, k);
    free(written);
    return right;
}

/* Results of tokens that the run had not are poison. */
static int look_outside(const struct judge *v)
{
    if (v->j->moe.scatter && !look_between(v))
        return 0;
    for (int i = Y; i <= DPROB; i++) {
        const size_t bytes = v->j->call.memory[results[i].arg].bytes,
                     each = i == DPROB ? (size_t)v->j->moe.topk * sizeof(float)
                                       : (size_t)v->mlp.hidden * element(v);

        if (v->j->moe.scatter && i <= DX)
            continue;
        for (size_t k = (size_t)v->j->call.args.rows * each; k < bytes; k++)
            if (!is_poison(v, i, k))
                return 0;
    }
    return 1;
}

static int look_at_guards(const struct judge *v, int *guards)
{
    int code = QUERN_OK;

    *guards = 1;
    for (int i = 0; i < QUERN_ARGS_COUNT && !code; i++) {
        int intact = 1;

        if (v->j->call.memory[i].base)
            code = qn_memory_guards(&v->j->call.memory[i], &intact);
        *guards &= intact;
    }
    return code;
}

static void conclude(const struct judge *v, double losses,
                     struct qn_layer_verdict *out)
{
    const double few = losses * qn_layer_reference_tolerance(
                                    v->j->recipe, &v->mlp,
                                    fmin((double)v->pairs, (double)v->rows[Y]) *
                                        (double)v->mlp.ffn);
    int count = 0, right = out->guards && out->untouched;

    out->tolerance =
        losses * qn_layer_reference_tolerance(v->j->recipe, &v->mlp, HUGE_VAL);
    for (int i = 0; i < RESULTS; i++) {
        double error = v->gap[i] / v->sum[i];

        if (!v->rows[i])
            continue;
        if (v->sum[i] >= 0 && v->sum[i] <= 0) /* all zero, as it should be */
            error = 0;
        out->results[count].name = results[i].name;
        out->results[count].rows = v->rows[i];
        out->results[count].tolerance = qn_layer_widen(
            i == DPROB ? v->pairs : v->values[i], v->pairs,
            fmin((double)v->mlp.ffn, (double)v->mlp.hidden), few);
        right &= error <= out->results[count].tolerance;
        out->results[count++].error = error;
        if (!(error <= out->error))
            out->error = error;
    }
    out->passed = right;
}

static void judge_tokens(struct judge *v, int64_t most)
{
    const int64_t tokens = v->j->call.args.rows;
    const int64_t step = tokens > most ? tokens / most : 1;

    for (int64_t token = 0; token < tokens; token += step)
        judge_token(v, token);
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
        code = look_at_guards(&v, &out->guards);
    }
    if (!code)
        conclude(&v, losses, out);
    for (int i = 0; i < RESULTS; i++)
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
    for (int i = 0; i < RESULTS && !code && !*where; i++) {
        const struct qn_memory *x = &a->call.memory[results[i].arg];
        int same = 1;

        if (x->bytes)
            code = qn_memory_same(x, &b->call.memory[results[i].arg], &same);
        if (!same)
            *where = results[i].name;
    }
    return code;
}
