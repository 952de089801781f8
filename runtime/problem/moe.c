/* SPDX-License-Identifier: Apache-2.0 */
/*
** moe.c: the rules of a mixture-of-experts layer, as text in both directions,
** and its memory.
*/
#include "problem/moe.h"
#include "base/error.h"
#include "base/types.h"
#include "problem/field.h"
#include "problem/problem.h"

#include <string.h>

/* ------------------------------------------------------------------- parts */

/* May products write tokens of y or dx, each of which is one row? */
static int scatters(const struct qn_moe *moe)
{
    return moe->scatter && moe->topk == 1;
}

void qn_moe_mlp(const struct qn_moe *moe, struct qn_mlp *mlp)
{
    *mlp = moe->mlp;
    mlp->m = moe->mlp.m * moe->topk;
    mlp->probability = moe->mlp.probability == QUERN_WEIGHTS_H;
    mlp->sizes = QUERN_SIZES_DEVICE;
    mlp->outside = QUERN_OUTSIDE_KEEP;
    mlp->x_later = moe->mlp.probability != QUERN_WEIGHTS_X;
    mlp->dy_later = moe->mlp.probability != QUERN_WEIGHTS_Y;
    mlp->tokens = moe->gather;
    mlp->topk = moe->topk;
    mlp->scatter_y = scatters(moe) && moe->mlp.probability != QUERN_WEIGHTS_Y;
    mlp->scatter_dx = scatters(moe) && moe->mlp.probability != QUERN_WEIGHTS_X;
}

void qn_moe_route(const struct qn_moe *moe, int work, struct qn_route *route)
{
    const int maps = work == QUERN_ROUTE;

    *route = (struct qn_route){.work = work,
                               .topk = moe->topk,
                               .m = moe->mlp.m,
                               .index = maps ? moe->index : QUERN_I32,
                               .groups = maps ? moe->mlp.groups : 0,
                               .experts = maps ? moe->experts : 0,
                               .first = maps ? moe->first : 0,
                               .type = maps ? QUERN_BF16 : moe->mlp.type,
                               .k = maps ? 0 : moe->mlp.hidden};
}

int qn_moe_keeps(const struct qn_moe *moe, const struct qn_recipe *recipe,
                 int tensor)
{
    return !moe->mlp.forward_only && !qn_mlp_scaled(recipe, tensor);
}

int qn_moe_gathers(const struct qn_moe *moe, const struct qn_recipe *recipe,
                   int tensor)
{
    const int weights = moe->mlp.probability;

    if (!qn_mlp_scaled(recipe, tensor))
        return 0;
    return tensor == QUERN_MLP_X ? weights != QUERN_WEIGHTS_X
                                 : weights != QUERN_WEIGHTS_Y &&
                                       !moe->mlp.bias && !moe->mlp.forward_only;
}

/* May the product of pre read tokens of x through indices, or that of dh those
   of dy? */
static int gathers_product(const struct qn_moe *moe,
                           const struct qn_recipe *recipe, int tensor)
{
    struct qn_problem p = {.op = tensor == QUERN_MLP_X ? QUERN_FPROP
                                                       : QUERN_DGRAD};
    struct qn_mlp mlp;

    qn_moe_mlp(moe, &mlp);
    mlp.m = mlp.topk; /* runs may have no tokens at all */
    return qn_mlp_gather(&mlp, recipe, &p);
}

int qn_moe_within(const struct qn_recipe *recipe)
{
    for (int of = QN_X; of <= QN_DY; of += QN_DY - QN_X) {
        const struct qn_scaling *s = &recipe->scaling[of];

        if (s->type == QUERN_TYPE_NONE)
            continue;
        if (s->span > QN_SPAN_ROW || s->rows > 1 || s->global ||
            s->stochastic || s->history)
            return 0;
    }
    return 1;
}

/* ------------------------------------------------------------------- rules */

/* All rules. QUERN_EINVAL names field and rule. */
static int check_moe(struct quern_context *ctx, const struct qn_moe *moe,
                     const struct qn_recipe **recipe)
{
    struct qn_route route;
    struct qn_mlp mlp;
    int code = qn_field_check(&qn_line_moe, moe);

    if (!code && moe->gather >= QUERN_TOKENS_X &&
        moe->mlp.probability == QUERN_WEIGHTS_X)
        code = qn_error_set(QUERN_EINVAL,
                            "gather=%s cannot be combined with prob=x: rows of "
                            "x are tokens times probabilities",
                            qn_tokens_name(moe->gather));
    if (!code && moe->scatter && moe->residual)
        code = qn_error_set(QUERN_EINVAL,
                            "scatter=1 cannot be combined with residual=1: "
                            "tokens without rows are not written");
    if (code)
        return code;
    qn_moe_route(moe, QUERN_ROUTE, &route);
    code = qn_route_check(&route);
    if (code)
        return code;
    qn_moe_mlp(moe, &mlp);
    return qn_mlp_check(ctx, &mlp, recipe);
}

static const struct qn_moe usual = {.mlp.probability = QUERN_WEIGHTS_H,
                                    .index = QUERN_I32};

int qn_moe_parse(struct quern_context *ctx, const char *text,
                 struct qn_moe *out)
{
    struct qn_moe moe = usual;
    int code = qn_mlp_begin(ctx, &text, "moe", &moe.mlp);

    if (!code)
        code = qn_field_parse(&qn_line_moe, 0, text, &moe);
    if (!code)
        code = check_moe(ctx, &moe, NULL);
    if (!code)
        *out = moe;
    return code;
}

int qn_moe_print(const struct qn_moe *moe, char *buffer, size_t size)
{
    return qn_field_print(&qn_line_moe, 0, "moe", moe, &usual, moe->mlp.recipe,
                          buffer, size);
}

/* ------------------------------------------------------------------ memory */

/* Bytes of a slot; 0: the layer has none, or it shares MOVED's. */
static size_t bytes_of(const struct qn_moe *moe, const struct qn_recipe *recipe,
                       int slot)
{
    const size_t pairs = (size_t)(moe->mlp.m * moe->topk);
    const size_t rows = pairs * (size_t)moe->mlp.hidden *
                        (size_t)qn_type_bits(moe->mlp.type) / 8;
    const int grad = !moe->mlp.forward_only, weights = moe->mlp.probability;

    switch (slot) {
    case QN_MOE_LENGTHS:
        return (size_t)moe->mlp.groups * sizeof(int);
    case QN_MOE_INVERSE:
        return pairs * sizeof(int);
    case QN_MOE_GATHER:
        return qn_moe_gathers(moe, recipe, QUERN_MLP_X) ||
                       qn_moe_gathers(moe, recipe, QUERN_MLP_DY) ||
                       gathers_product(moe, recipe, QUERN_MLP_X) ||
                       scatters(moe)
                   ? pairs * sizeof(int)
                   : 0;
    case QN_MOE_COUNT:
        return (qn_mlp_scaled(recipe, QUERN_MLP_X) &&
                gathers_product(moe, recipe, QUERN_MLP_X)) ||
                       gathers_product(moe, recipe, QUERN_MLP_DY)
                   ? sizeof(int)
                   : 0;
    case QN_MOE_Y: /* dprob reads them */
        return grad && weights == QUERN_WEIGHTS_Y ? rows : 0;
    case QN_MOE_DY:
        return qn_moe_keeps(moe, recipe, QUERN_MLP_DY) ? rows : 0;
    case QN_MOE_X:
        return qn_moe_keeps(moe, recipe, QUERN_MLP_X) ? rows : 0;
    case QN_MOE_MOVED:
        return rows;
    case QN_MOE_PROB:
        return weights == QUERN_WEIGHTS_H ? pairs * sizeof(float) : 0;
    default: /* of dprob */
        return grad && weights == QUERN_WEIGHTS_H ? pairs * sizeof(float) : 0;
    }
}

void qn_moe_space_fill(const struct qn_moe *moe, const struct qn_recipe *recipe,
                       size_t scratch, struct qn_moe_space *s)
{
    static const int buffers[QN_MOE_SLOTS] = {
        [QN_MOE_LENGTHS] = QN_MLP_SAVED,  [QN_MOE_INVERSE] = QN_MLP_SAVED,
        [QN_MOE_GATHER] = QN_MLP_SAVED,   [QN_MOE_COUNT] = QN_MLP_SAVED,
        [QN_MOE_Y] = QN_MLP_SAVED,        [QN_MOE_DY] = QN_MLP_PENDING,
        [QN_MOE_X] = QN_MLP_PENDING,      [QN_MOE_MOVED] = QN_MLP_WORKSPACE,
        [QN_MOE_PROB] = QN_MLP_WORKSPACE, [QN_MOE_DPROB] = QN_MLP_WORKSPACE};
    /* backward reads the indices again */
    const int again = moe->mlp.recompute || scatters(moe) ||
                      qn_mlp_scaled(recipe, QUERN_MLP_X) ||
                      qn_mlp_scaled(recipe, QUERN_MLP_DY);

    *s = (struct qn_moe_space){.scratch = scratch, .workspace = scratch};
    for (int i = 0; i < QN_MOE_SLOTS; i++) {
        struct qn_moe_slice *slot = &s->slots[i];

        slot->buffer = moe->mlp.forward_only || (i == QN_MOE_GATHER && !again)
                           ? QN_MLP_WORKSPACE
                           : buffers[i];
        slot->bytes = bytes_of(moe, recipe, i);
        if (slot->bytes)
            slot->at =
                qn_space_add(slot->buffer == QN_MLP_SAVED     ? &s->saved
                             : slot->buffer == QN_MLP_PENDING ? &s->pending
                                                              : &s->workspace,
                             slot->bytes);
    }
}

/* Rows become tokens. */
static void set_tokens(const struct qn_moe *moe, struct qn_mlp_args *args)
{
    struct qn_tensor *const tensors[] = {&args->x, &args->y, &args->dy,
                                         &args->dx};
    const size_t element = (size_t)qn_type_bits(moe->mlp.type) / 8;

    for (int i = 0; i < 4; i++)
        if (tensors[i]->ndim) {
            tensors[i]->shape[0] = moe->mlp.m;
            tensors[i]->bytes /= (size_t)moe->topk;
            tensors[i]->alignment = element;
        }
    if (moe->residual)
        args->residual = args->x;
    args->rows = moe->mlp.m;
}

int qn_moe_describe(struct quern_context *ctx, const struct qn_moe *moe,
                    struct qn_mlp_description *d, struct qn_moe_space *out,
                    const struct qn_recipe **recipe_out)
{
    struct qn_route_description maps;
    const struct qn_recipe *recipe;
    struct qn_moe_space space;
    struct qn_route route;
    struct qn_mlp mlp;
    int code = check_moe(ctx, moe, &recipe);

    if (code)
        return code;
    qn_moe_mlp(moe, &mlp);
    qn_moe_route(moe, QUERN_ROUTE, &route);
    code = qn_mlp_describe(ctx, &mlp, d, NULL, NULL);
    if (!code)
        code = qn_route_needs(&route, &maps);
    if (code)
        return code;
    qn_moe_space_fill(moe, recipe,
                      d->workspace_bytes > maps.workspace_bytes
                          ? d->workspace_bytes
                          : maps.workspace_bytes,
                      &space);
    d->saved_bytes += space.saved;
    d->pending_bytes += space.pending;
    d->workspace_bytes = space.workspace;
    set_tokens(moe, &d->args);
    if (out)
        *out = space;
    if (recipe_out)
        *recipe_out = recipe;
    return code;
}

int qn_moe_needs(struct quern_context *ctx, const struct qn_moe *moe,
                 struct qn_mlp_description *description)
{
    return qn_moe_describe(ctx, moe, description, NULL, NULL);
}
