/* SPDX-License-Identifier: Apache-2.0 */
/* gradient_rules.h: dgrad that goes back through an activation: the sums that
   it leaves in the workspace. */
#pragma once

#include "internal.h"

/* The end of the workspace of such a problem; for others the end of sizes. */
size_t qn_gradient_end(const struct qn_problem *problem);

/* Bytes of dbias: of D's row for each group, or without an activation
   of a row of the tensor that a run quantizes. */
size_t qn_gradient_dbias(const struct qn_problem *problem);

/* Columns of the pre-activation, as D has. */
int64_t qn_gradient_width(const struct qn_problem *problem);

/* The parts of the workspace, after the part of all products. */
struct qn_gradient_space {
    size_t partials, row_partials, end;
};

void qn_gradient_lay_out(const struct qn_problem *problem,
                         struct qn_gradient_space *space);
