/* SPDX-License-Identifier: Apache-2.0 */
/*
** mlp_needs.c: the requirements of a grouped MLP.
*/
#include "problem/mlp.h"
#include "problem/problem.h"
#include "problem/host_sizes_rules.h"
#include "problem/quantize.h"

#include <string.h>

/* The requirements of the casts. */
static int find_cast_scratch(struct quern_context *ctx,
                             const struct qn_mlp *mlp,
                             const struct qn_recipe *recipe, size_t *scratch)
{
    int code = QUERN_OK;

    for (int t = 0; t < QN_MLP_CASTS && !code; t++) {
        struct qn_quantize_description need;
        struct qn_quantization q;

        if (!qn_mlp_cast(ctx, mlp, recipe, t, &q))
            continue;
        code = qn_quantize_describe(ctx, &q, &need, NULL, NULL);
        if (!code && need.workspace_bytes > *scratch)
            *scratch = need.workspace_bytes;
    }
    return code;
}

static void add_scratch(struct quern_context *ctx, const struct qn_problem *p,
                        const struct qn_recipe *recipe, size_t *scratch)
{
    const size_t bytes = qn_workspace_bytes(ctx, p, recipe);

    if (bytes > *scratch)
        *scratch = bytes;
}

/* Further needs of products with a dequantize pass. qn_mlp_check was there, of
   each product but the last: products have kernels that fuse their epilogues,
   or none. */
static int find_scratch(struct quern_context *ctx, const struct qn_mlp *mlp,
                        const struct qn_recipe *recipe, size_t *scratch)
{
    const int end = mlp->forward_only ? QN_MLP_DH : QN_MLP_LAUNCHES;
    const struct qn_recipe *of;
    struct qn_problem p;
    int code = QUERN_OK;

    for (int product = QN_MLP_PRE; product < end; product++) {
        of = qn_mlp_product(ctx, mlp, recipe, product, &p);
        add_scratch(ctx, &p, of, scratch);
    }
    if (mlp->forward_only || !qn_mlp_back(ctx, mlp, recipe, &p))
        return QUERN_OK;
    if (p.copies) /* in one launch, or none of this */
        p.dequantize = QUERN_DEQUANTIZE_MAINLOOP;
    p.copies = 0;
    code = qn_problem_check(ctx, &p, &of);
    if (!code)
        add_scratch(ctx, &p, of, scratch);
    return code;
}

int qn_mlp_describe(struct quern_context *ctx, const struct qn_mlp *mlp,
                    struct qn_mlp_description *d, struct qn_mlp_space *out,
                    const struct qn_recipe **recipe_out)
{
    struct qn_mlp_space space = {.scratch = QN_WORKSPACE_BYTES};
    const struct qn_recipe *recipe;
    int code = qn_mlp_check(ctx, mlp, &recipe);

    if (code)
        return code;
    qn_space_add(&space.scratch,
                 qn_host_size_bytes(mlp->sizes, mlp->groups, 1));
    code = find_cast_scratch(ctx, mlp, recipe, &space.scratch);
    if (!code)
        code = find_scratch(ctx, mlp, recipe, &space.scratch);
    if (code)
        return code;
    memset(d, 0, sizeof *d);
    qn_mlp_space_fill(ctx, mlp, recipe, &d->args, &space);
    d->saved_bytes = space.saved;
    d->pending_bytes = space.pending;
    d->workspace_bytes = space.workspace;
    for (int of = 0; of < QN_TENSORS - mlp->forward_only; of++) {
        const struct qn_scaling *s = &recipe->scaling[of];

        d->random |= s->stochastic;
        if (s->history > d->history)
            d->history = s->history;
    }
    if (out)
        *out = space;
    if (recipe_out)
        *recipe_out = recipe;
    return code;
}

int qn_mlp_needs(struct quern_context *ctx, const struct qn_mlp *mlp,
                 struct qn_mlp_description *description)
{
    return qn_mlp_describe(ctx, mlp, description, NULL, NULL);
}
