/* SPDX-License-Identifier: Apache-2.0 */
/*
** mlp.c: the rules that a grouped MLP must keep, the steps it is made of, and
** what it needs.
*/
#include "problem/mlp.h"
#include "base/context.h"
#include "base/error.h"
#include "base/types.h"
#include "problem/dequantize_rules.h"
#include "problem/field.h"
#include "problem/geometry.h"
#include "problem/host_sizes_rules.h"
#include "problem/problem.h"
#include "problem/quantize.h"
#include "problem/result_rules.h"

#include <string.h>

/* ------------------------------------------------------------------- steps */

const struct qn_mlp_step qn_mlp_steps[QN_MLP_STEPS] = {
    {QN_MLP_WEIGHTS, QUERN_MLP_W1, "w1"},
    {QN_MLP_WEIGHTS, QUERN_MLP_W2, "w2"},
    {QN_MLP_FORWARD, QUERN_MLP_X, "x"},
    {QN_MLP_FORWARD, QN_MLP_PRE, "pre = x w1^T"},
    {QN_MLP_FORWARD, QN_MLP_ADD_B1, "pre + b1"},
    {QN_MLP_FORWARD, QUERN_MLP_H, "h = activation(pre)"},
    {QN_MLP_FORWARD, QN_MLP_Y, "y = h w2^T"},
    {QN_MLP_FORWARD, QN_MLP_ADD_B2, "y + b2"},
    {QN_MLP_BACKWARD, QN_MLP_PRE, "pre again"},
    {QN_MLP_BACKWARD, QN_MLP_ADD_B1, "pre + b1 again"},
    {QN_MLP_BACKWARD, QUERN_MLP_DY, "dy"},
    {QN_MLP_BACKWARD, QN_MLP_DH, "dh = dy w2"},
    {QN_MLP_BACKWARD, QUERN_MLP_DPRE, "dpre, from dh and pre"},
    {QN_MLP_BACKWARD, QN_MLP_B2, "db2 and its part of dprob, from dy"},
    {QN_MLP_BACKWARD, QN_MLP_DX, "dx = dpre w1"},
    {QN_MLP_WGRAD, QN_MLP_DW2, "dw2 = dy^T h"},
    {QN_MLP_WGRAD, QN_MLP_DW1, "dw1 = dpre^T x"},
};

int qn_mlp_again(const struct qn_mlp_step *step)
{
    return step->phase == QN_MLP_BACKWARD &&
           (step->index == QN_MLP_ADD_B1 || step->index == QN_MLP_PRE);
}

/* Lengths of an MLP. */
enum length { TOKENS, HIDDEN, FFN, OPERANDS };

static const struct {
    int of;
    enum length rows, columns;
} tensors[QN_MLP_CASTS] = {
    [QUERN_MLP_X] = {QN_X, TOKENS, HIDDEN},
    [QUERN_MLP_H] = {QN_X, TOKENS, FFN},
    [QUERN_MLP_W1] = {QN_W, OPERANDS, HIDDEN},
    [QUERN_MLP_W2] = {QN_W, HIDDEN, FFN},
    [QUERN_MLP_DY] = {QN_DY, TOKENS, HIDDEN},
    [QUERN_MLP_DPRE] = {QN_DY, TOKENS, OPERANDS},
    [QN_MLP_B2] = {QN_DY, TOKENS, HIDDEN},
    [QN_MLP_ADD_B1] = {QN_X, TOKENS, OPERANDS},
    [QN_MLP_ADD_B2] = {QN_X, TOKENS, HIDDEN},
};

static const struct {
    int op, a, b; /* tensors */
    enum length m, n, k;
} products[QN_MLP_LAUNCHES] = {
    [QN_MLP_PRE] = {QUERN_FPROP, QUERN_MLP_X, QUERN_MLP_W1, TOKENS, OPERANDS,
                    HIDDEN},
    [QN_MLP_Y] = {QUERN_FPROP, QUERN_MLP_H, QUERN_MLP_W2, TOKENS, HIDDEN, FFN},
    [QN_MLP_DH] = {QUERN_DGRAD, QUERN_MLP_DY, QUERN_MLP_W2, TOKENS, FFN,
                   HIDDEN},
    [QN_MLP_DX] = {QUERN_DGRAD, QUERN_MLP_DPRE, QUERN_MLP_W1, TOKENS, HIDDEN,
                   OPERANDS},
    [QN_MLP_DW2] = {QUERN_WGRAD, QUERN_MLP_DY, QUERN_MLP_H, HIDDEN, FFN,
                    TOKENS},
    [QN_MLP_DW1] = {QUERN_WGRAD, QUERN_MLP_DPRE, QUERN_MLP_X, OPERANDS, HIDDEN,
                    TOKENS},
};

int64_t qn_mlp_operands(const struct qn_mlp *mlp)
{
    return mlp->activation == QUERN_SQUARED_RELU ? mlp->ffn : 2 * mlp->ffn;
}

static int64_t length_of(const struct qn_mlp *mlp, enum length which)
{
    return which == TOKENS   ? mlp->m
           : which == HIDDEN ? mlp->hidden
           : which == FFN    ? mlp->ffn
                             : qn_mlp_operands(mlp);
}

int qn_mlp_scaled(const struct qn_recipe *recipe, int tensor)
{
    return recipe->scaling[tensors[tensor].of].type != QUERN_TYPE_NONE;
}

int qn_mlp_operand(int product, int role)
{
    return role == QN_ROLE_A ? products[product].a : products[product].b;
}

/* Whose kernels take numbers that have no scales: any recipe's that keeps such
   a tensor as it is. */
static const struct qn_recipe *taking(const struct quern_context *ctx,
                                      const struct qn_recipe *recipe,
                                      int tensor)
{
    return qn_mlp_scaled(recipe, tensor) ? qn_dequantize_plain(ctx) : recipe;
}

/* Requirements of biases: sums over rows, or an addition. */
static void set_bias(const struct qn_mlp *mlp, int tensor,
                     struct qn_quantization *q)
{
    int adds = tensor == QN_MLP_ADD_B1 || tensor == QN_MLP_ADD_B2;

    q->work = adds ? QUERN_BIAS : QUERN_QUANTIZE;
    if (mlp->bias && (tensor == QUERN_MLP_DPRE || tensor == QN_MLP_B2))
        q->dbias =
            mlp->dw_beta == QUERN_BETA_ONE ? QUERN_DBIAS_ADD : QUERN_DBIAS;
    if (tensor == QN_MLP_B2 || tensor == QN_MLP_ADD_B2)
        q->probability = mlp->probability;
    q->dprob =
        mlp->probability && (tensor == QUERN_MLP_DPRE || tensor == QN_MLP_B2);
}

int qn_mlp_cast(const struct quern_context *ctx, const struct qn_mlp *mlp,
                const struct qn_recipe *recipe, int tensor,
                struct qn_quantization *q)
{
    int acts = tensor == QUERN_MLP_H || tensor == QUERN_MLP_DPRE;
    int of_bias = tensor >= QUERN_MLP_TENSORS;
    int scaled = !of_bias && qn_mlp_scaled(recipe, tensor);

    if (of_bias && !mlp->bias)
        return 0;
    memset(q, 0, sizeof *q);
    strcpy(q->recipe,
           of_bias ? taking(ctx, recipe, tensor)->name : mlp->recipe);
    q->of = tensors[tensor].of;
    q->type = mlp->type;
    q->copies = scaled ? QUERN_ROWWISE | QUERN_COLUMNWISE : QUERN_ROWWISE;
    q->activation = acts ? mlp->activation : QUERN_NO_ACTIVATION;
    q->interleave = acts ? mlp->interleave : 0;
    q->probability = acts && mlp->probability;
    q->groups = mlp->groups;
    q->m = length_of(mlp, tensors[tensor].rows);
    q->k = length_of(mlp, tensors[tensor].columns);
    set_bias(mlp, tensor, q);
    return acts || scaled || of_bias;
}

void qn_mlp_product(const struct qn_mlp *mlp, const struct qn_recipe *recipe,
                    int product, struct qn_problem *p)
{
    memset(p, 0, sizeof *p);
    strcpy(p->recipe, mlp->recipe);
    p->op = products[product].op;
    p->m = length_of(mlp, products[product].m);
    p->n = length_of(mlp, products[product].n);
    p->k = length_of(mlp, products[product].k);
    p->groups = mlp->groups;
    p->sizes = product == QN_MLP_PRE ? mlp->sizes : 0; /* brings them for all */
    p->d_type = p->op == QUERN_WGRAD ? mlp->dw_type : mlp->type;
    p->beta = p->op == QUERN_WGRAD ? mlp->dw_beta : QUERN_BETA_ZERO;
    p->microbatches = p->op == QUERN_WGRAD ? mlp->microbatches : 0;
    p->bias = mlp->bias && p->op == QUERN_FPROP;
    p->probability = p->bias && product == QN_MLP_Y && mlp->probability;
    qn_problem_defaults(p, recipe);
}

/* The product makes `tensor`, or its copies, by the layer's activation; 0: the
   recipe has no such copies. */
static int activate(const struct qn_mlp *mlp, const struct qn_recipe *recipe,
                    int tensor, struct qn_problem *p)
{
    p->activation = mlp->activation;
    p->interleave = mlp->interleave;
    p->probability = mlp->probability;
    if (!qn_mlp_scaled(recipe, tensor))
        return 1;
    p->copies = QUERN_ROWWISE | QUERN_COLUMNWISE;
    return !qn_result_wrong(p, recipe) && !qn_result_apart(p, recipe);
}

int qn_mlp_fused(const struct qn_mlp *mlp, const struct qn_recipe *recipe,
                 struct qn_problem *p)
{
    qn_mlp_product(mlp, recipe, QN_MLP_PRE, p);
    p->saved = 1;
    return activate(mlp, recipe, QUERN_MLP_H, p);
}

int qn_mlp_back(const struct qn_mlp *mlp, const struct qn_recipe *recipe,
                struct qn_problem *p)
{
    struct qn_quantization q = {.of = QN_DY};

    qn_mlp_product(mlp, recipe, QN_MLP_DH, p);
    set_bias(mlp, QUERN_MLP_DPRE, &q);
    p->dbias = q.dbias;
    p->dprob = q.dprob;
    return activate(mlp, recipe, QUERN_MLP_DPRE, p);
}

/* ------------------------------------------------------------------- rules */

/* Twice as many features as h has must not pass the bound of any. */
static int check_lengths(const struct qn_mlp *mlp)
{
    const int64_t most = QN_RAGGED_LIMIT;
    int code = qn_problem_groups(mlp->groups);

    if (!code && (mlp->m < 0 || mlp->m > most))
        code = qn_error_set(QUERN_EINVAL,
                            "m=%lld: 0 to %lld tokens over all groups",
                            (long long)mlp->m, (long long)most);
    if (!code && (mlp->hidden < 1 || mlp->hidden > most))
        code = qn_error_set(QUERN_EINVAL, "hidden=%lld: 1 to %lld features",
                            (long long)mlp->hidden, (long long)most);
    if (!code && (mlp->ffn < 1 || mlp->ffn > most / 2))
        code = qn_error_set(QUERN_EINVAL, "ffn=%lld: 1 to %lld features",
                            (long long)mlp->ffn, (long long)most / 2);
    if (!code && (mlp->interleave < 0 ||
                  (mlp->interleave && mlp->ffn % mlp->interleave)))
        code =
            qn_error_set(QUERN_EINVAL, "interleave=%d does not divide ffn=%lld",
                         mlp->interleave, (long long)mlp->ffn);
    return code;
}

/* Operands without scales are multiplied directly. */
static int check_type(const struct qn_mlp *mlp, const struct qn_recipe *recipe)
{
    const int elements[QN_TENSORS] = {recipe->x, recipe->w, recipe->dy};

    for (int of = 0; of < QN_TENSORS; of++)
        if (recipe->scaling[of].type == QUERN_TYPE_NONE &&
            elements[of] != mlp->type)
            return qn_error_set(QUERN_EINVAL, "in=%s: recipe %s keeps %s as %s",
                                qn_type_name(mlp->type), recipe->name,
                                qn_of_name(of), qn_type_name(elements[of]));
    return QUERN_OK;
}

/* Beside dy's copies w would have to be k-major for dgrad, as w1 and w2 are
   not: square ones would multiply without a word. */
static int check_weights(const struct qn_recipe *recipe)
{
    if (qn_mlp_scaled(recipe, QUERN_MLP_W1) ||
        !qn_mlp_scaled(recipe, QUERN_MLP_DY))
        return QUERN_OK;
    return qn_error_set(QUERN_EINVAL,
                        "recipe %s scales dy and keeps w as %s, which dgrad "
                        "would read transposed: an MLP has no such copy; its "
                        "products one by one take one",
                        recipe->name, qn_type_name(recipe->w));
}

/* Of each step, as quantize and problem have them. */
static int check_steps(struct quern_context *ctx, const struct qn_mlp *mlp,
                       const struct qn_recipe *recipe)
{
    struct qn_quantization q;
    struct qn_problem p;
    int code = QUERN_OK;

    for (int i = 0; i < QN_MLP_STEPS && !code; i++) {
        const struct qn_mlp_step *step = &qn_mlp_steps[i];

        if (step->index >= QN_MLP_PRE) {
            qn_mlp_product(mlp, recipe, step->index, &p);
            code = qn_problem_check(ctx, &p, NULL);
        } else if (qn_mlp_cast(ctx, mlp, recipe, step->index, &q)) {
            code = qn_quantize_check(ctx, &q, NULL);
        }
        if (code)
            qn_error_add("  in the step %s", step->name);
    }
    return code;
}

int qn_mlp_check(struct quern_context *ctx, const struct qn_mlp *mlp,
                 const struct qn_recipe **out)
{
    const struct qn_recipe *recipe;
    int code = qn_problem_begin(ctx, &qn_line_mlp, mlp, &recipe);

    if (code)
        return code;
    code = check_lengths(mlp);
    if (!code)
        code = qn_host_size_problem(mlp->sizes, 1);
    if (!code)
        code = check_type(mlp, recipe);
    if (!code)
        code = check_weights(recipe);
    if (!code && mlp->bias &&
        (!taking(ctx, recipe, QUERN_MLP_X) ||
         !taking(ctx, recipe, QUERN_MLP_DY)))
        code = qn_error_set(QUERN_EINVAL,
                            "bias=1: no recipe has bf16 for x, w and dy, whose "
                            "kernels would sum dy");
    if (!code)
        code = check_steps(ctx, mlp, recipe);
    if (!code)
        code = qn_split_check_rows(mlp->groups, mlp->m, mlp->split, 1);
    if (out)
        *out = recipe;
    return code;
}

/* ------------------------------------------------------------------- space */

/* The place of a tensor and all its scales in one of the buffers. */
static size_t take(size_t *used, const struct qn_tensor *t)
{
    const size_t at = qn_space_add(used, t->bytes);

    qn_space_add(used, t->sf_bytes);
    qn_space_add(used, t->global_bytes);
    return at;
}

/* Numbers as they are: [m, columns], or [G, rows, columns]. */
static void set_numbers(struct qn_tensor *t, int type, int64_t groups,
                        int64_t rows, int64_t columns)
{
    int dims = 0;

    if (groups)
        t->shape[dims++] = groups;
    t->shape[dims++] = rows;
    t->shape[dims++] = columns;
    t->ndim = dims;
    t->type = type;
    t->bytes = (size_t)((groups ? groups : 1) * rows * columns *
                        qn_type_bits(type) / 8);
    t->alignment = QN_ALIGNMENT;
}

/* Copies of what has tokens; those of weights are the caller's. */
static int describe_copies(struct quern_context *ctx, const struct qn_mlp *mlp,
                           const struct qn_recipe *recipe,
                           struct qn_mlp_space *space, size_t *scratch)
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
        if (code || q.of == QN_W || t >= QUERN_MLP_TENSORS)
            continue;
        space->places[QN_MLP_ROW + t].need = need.args.row;
        space->places[QN_MLP_COLUMN + t].need = need.args.column;
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

    for (int product = QN_MLP_PRE; product < QN_MLP_LAUNCHES && !code;
         product++) {
        qn_mlp_product(mlp, recipe, product, &p);
        code = add_scratch(ctx, &p, scratch);
    }
    if (!code && qn_mlp_back(mlp, recipe, &p)) {
        if (p.copies) /* in one launch, or none of this */
            p.dequantize = QUERN_DEQUANTIZE_MAINLOOP;
        p.copies = 0;
        code = add_scratch(ctx, &p, scratch);
    }
    return code;
}

/* Is it kept for backward or wgrad? */
static int is_saved(const struct qn_mlp *mlp, const struct qn_recipe *recipe,
                    int slot)
{
    const int tensor = slot - QN_MLP_ROW;

    if (slot == QN_MLP_PRE_SLOT)
        return !mlp->recompute;
    if (slot < QN_MLP_ROW || slot >= QN_MLP_COLUMN)
        return slot != QN_MLP_DH_SLOT;
    return !qn_mlp_scaled(recipe, tensor) ||
           (mlp->recompute && tensor == QUERN_MLP_X);
}

/*
** `saved` has what backward and wgrad read: pre, or where that is computed
** again x's rowwise tensor, and of each tensor the columnwise tensor, or where
** it is not scaled the tensor. In the workspace, behind what the steps need,
** and pre if it is not saved, forward and backward have the same bytes in
** turns.
*/
static void lay_out(const struct qn_mlp *mlp, struct qn_mlp_space *s,
                    const struct qn_recipe *recipe, size_t scratch)
{
    static const int turns[2][3] = {
        {QN_MLP_PRE_SLOT, QN_MLP_ROW + QUERN_MLP_X, QN_MLP_ROW + QUERN_MLP_H},
        {QN_MLP_DH_SLOT, QN_MLP_ROW + QUERN_MLP_DY,
         QN_MLP_ROW + QUERN_MLP_DPRE}};

    for (int i = 0; i < QN_MLP_SLOTS; i++) {
        struct qn_mlp_slice *place = &s->places[i];

        place->saved = is_saved(mlp, recipe, i);
        if (place->saved)
            place->at = take(&s->saved, &place->need);
    }
    if (mlp->recompute)
        s->places[QN_MLP_PRE_SLOT].at =
            take(&scratch, &s->places[QN_MLP_PRE_SLOT].need);
    s->workspace = scratch;
    for (int turn = 0; turn < 2; turn++) {
        size_t used = scratch;

        for (int i = 0; i < 3; i++) {
            struct qn_mlp_slice *place = &s->places[turns[turn][i]];

            if ((place->saved && turn) ||
                (mlp->recompute && turns[turn][i] == QN_MLP_PRE_SLOT))
                continue;
            place->loose = take(&used, &place->need);
            if (!place->saved)
                place->at = place->loose;
        }
        if (used > s->workspace)
            s->workspace = used;
    }
}

/* ---------------------------------------------------------------- describe */

static void describe_numbers(const struct qn_mlp *mlp, struct qn_mlp_args *args)
{
    int64_t operands = qn_mlp_operands(mlp);
    struct qn_tensor *tokens[] = {&args->x, &args->y, &args->dy, &args->dx};

    for (int i = 0; i < 4; i++)
        set_numbers(tokens[i], mlp->type, 0, mlp->m, mlp->hidden);
    set_numbers(&args->w1, mlp->type, mlp->groups, operands, mlp->hidden);
    set_numbers(&args->w2, mlp->type, mlp->groups, mlp->hidden, mlp->ffn);
    set_numbers(&args->dw1, mlp->dw_type, mlp->groups, operands, mlp->hidden);
    set_numbers(&args->dw2, mlp->dw_type, mlp->groups, mlp->hidden, mlp->ffn);
    args->sizes_type = QUERN_I32;
    args->limit = 7;
    args->slope = 1.702f;
    args->shift = 1;
}

static void describe_weights(const struct quern_context *ctx,
                             const struct qn_mlp *mlp,
                             const struct qn_recipe *recipe,
                             struct qn_mlp_args *args)
{
    struct qn_quantization q;

    if (!qn_mlp_cast(ctx, mlp, recipe, QUERN_MLP_W1, &q))
        return;
    qn_quantize_copy(&q, recipe, QUERN_ROWWISE, &args->w1_row);
    qn_quantize_copy(&q, recipe, QUERN_COLUMNWISE, &args->w1_column);
    qn_mlp_cast(ctx, mlp, recipe, QUERN_MLP_W2, &q);
    qn_quantize_copy(&q, recipe, QUERN_ROWWISE, &args->w2_row);
    qn_quantize_copy(&q, recipe, QUERN_COLUMNWISE, &args->w2_column);
}

int qn_mlp_describe(struct quern_context *ctx, const struct qn_mlp *mlp,
                    struct qn_mlp_description *d, struct qn_mlp_space *out,
                    const struct qn_recipe **recipe_out)
{
    const size_t sizes = qn_host_size_bytes(mlp->sizes, mlp->groups, 1);
    size_t scratch = QN_WORKSPACE_BYTES;
    struct qn_mlp_space space = {.saved = 0};
    const struct qn_recipe *recipe;
    int code = qn_mlp_check(ctx, mlp, &recipe);

    if (code)
        return code;
    qn_space_add(&scratch, sizes);
    memset(d, 0, sizeof *d);
    set_numbers(&space.places[QN_MLP_PRE_SLOT].need, mlp->type, 0, mlp->m,
                qn_mlp_operands(mlp));
    set_numbers(&space.places[QN_MLP_DH_SLOT].need, mlp->type, 0, mlp->m,
                mlp->ffn);
    code = describe_copies(ctx, mlp, recipe, &space, &scratch);
    if (!code)
        code = find_scratch(ctx, mlp, recipe, &scratch);
    if (code)
        return code;
    lay_out(mlp, &space, recipe, scratch);
    space.sizes = qn_space_add(&space.workspace, sizes);
    describe_numbers(mlp, &d->args);
    describe_weights(ctx, mlp, recipe, &d->args);
    d->saved_bytes = space.saved;
    d->workspace_bytes = space.workspace;
    for (int of = 0; of < QN_TENSORS; of++) {
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
