/* SPDX-License-Identifier: Apache-2.0 */
/* tally.c: results of layers next to the reference. */
#include "oracle/tally.h"

#include "base/element.h"
#include "base/error.h"

#include <math.h>
#include <stdlib.h>

const struct qn_tally_name qn_tally_names[QN_TALLY_RESULTS] = {
    {"y", QUERN_ARG_Y},     {"dx", QUERN_ARG_DX},   {"dprob", QUERN_ARG_DPROB},
    {"dw1", QUERN_ARG_DW1}, {"dw2", QUERN_ARG_DW2}, {"db1", QUERN_ARG_DB1},
    {"db2", QUERN_ARG_DB2},
};

int qn_tally_type(const struct qn_mlp *mlp, int result)
{
    return result <= QN_TALLY_DX                              ? mlp->type
           : result == QN_TALLY_DW1 || result == QN_TALLY_DW2 ? mlp->dw_type
                                                              : QUERN_F32;
}

void qn_tally_add(struct qn_tally *t, const struct qn_mlp *mlp, int result,
                  const void *data, int64_t at, int64_t count,
                  const double *want, double least)
{
    const int type = qn_tally_type(mlp, result);

    for (int64_t i = 0; i < count; i++) {
        const double got =
            (double)qn_element_load(data, type, (size_t)(at + i));

        t->gap[result] += (want[i] - got) * (want[i] - got);
        t->sum[result] += fmax(want[i] * want[i] + got * got, least);
    }
    t->rows[result]++;
    t->values[result] += count;
}

/* --------------------------------------------------------------- gradients */

/* The i-th checked line. */
static int64_t line_at(const struct qn_tally_lines *l, int64_t i)
{
    return l->all <= l->count ? i : i * (l->all - 1) / (l->count - 1);
}

int64_t qn_tally_line(const struct qn_tally_lines *l, int group, int64_t i)
{
    return (group * l->all + line_at(l, i)) * l->columns;
}

int qn_tally_begin(struct qn_tally_lines *l, const struct qn_layer_reference *r,
                   int result, int64_t most, const void *before, int group)
{
    const int64_t all[] = {r->operands, r->hidden, 1, 1},
                  columns[] = {r->hidden, r->ffn, r->operands, r->hidden};
    const int type = qn_tally_type(r->in->mlp, result);

    l->result = result;
    l->all = all[result - QN_TALLY_DW1];
    l->columns = columns[result - QN_TALLY_DW1];
    l->count = l->all < most ? l->all : most;
    l->sums = calloc((size_t)(l->count * l->columns), sizeof *l->sums);
    if (!l->sums)
        return qn_error_memory();
    for (int64_t i = 0; i < l->count && before; i++)
        for (int64_t k = 0; k < l->columns; k++)
            l->sums[i * l->columns + k] = (double)qn_element_load(
                before, type, (size_t)(qn_tally_line(l, group, i) + k));
    return QUERN_OK;
}

void qn_tally_token(const struct qn_tally_lines *l,
                    const struct qn_layer_reference *r, int64_t row)
{
    const double *left = l->result == QN_TALLY_DW1 ? r->dpre : r->dy;
    const double *right = l->result == QN_TALLY_DW1   ? r->x
                          : l->result == QN_TALLY_DW2 ? r->h
                          : l->result == QN_TALLY_DB1 ? r->dpre
                                                      : r->dy;
    const float *p = l->result == QN_TALLY_DB2 ? r->in->probability : NULL;
    const double factor = p ? (double)p[row] : 1;

    for (int64_t i = 0; i < l->count; i++)
        for (int64_t k = 0; k < l->columns; k++)
            l->sums[i * l->columns + k] +=
                (l->result <= QN_TALLY_DW2 ? left[line_at(l, i)] : factor) *
                right[k];
}

int qn_tally_next(const int64_t *sizes, const char *done, int groups)
{
    int best = -1;

    for (int i = 0; i < groups; i++)
        if (!done[i] && (best < 0 || sizes[i] < sizes[best]))
            best = i;
    return best;
}

/* ----------------------------------------------------------------- verdict */

/* A tolerance is a mean over many values: one of a few, or the sums of a few,
   may be off by all that its rounding, and cancellation, allow; a handful
   says little but its direction. These are `values` that were computed of
   `tokens` with `width` numbers each. */
static double widen(int64_t values, int64_t tokens, double width,
                    double tolerance)
{
    enum { FEW = 256, HANDFUL = 16 };
    const double count =
        fmin((double)values, (double)(tokens > 0 ? tokens : 1) * width);
    const double most = count < HANDFUL ? 1 : 0.5;

    return fmax(tolerance, fmin(tolerance * (1 + FEW / fmax(1, count)), most));
}

void qn_tally_conclude(const struct qn_tally *t, const struct qn_recipe *recipe,
                       const struct qn_mlp *mlp, double losses, int64_t tokens,
                       struct qn_layer_verdict *v)
{
    const double rows = fmin((double)tokens, (double)t->rows[QN_TALLY_Y]);
    const double few = losses * qn_layer_reference_tolerance(
                                    recipe, mlp, rows * (double)mlp->ffn);
    int count = 0, right = v->guards && v->untouched;

    v->tolerance = losses * qn_layer_reference_tolerance(recipe, mlp, HUGE_VAL);
    for (int i = 0; i < QN_TALLY_RESULTS; i++) {
        double error = t->gap[i] / t->sum[i];

        if (!t->rows[i])
            continue;
        if (t->sum[i] >= 0 && t->sum[i] <= 0) /* all zero, as it should be */
            error = 0;
        v->results[count].name = qn_tally_names[i].name;
        v->results[count].rows = t->rows[i];
        v->results[count].tolerance =
            widen(t->values[i], tokens,
                  fmin((double)mlp->ffn, (double)mlp->hidden), few);
        right &= error <= v->results[count].tolerance;
        v->results[count++].error = error;
        if (!(error <= v->error))
            v->error = error;
    }
    v->passed = right;
}
