/*
** describe.h: quern_describe for the runtime's own use.
*/
#ifndef QUERN_DESCRIBE_H
#define QUERN_DESCRIBE_H

#include "problem.h"

/* Of every operand and of the workspace, in bytes: what copies by TMA need. */
#define QN_ALIGNMENT 16

/* Also returns the recipe, if `recipe` is not NULL. QUERN_EINVAL. */
int qn_describe(struct quern_context *ctx, const struct quern_problem *problem,
                struct quern_description *description,
                const struct qn_recipe **recipe);

#endif
