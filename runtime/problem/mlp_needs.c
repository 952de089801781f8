/* SPDX-License-Identifier: Apache-2.0 */
/*
** mlp_needs.c: the requirements of a grouped MLP.
*/
#include "problem/mlp.h"
#include "problem/problem.h"
#include "base/error.h"
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

/* Products have kernels that fuse their epilogues, or none. */
static int add_scratch(struct quern_context *ctx, const struct qn_problem *p,
                       size_t *scratch)
{
    struct qn_description need;
    const struct qn_recipe *recipe;
    int code = qn_describe_operands(ctx, p, &need, &recipe);
    const size_t bytes = code ? 0 : qn_workspace_bytes(ctx, p, recipe);

    if (bytes > *scratch)
        *scratch = bytes;
    return code;
}

/* Further needs of products with a dequantize pass. */
static int find_scratch(struct quern_context *ctx, const struct qn_mlp *mlp,
                        const struct qn_recipe *recipe, size_t *scratch)
{
    struct qn_problem p;
    int code = QUERN_OK;

    const int end = mlp->forward_only ? QN_MLP_DH : QN_MLP_LAUNCHES;

    for (int product = QN_MLP_PRE; product < end && !code; product++) {
        qn_mlp_product(mlp, recipe, product, &p);
        code = add_scratch(ctx, &p, scratch);
    }
    if (!code && !mlp->forward_only && qn_mlp_back(mlp, recipe, &p)) {
        if (p.copies) /* in one launch, or none of this */
            p.dequantize = QUERN_DEQUANTIZE_MAINLOOP;
        p.copies = 0;
        code = add_scratch(ctx, &p, scratch);
    }
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
    if (!ctx || !mlp || !description)
        return qn_error_null("ctx", ctx, "mlp", mlp, "description");
    return qn_mlp_describe(ctx, mlp, description, NULL, NULL);
}
