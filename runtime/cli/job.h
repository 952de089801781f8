/*
** job.h: a problem with data, ready to run: what run, bench and demo share.
*/
#ifndef QN_JOB_H
#define QN_JOB_H

#include "cli.h"
#include "gpu.h"
#include "memory.h"

/* All zero is a job that was not begun; qn_job_free takes any. */
struct qn_job {
    struct quern_context *ctx; /* the caller's */
    struct quern_problem problem;
    struct quern_description need;
    struct quern_plan *plan;
    struct quern_plan_info info;
    struct qn_gpu *gpu; /* NULL: the host backend */
    int64_t sizes[QUERN_MAX_GROUPS];
    int64_t rows; /* sum of the sizes */
    void *a, *b;  /* host copies of the operands */
    struct qn_memory a_memory, b_memory, d_memory, sizes_memory, workspace;
    struct quern_args args;
};

/*
** Draw or read the group sizes, plan, and fill the operands with random data
** of `seed`. `sizes` (NULL: as the problem's split says) are G lengths. An
** exit status, after printing what was wrong.
*/
int qn_job_begin(struct qn_job *, const struct qn_options *,
                 struct quern_context *, const struct quern_problem *,
                 const int64_t *sizes);
void qn_job_free(struct qn_job *);

/* quern_run; then wait, and quern_check. Codes of the library. */
int qn_job_run(struct qn_job *);
int qn_job_check(struct qn_job *);

/* How long it takes. */
struct qn_job_time {
    double seconds; /* median of one launch */
    double least;
    int runs;
    int sm_clock; /* MHz while it ran; 0: unknown */
};

/* Run `runs` times (0: as many as fit into about a second). */
int qn_job_measure(struct qn_job *, int runs, struct qn_job_time *);

/* Useful arithmetic, and the bytes that must be moved at least, once each. */
double qn_job_flops(const struct qn_job *);
double qn_job_bytes(const struct qn_job *);

#endif
