/* SPDX-License-Identifier: Apache-2.0 */
/* describe_all.h: qn_problem_describe for the runtime's own use. */
#pragma once

#include "internal.h"

struct quern_context;

/* Also returns the recipe, if `recipe` is not NULL. QUERN_EINVAL. */
int qn_describe(struct quern_context *ctx, const struct qn_problem *problem,
                struct qn_description *description,
                const struct qn_recipe **recipe);
