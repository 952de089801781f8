/* SPDX-License-Identifier: Apache-2.0 */
/*
** outside.h: zeros in rows, or columns, of D and P that belong to no group.
*/
#ifndef QUERN_PRODUCT_OUTSIDE_H
#define QUERN_PRODUCT_OUTSIDE_H

#include "internal.h"

struct qn_frame;
struct qn_launch;
struct qn_plan;
struct qn_session;

/* The plan that `make` makes of the session's problem, which has outside=zero,
   with a launch more for D, and one for P. Errors are those of qn_plan. */
int qn_outside_make(struct qn_session *session,
                    int (*make)(struct qn_session *, struct qn_plan **),
                    struct qn_plan **plan);

/* Write the zeros, in the plan's context. QUERN_ECUDA. */
int qn_outside_run(struct qn_frame *frame, const struct qn_launch *launch);

/* Bytes of D and P: at most so many are zeroed. */
double qn_outside_bytes(const struct qn_problem *problem,
                        const struct qn_recipe *recipe);

#endif
