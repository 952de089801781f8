/* SPDX-License-Identifier: Apache-2.0 */
/*
** workspace.c: the bytes of workspace that a problem needs.
*/
#include "problem/workspace.h"
#include "base/context.h"
#include "problem/ahead_rules.h"
#include "problem/fuse_rules.h"
#include "problem/gradient_rules.h"
#include "problem/result_rules.h"

static size_t result_end(struct quern_context *ctx,
                         const struct quern_problem *p,
                         const struct qn_recipe *recipe)
{
    struct quern_problem product, ahead;
    struct qn_result_space space;
    size_t bytes;

    qn_result_product(p, &product);
    space.cast = qn_workspace_bytes(ctx, &product, recipe);
    if (qn_result_ahead(ctx, &product, recipe, &ahead)) {
        bytes = qn_workspace_bytes(ctx, &ahead, recipe);
        if (bytes > space.cast)
            space.cast = bytes;
    }
    qn_result_lay_out(p, recipe, &space);
    return space.end;
}

size_t qn_workspace_bytes(struct quern_context *ctx,
                          const struct quern_problem *p,
                          const struct qn_recipe *recipe)
{
    size_t ahead;

    if (p->copies)
        return result_end(ctx, p, recipe);
    if (p->quantize)
        return qn_fuse_end(p, recipe);
    ahead = qn_ahead_end(ctx, p, recipe);
    return ahead ? ahead : qn_gradient_end(p);
}
