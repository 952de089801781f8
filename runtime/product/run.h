/* SPDX-License-Identifier: Apache-2.0 */
/* run.h: launches of checked arguments. */
#pragma once

#include "internal.h"

struct qn_plan;

/* Run the plan with arguments that were checked, in the order of its list. The
   plan fits them. Neither allocates nor synchronizes. QUERN_ECUDA,
   QUERN_ECAPTURE. */
int qn_run_checked(const struct qn_plan *plan, const struct qn_args *args,
                   void *stream);

/* One launch of up to plan->parts products for the same matrices: the first as
   the plan says, the others added. All arguments have been checked against
   plans that differ from this one only in beta and total. */
int qn_run_merged(const struct qn_plan *plan, const struct qn_args *const *args,
                  int count, void *stream);
