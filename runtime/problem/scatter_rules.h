/* SPDX-License-Identifier: Apache-2.0 */
/* scatter_rules.h: rules on products that write rows anywhere. */
#pragma once

#include "internal.h"

/* May the product have scatter=1? */
int qn_scatter_serves(const struct qn_problem *problem,
                      const struct qn_recipe *recipe);

/* QUERN_EINVAL names key and rule. */
int qn_scatter_problem(const struct qn_problem *problem,
                       const struct qn_recipe *recipe);
