/* SPDX-License-Identifier: Apache-2.0 */
/*
** layer.h: a grouped MLP with data, ready to run: as job.h for products.
*/
#ifndef QN_LAYER_H
#define QN_LAYER_H

#include "oracle/message.h"
#include "oracle/gpu.h"
#include "oracle/job.h"
#include "oracle/memory.h"

/* Buffers of a run. */
enum qn_layer_part {
    QN_LAYER_X,
    QN_LAYER_DY,
    QN_LAYER_W1,
    QN_LAYER_W2,
    QN_LAYER_SIZES,
    QN_LAYER_PROBABILITY,
    QN_LAYER_RANDOM,
    QN_LAYER_B1,
    QN_LAYER_B2,
    QN_LAYER_SCALE, /* from here on they are written, too */
    QN_LAYER_HISTORY,
    QN_LAYER_DW1,
    QN_LAYER_DW2,
    QN_LAYER_DB1,
    QN_LAYER_DB2,
    QN_LAYER_Y,
    QN_LAYER_DX,
    QN_LAYER_DPROB,
    QN_LAYER_COPIES, /* of w1 and w2: data, sf and global of each */
    QN_LAYER_SAVED = QN_LAYER_COPIES + 12,
    QN_LAYER_PENDING,
    QN_LAYER_WORKSPACE,
    QN_LAYER_PARTS
};

/* All zero is one that was not begun; qn_layer_free takes any. */
struct qn_layer {
    struct quern_context *ctx; /* the caller's */
    const struct qn_recipe *recipe;
    struct qn_mlp mlp;
    struct qn_mlp_description need;
    struct qn_mlp_plan *plan;
    struct qn_gpu *gpu; /* NULL: the host backend */
    int64_t sizes[QUERN_MAX_GROUPS];
    int64_t starts[QUERN_MAX_GROUPS];
    int64_t rows;               /* of all groups */
    int64_t pitch;              /* elements from row to row: x, y, dy, dx */
    void *host[QN_LAYER_PARTS]; /* before a run, packed; NULL: poison */
    size_t bytes[QN_LAYER_PARTS];
    struct qn_memory memory[QN_LAYER_PARTS];
    struct qn_memory pointers[QN_LAYER_PARTS]; /* addresses of the matrices */
    struct qn_mlp_args args;
};

/*
** Draw group sizes (or take `sizes`) and random data, plan for the backend,
** make buffers; between rows of x, y, dy and dx are `gap` elements of poison.
** An exit status, after printing the error.
*/
int qn_layer_begin(struct qn_layer *, const struct qn_options *,
                   struct quern_context *, const struct qn_mlp *, int backend,
                   const int64_t *sizes, int64_t gap);
void qn_layer_free(struct qn_layer *);

/* All buffers as before a run. Codes of the library. */
int qn_layer_reset(struct qn_layer *);

/* Weights, forward and backward, once; wait; qn_mlp_run_check. */
int qn_layer_run(struct qn_layer *);

/* How long forward and backward take together; the median of `runs` (0: about
   a second's). */
int qn_layer_measure(struct qn_layer *, int runs, struct qn_job_time *);

/* The same of one run, after the weights and before any other. */
int qn_layer_once(struct qn_layer *, struct qn_job_time *);

/* Products of all phases. */
double qn_layer_flops(const struct qn_layer *);

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

/* A tolerance of the mean over many values, for `values` of them that were
   computed of `tokens` with `width` numbers each. */
double qn_layer_widen(int64_t values, int64_t tokens, double width,
                      double tolerance);

/* Factor of the tolerance for what the recipe's casts lose. QUERN_EINVAL: they
   cut values. */
int qn_layer_losses(struct quern_context *ctx, const struct qn_recipe *recipe,
                    const struct qn_mlp *mlp, double *losses);

/* Results of two layers that are not the same, byte by byte without the gaps
   between rows: the first one's name, NULL if all are. Codes of the library. */
int qn_layer_compare(const struct qn_layer *, const struct qn_layer *,
                     const char **where);

#endif
