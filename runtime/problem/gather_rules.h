/* SPDX-License-Identifier: Apache-2.0 */
/* gather_rules.h: rules on products that read rows through indices. */
#pragma once

#include "internal.h"

/* QUERN_EINVAL names key and rule. */
int qn_gather_problem(const struct qn_problem *problem,
                      const struct qn_recipe *recipe);

/* Can rows be gathered with these scales: none, or f32 for each row? */
int qn_gather_scales(const struct qn_scaling *scaling);

/* Or once they are values, dequantized as tokens in order: of blocks of one
   row? */
int qn_gather_values(const struct qn_scaling *scaling);

/* Rows that follow each other among the indices of one row: at least 1. */
int qn_gather_topk(const struct qn_problem *problem);
