/* SPDX-License-Identifier: Apache-2.0 */
/*
** gradient_model.h: a dgrad that goes back through an activation, compared with
** a plain product and a cast.
*/
#ifndef QUERN_CHOOSE_GRADIENT_MODEL_H
#define QUERN_CHOOSE_GRADIENT_MODEL_H

#include "internal.h"

struct qn_session;

/* What the model says of it, and of a plain product with a cast behind it. */
struct qn_gradient_figures {
    int served; /* a kernel goes back through the activation */
    int better; /* and takes less time; without a GPU always */
    double
        cycles; /* of that one, and of launches that add sums up; 0: no GPU */
    double product, cast; /* of the plain product, and of the cast's launches */
};

/* Compare both on the session's machine: `plain` is the problem without its
   activation. */
int qn_gradient_compare(const struct qn_session *session,
                        const struct qn_problem *problem,
                        const struct qn_problem *plain,
                        struct qn_gradient_figures *figures);

#endif
