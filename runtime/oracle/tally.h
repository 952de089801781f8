/* SPDX-License-Identifier: Apache-2.0 */
/*
** tally.h: how far results of a grouped MLP, or of a layer from unpermuted
** tokens, are from the reference in double.
*/
#ifndef QN_TALLY_H
#define QN_TALLY_H

#include "oracle/layer.h"
#include "oracle/layer_reference.h"

enum qn_tally_result {
    QN_TALLY_Y,
    QN_TALLY_DX,
    QN_TALLY_DPROB,
    QN_TALLY_DW1,
    QN_TALLY_DW2,
    QN_TALLY_DB1,
    QN_TALLY_DB2,
    QN_TALLY_RESULTS
};
extern const struct qn_tally_name {
    const char *name;
    int arg;
} qn_tally_names[QN_TALLY_RESULTS];

struct qn_tally {
    double gap[QN_TALLY_RESULTS], sum[QN_TALLY_RESULTS]; /* of squares */
    int64_t rows[QN_TALLY_RESULTS], values[QN_TALLY_RESULTS];
};

int qn_tally_type(const struct qn_mlp *, int result);

/* Compare values of a result from element `at` of `got` on. If terms of both
   signs cancel out, the error is compared with their squares, `least`. */
void qn_tally_add(struct qn_tally *, const struct qn_mlp *, int result,
                  const void *got, int64_t at, int64_t count,
                  const double *want, double least);

/* Lines of one group's gradient, of weights at most `count` of them, of biases
   the only one: sums over its tokens. */
struct qn_tally_lines {
    int result;
    int64_t count, all, columns;
    double *sums; /* [count, columns] */
};

/* Begin with the values of `before`, of all groups, or zeros if it is NULL.
   Allocates sums: QUERN_ENOMEM. */
int qn_tally_begin(struct qn_tally_lines *, const struct qn_layer_reference *,
                   int result, int64_t most, const void *before, int group);

/* Add the token that was computed last, which is in row `row`. */
void qn_tally_token(const struct qn_tally_lines *,
                    const struct qn_layer_reference *, int64_t row);

/* The element of the gradient where the group's i-th line begins. */
int64_t qn_tally_line(const struct qn_tally_lines *, int group, int64_t i);

/* The smallest group that is not done yet; -1: none is left. */
int qn_tally_next(const int64_t *sizes, const char *done, int groups);

/* The verdict on `tokens` that were computed, but for guards and untouched,
   which are read. `losses`: the casts', as a factor of the bound. A NaN makes
   the error NaN, which passes nothing. */
void qn_tally_conclude(const struct qn_tally *, const struct qn_recipe *,
                       const struct qn_mlp *, double losses, int64_t tokens,
                       struct qn_layer_verdict *);

#endif
