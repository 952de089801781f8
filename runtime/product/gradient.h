/* SPDX-License-Identifier: Apache-2.0 */
/*
** gradient.h: the launches after a dgrad that goes back through an activation.
*/
#ifndef QUERN_PRODUCT_GRADIENT_H
#define QUERN_PRODUCT_GRADIENT_H

#include "quern.h"

struct qn_session;
struct qn_values;
struct quern_plan;

/* Load the kernels of the launches behind the product, if there are any, for
   the plan's backend. */
int qn_gradient_plan(struct quern_plan *plan, struct qn_session *session);
void qn_gradient_plan_free(struct quern_plan *plan);

/* What the kernels find in the plan's values. */
void qn_gradient_set(const struct quern_plan *plan,
                     const struct quern_args *args, struct qn_values *values);

/* Queue the launches behind the product, in the plan's context; the host runs
   them at once. QUERN_ECUDA. */
int qn_gradient_run(const struct quern_plan *plan,
                    const struct qn_values *values, void *stream);

#endif
