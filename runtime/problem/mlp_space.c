/* SPDX-License-Identifier: Apache-2.0 */
/*
** mlp_space.c: the tensors of an MLP's runs: the caller's, and those in its
** buffers `saved`, `pending` and workspace.
*/
#include "problem/mlp.h"
#include "base/types.h"
#include "problem/host_sizes_rules.h"
#include "problem/problem.h"
#include "problem/quantize.h"

#include <string.h>

/* The place of a tensor and all its scales in one of the buffers. */
static size_t take(size_t *used, const struct qn_tensor *t)
{
    const size_t at = qn_space_add(used, t->bytes);

    qn_space_add(used, t->sf_bytes);
    qn_space_add(used, t->global_bytes);
    return at;
}

/* Plain values: [m, columns], or [G, rows, columns]. */
static void set_numbers(struct qn_tensor *t, int type, int64_t groups,
                        int64_t rows, int64_t columns)
{
    qn_quantize_shape(t, type, groups, rows, columns, columns);
    t->alignment = QN_ALIGNMENT;
}

/* The buffer of a tensor: forward saves it for backward or wgrad, backward
   leaves it for wgrad, or only its phase needs it. */
static int buffer_of(const struct qn_mlp *mlp, const struct qn_recipe *recipe,
                     int slot)
{
    const int column = slot >= QN_MLP_COLUMN;
    const int tensor = slot - (column ? QN_MLP_COLUMN : QN_MLP_ROW);
    const int late =
        tensor == QUERN_MLP_DY || tensor == QUERN_MLP_DPRE ||
        (column && tensor == QUERN_MLP_X && qn_mlp_later(mlp, recipe));
    const int kept = late ? QN_MLP_PENDING : QN_MLP_SAVED;

    if (mlp->forward_only || slot == QN_MLP_DH_SLOT)
        return QN_MLP_WORKSPACE;
    if (slot == QN_MLP_PRE_SLOT)
        return mlp->recompute ? QN_MLP_WORKSPACE : QN_MLP_SAVED;
    return column || !qn_mlp_scaled(recipe, tensor) ||
                   (mlp->recompute && tensor == QUERN_MLP_X)
               ? kept
               : QN_MLP_WORKSPACE;
}

/*
** Backward and wgrad read columnwise tensors, or where they are not scaled the
** tensors, and pre, or if that is computed again x's rowwise tensor. In the
** workspace, after the steps' part, and pre if it is not saved, forward and
** backward have the same bytes in turns.
*/
static void lay_out(const struct qn_mlp *mlp, const struct qn_recipe *recipe,
                    struct qn_mlp_space *s)
{
    static const int turns[2][3] = {
        {QN_MLP_PRE_SLOT, QN_MLP_ROW + QUERN_MLP_X, QN_MLP_ROW + QUERN_MLP_H},
        {QN_MLP_DH_SLOT, QN_MLP_ROW + QUERN_MLP_DY,
         QN_MLP_ROW + QUERN_MLP_DPRE}};

    size_t scratch = s->scratch;

    s->saved = s->pending = 0;
    for (int i = 0; i < QN_MLP_SLOTS; i++) {
        struct qn_mlp_slice *place = &s->places[i];

        place->buffer = buffer_of(mlp, recipe, i);
        if (place->buffer != QN_MLP_WORKSPACE)
            place->at =
                take(place->buffer == QN_MLP_SAVED ? &s->saved : &s->pending,
                     &place->need);
    }
    if (mlp->recompute)
        s->places[QN_MLP_PRE_SLOT].at =
            take(&scratch, &s->places[QN_MLP_PRE_SLOT].need);
    s->workspace = scratch;
    for (int turn = 0; turn < 2; turn++) {
        size_t used = scratch;

        for (int i = 0; i < 3; i++) {
            struct qn_mlp_slice *place = &s->places[turns[turn][i]];

            if (place->buffer == QN_MLP_WORKSPACE &&
                !(mlp->recompute && turns[turn][i] == QN_MLP_PRE_SLOT))
                place->at = take(&used, &place->need);
        }
        if (used > s->workspace)
            s->workspace = used;
    }
    s->sizes = qn_space_add(&s->workspace,
                            qn_host_size_bytes(mlp->sizes, mlp->groups, 1));
}

/* Tensors that runs make; those of weights are the caller's. */
static void describe_slots(const struct quern_context *ctx,
                           const struct qn_mlp *mlp,
                           const struct qn_recipe *recipe,
                           struct qn_mlp_space *s)
{
    struct qn_quantization q;

    if (!s->without_pre)
        set_numbers(&s->places[QN_MLP_PRE_SLOT].need, mlp->type, 0, mlp->m,
                    qn_mlp_operands(mlp));
    if (!mlp->forward_only)
        set_numbers(&s->places[QN_MLP_DH_SLOT].need, mlp->type, 0, mlp->m,
                    mlp->ffn);
    for (int t = 0; t < QUERN_MLP_TENSORS; t++) {
        if (!qn_mlp_cast(ctx, mlp, recipe, t, &q) || q.of == QN_W)
            continue;
        if (q.copies & QUERN_COLUMNWISE)
            qn_quantize_copy(&q, recipe, QUERN_COLUMNWISE,
                             &s->places[QN_MLP_COLUMN + t].need);
        if ((t == QUERN_MLP_X && s->of_tokens) ||
            (t == QUERN_MLP_DY && s->dy_of_tokens))
            qn_mlp_tokens(mlp, &q);
        qn_quantize_copy(&q, recipe, QUERN_ROWWISE,
                         &s->places[QN_MLP_ROW + t].need);
    }
    if (qn_mlp_cast(ctx, mlp, recipe, QN_MLP_X_LATER, &q))
        qn_quantize_copy(&q, recipe, QUERN_COLUMNWISE,
                         &s->places[QN_MLP_COLUMN + QUERN_MLP_X].need);
}

static void describe_numbers(const struct qn_mlp *mlp, struct qn_mlp_args *args)
{
    int64_t operands = qn_mlp_operands(mlp);
    struct qn_tensor *tokens[] = {&args->x, &args->y, &args->dy, &args->dx};
    const int grad = !mlp->forward_only;

    for (int i = 0; i < (grad ? 4 : 2); i++)
        set_numbers(tokens[i], mlp->type, 0, mlp->m, mlp->hidden);
    set_numbers(&args->w1, mlp->type, mlp->groups, operands, mlp->hidden);
    set_numbers(&args->w2, mlp->type, mlp->groups, mlp->hidden, mlp->ffn);
    if (grad) {
        set_numbers(&args->dw1, mlp->dw_type, mlp->groups, operands,
                    mlp->hidden);
        set_numbers(&args->dw2, mlp->dw_type, mlp->groups, mlp->hidden,
                    mlp->ffn);
    }
    args->rows = mlp->m;
    args->sizes_type = QUERN_I32;
    qn_problem_limits(&args->limit, &args->slope, &args->shift);
}

static void describe_weights(const struct quern_context *ctx,
                             const struct qn_mlp *mlp,
                             const struct qn_recipe *recipe,
                             struct qn_mlp_args *args)
{
    struct qn_quantization q;
    struct qn_tensor *const copies[2][2] = {{&args->w1_row, &args->w1_column},
                                            {&args->w2_row, &args->w2_column}};

    for (int i = 0; i < 2; i++) {
        if (!qn_mlp_cast(ctx, mlp, recipe, QUERN_MLP_W1 + i, &q))
            return;
        qn_quantize_copy(&q, recipe, QUERN_ROWWISE, copies[i][0]);
        if (q.copies & QUERN_COLUMNWISE)
            qn_quantize_copy(&q, recipe, QUERN_COLUMNWISE, copies[i][1]);
    }
}

void qn_mlp_space_fill(const struct quern_context *ctx,
                       const struct qn_mlp *mlp, const struct qn_recipe *recipe,
                       struct qn_mlp_args *args, struct qn_mlp_space *space)
{
    memset(args, 0, sizeof *args);
    memset(space->places, 0, sizeof space->places);
    describe_slots(ctx, mlp, recipe, space);
    lay_out(mlp, recipe, space);
    describe_numbers(mlp, args);
    describe_weights(ctx, mlp, recipe, args);
}
