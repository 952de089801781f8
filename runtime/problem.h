/*
** problem.h: what the parts of the runtime ask of a problem.
*/
#ifndef QUERN_PROBLEM_H
#define QUERN_PROBLEM_H

#include "context.h"
#include "geometry.h"

/* The longest ragged axis: a ragged tensor map counts rows from 2^30. */
#define QN_RAGGED_LIMIT ((int64_t)1 << 30)

/*
** Check each field against the rules and, if `recipe` is not NULL, return the
** recipe. QUERN_EINVAL names the field and the rule.
*/
int qn_problem_check(struct quern_context *ctx,
                     const struct quern_problem *problem,
                     const struct qn_recipe **recipe);

/* Set the message for an unknown recipe, with the known ones; QUERN_EINVAL. */
int qn_problem_no_recipe(struct quern_context *ctx, const char *name);

#endif
