/* SPDX-License-Identifier: Apache-2.0 */
/*
** layer.h: a grouped MLP with data, ready to run: as job.h for products.
*/
#ifndef QN_LAYER_H
#define QN_LAYER_H

#include "oracle/call.h"

/* All zero is one that was not begun; qn_call_free(&l->call) takes any. */
struct qn_layer {
    struct qn_call call;
    const struct qn_recipe *recipe;
    struct qn_mlp mlp;
    uint64_t seed;
    int64_t sizes[QUERN_MAX_GROUPS];
    int64_t starts[QUERN_MAX_GROUPS];
    int64_t rows;  /* of all groups */
    int64_t pitch; /* elements from row to row: x, y, dy, dx */
};

/*
** Draw group sizes (or take `sizes`) and random data, plan for the backend,
** make buffers; between rows of x, y, dy and dx are `gap` elements of poison.
** An exit status, after printing the error.
*/
int qn_layer_begin(struct qn_layer *, const struct qn_options *,
                   struct quern_context *, const struct qn_mlp *, int backend,
                   const int64_t *sizes, int64_t gap);

/* An operand of a layer in fp32: probabilities, some of which are 0, or what
   delayed scaling has. */
void qn_layer_floats(const struct qn_recipe *, const struct qn_mlp *, int arg,
                     uint64_t seed, float *to, size_t count);

/* Products of all phases, of so many rows of all groups. */
double qn_layer_flops(const struct qn_mlp *, int64_t rows);

struct qn_layer_verdict {
    struct {
        const char *name; /* of a result; NULL: no more */
        double error;     /* 1 - 2 xy / (xx + yy); 0 without values */
        double tolerance; /* of it: more where few values were compared */
        int64_t rows;     /* compared */
    } results[8];
    double error; /* the largest */
    double tolerance;
    int guards;    /* nothing was written around any buffer */
    int untouched; /* nor rows outside every group, nor gaps between rows */
    int passed;
};

/*
** Compare the results of a run with a chain in double: y, dx and dprob of the
** first and last token of each group, at most `most` of them, dw1, dw2, db1 and
** db2 of the smallest groups that have at most `most` tokens together. Codes of
** the library.
*/
int qn_layer_judge(struct qn_layer *, int64_t most, struct qn_layer_verdict *);

/* Factor of the tolerance for what the recipe's casts lose. QUERN_EINVAL: they
   cut values. */
int qn_layer_losses(struct quern_context *ctx, const struct qn_recipe *recipe,
                    const struct qn_mlp *mlp, double *losses);

/* Results of two layers that are not the same, byte by byte without the gaps
   between rows: the first one's name, NULL if all are. Codes of the library. */
int qn_layer_compare(const struct qn_layer *, const struct qn_layer *,
                     const char **where);

#endif
