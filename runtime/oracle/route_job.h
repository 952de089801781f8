/* SPDX-License-Identifier: Apache-2.0 */
/*
** route_job.h: a line about routes with data, ready to run through quern.h: as
** cast.h for quantizations.
*/
#ifndef QN_ROUTE_JOB_H
#define QN_ROUTE_JOB_H

#include "oracle/call.h"
#include "problem/route.h"

/* All zero is one that was not begun; qn_call_free(&j->call) takes any. */
struct qn_route_job {
    struct qn_call call;
    struct qn_route route;
    uint64_t seed;
    int64_t rows; /* pairs that have a row */
};

/* Draw experts, or rows of pairs, of which one in eight has none; and values;
   plan, make buffers. An exit status, after printing the error. */
int qn_route_job_begin(struct qn_route_job *, const struct qn_options *,
                       struct quern_context *, const struct qn_route *,
                       int backend);

/* Bytes that must be moved at least, once each. */
double qn_route_job_bytes(const struct qn_route_job *);

/*
** route_judge.c: is the result right? On a GPU bytes are compared with those of
** the host backend; on the host values with an order that is found pair by
** pair, and with sums in the order of choices. `where` names the first
** difference.
*/
struct qn_route_verdict {
    const char *oracle;
    double differ; /* bytes, or values */
    int guards;    /* 1: no byte around a buffer was written */
    char where[96];
};
int qn_route_job_judge(struct qn_route_job *, const struct qn_options *,
                       struct qn_route_verdict *);

#endif
