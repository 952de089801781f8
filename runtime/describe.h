/*
** describe.h: quern_describe for the runtime's own use.
*/
#ifndef QUERN_DESCRIBE_H
#define QUERN_DESCRIBE_H

#include "problem.h"

/* Also returns the recipe, if `recipe` is not NULL. QUERN_EINVAL. */
int qn_describe(struct quern_context *ctx, const struct quern_problem *problem,
                struct quern_description *description,
                const struct qn_recipe **recipe);

/* The same without the workspace, which does not follow from fewer rows. */
int qn_describe_operands(struct quern_context *ctx,
                         const struct quern_problem *problem,
                         struct quern_description *description,
                         const struct qn_recipe **recipe);

/* Bytes of a run's workspace, if a kernel fuses the problem's epilogue. */
size_t qn_describe_fused(struct quern_context *ctx,
                         const struct quern_problem *problem,
                         const struct qn_recipe *recipe);

/* Bytes of a run's workspace, whichever way its plan will take. */
size_t qn_describe_workspace(struct quern_context *ctx,
                             const struct quern_problem *problem,
                             const struct qn_recipe *recipe);

#endif
