/* SPDX-License-Identifier: Apache-2.0 */
/*
** describe.h: qn_problem_describe for the runtime's own use.
*/
#ifndef QUERN_PROBLEM_DESCRIBE_H
#define QUERN_PROBLEM_DESCRIBE_H

#include "internal.h"

struct quern_context;

/* All but the workspace; and the recipe, if `recipe` is not NULL. QUERN_EINVAL.
   */
int qn_describe_operands(struct quern_context *ctx,
                         const struct qn_problem *problem,
                         struct qn_description *description,
                         const struct qn_recipe **recipe);

#endif
