/* SPDX-License-Identifier: Apache-2.0 */
/* workspace.c: the bytes of workspace that a problem needs. */
#include "problem/problem.h"
#include "base/context.h"
#include "problem/dequantize_rules.h"
#include "problem/fuse_rules.h"
#include "problem/gradient_rules.h"

size_t qn_workspace_bytes(struct quern_context *ctx, const struct qn_problem *p,
                          const struct qn_recipe *recipe)
{
    const size_t end = qn_dequantize_end(ctx, p, recipe);
    struct qn_fuse_space fuse;

    if (!p->quantize)
        return end ? end : qn_gradient_end(p);
    qn_fuse_lay_out(p, recipe, &fuse); /* in the same bytes, before that */
    return end > fuse.end ? end : fuse.end;
}
