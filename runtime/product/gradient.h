/* SPDX-License-Identifier: Apache-2.0 */
/*
** gradient.h: the launches after a dgrad that goes back through an activation.
*/
#ifndef QUERN_PRODUCT_GRADIENT_H
#define QUERN_PRODUCT_GRADIENT_H

#include "internal.h"

struct qn_frame;
struct qn_launch;
struct qn_session;
struct qn_values;
struct qn_plan;

/* Append the sums that follow the product, if there are any, with kernels of
   the plan's backend. */
int qn_gradient_plan(struct qn_plan *plan, struct qn_session *session);

/* Parameters that the kernels read from the plan's values. */
void qn_gradient_set(const struct qn_problem *problem,
                     const struct qn_args *args, struct qn_values *values);

/* Launch one of the sums, in the plan's context; the host runs it at once.
   QUERN_ECUDA. */
int qn_gradient_sum(struct qn_frame *frame, const struct qn_launch *launch);

#endif
