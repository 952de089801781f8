/* SPDX-License-Identifier: Apache-2.0 */
/* job.h: a problem with data, ready to run: shared by run, bench and demo. */
#pragma once

#include "oracle/call.h"
#include "problem/geometry.h"
#include "product/plan.h"

/* All zero is a job that was not begun; qn_call_free(&job->call) takes any. */
struct qn_job {
    struct qn_call call;
    struct qn_problem problem;
    const struct qn_recipe *recipe;
    uint64_t seed;
    int64_t sizes[QUERN_MAX_GROUPS];  /* along the ragged axis; without one,
                                        along m */
    int64_t starts[QUERN_MAX_GROUPS]; /* and where the groups begin */
    int64_t rows;                     /* sum of the sizes */
    struct qn_geometry operands[QN_ROLES];
    struct {
        uint64_t seed;
        float scale;
    } made[2]; /* of the values that a scaled A and B were quantized from */
    float factors[2][QUERN_MAX_GROUPS]; /* alphas, betas: one of each a group */
};

/* Draw or read the group sizes, plan, and fill the operands with random data
   of `seed`. `sizes` (NULL: as the problem's split says) are G lengths. An
   exit status, after printing the error. */
int qn_job_begin(struct qn_job *, const struct qn_options *,
                 struct quern_context *, const struct qn_problem *,
                 const int64_t *sizes);

/* The problem of `job`, with its sizes and operands, by the backend
   `opt->against`; D and workspace are its own. `job` must live longer. */
int qn_job_beside(struct qn_job *, const struct qn_job *job,
                  const struct qn_options *opt);

/* The operand of a role: enum quern_arg. Its scale factors, and those of the
   second level, follow it. */
int qn_job_arg(int role);

/* The library's own plan, for figures that quern.h does not tell. */
const struct qn_plan *qn_job_plan(const struct qn_job *);

/* One run and its check on a D as it was before any, if D is added to;
   nothing if the last run left the same as any run. */
int qn_job_fresh(struct qn_job *);

/* The length of an axis (enum quern_axis) in a group. */
int64_t qn_job_length(const struct qn_job *, int axis, int group);

/* Columns of D or P inside a group. */
int64_t qn_job_columns(const struct qn_job *, int role, int group);

/* The row of A that is a group's, of a product that gathers. */
int64_t qn_job_token(const struct qn_job *, int group, int64_t row);

/* The row of D that has a row of all groups, of a product that scatters; -1:
   none. */
int64_t qn_job_place(const struct qn_job *, int64_t row);

/* The element of a group in an operand's buffer, -1 if it has no row there:
   (m, k) of A, (n, k) of B, (m, n) of C, D and P, counted inside the group. */
int64_t qn_job_element(const struct qn_job *, int role, int group, int64_t x,
                       int64_t y);

/* Read bytes of D or P after a run, counted from `start` as if rows had no gaps
   between them. Codes of the library. */
int qn_job_read(const struct qn_job *, int role, size_t start, void *to,
                size_t bytes);

/* Is A or B a quantized tensor? */
int qn_job_scaled(const struct qn_job *);

/* Run `count` jobs, at most QN_JOB_MOST of them, `runs` times each (0: as many
   as fit into about a second): a few launches of one and then of the next, so
   that clock and heat are the same for all. */
enum { QN_JOB_MOST = 2 };
int qn_job_compare(struct qn_job *const *, int count, int runs,
                   struct qn_job_time *);

/* Useful arithmetic, and the bytes that must be moved at least, once each. */
double qn_job_flops(const struct qn_job *);
double qn_job_bytes(const struct qn_job *);
