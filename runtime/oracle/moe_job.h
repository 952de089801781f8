/* SPDX-License-Identifier: Apache-2.0 */
/*
** moe_job.h: a layer from unpermuted tokens with data, ready to run through
** quern.h: as layer.h for MLPs.
*/
#ifndef QN_MOE_JOB_H
#define QN_MOE_JOB_H

#include "oracle/layer.h"
#include "problem/moe.h"

/* All zero is one that was not begun; qn_moe_job_free takes any. */
struct qn_moe_job {
    struct qn_call call; /* args.rows: the tokens of a run */
    const struct qn_recipe *recipe;
    struct qn_moe moe;
    uint64_t seed;
    int64_t *index; /* the experts of all pairs */
};

/*
** Draw routes by split (or take [g] rows of experts: `sizes`) and random data,
** plan for the backend, make buffers. A token's experts differ unless one has
** more pairs than there are tokens. An exit status, after printing the error.
*/
int qn_moe_job_begin(struct qn_moe_job *, const struct qn_options *,
                     struct quern_context *, const struct qn_moe *, int backend,
                     const int64_t *sizes);
void qn_moe_job_free(struct qn_moe_job *);

/* Give the indices in job->index to the next run. Codes of the library. */
int qn_moe_job_route(struct qn_moe_job *);

/* Products of all phases. */
double qn_moe_job_flops(const struct qn_moe_job *);

/* Rows of each expert of this rank; returns their sum. */
int64_t qn_moe_job_sizes(const struct qn_moe_job *, int64_t *sizes);

/* The group of a pair; -1: it has no row. */
int qn_moe_job_group(const struct qn_moe_job *, int64_t pair);

/* The row of y and dx that a token has, -1 for none: its own, but with
   scatter=1 another one, or none. */
int64_t qn_moe_job_row(const struct qn_moe_job *, int64_t token);

/* Compare a run with a chain in double: y, dx and dprob of at most `most`
   tokens, gradients of weights and biases of the smallest groups that have at
   most `most` rows together. Codes of the library. */
int qn_moe_job_judge(struct qn_moe_job *, int64_t most,
                     struct qn_layer_verdict *);

/* Results of two jobs that are not the same, byte by byte: the first one's
   name, NULL if all are. Codes of the library. */
int qn_moe_job_compare(const struct qn_moe_job *, const struct qn_moe_job *,
                       const char **where);

#endif
