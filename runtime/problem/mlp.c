/* SPDX-License-Identifier: Apache-2.0 */
/*
** mlp.c: the rules that a grouped MLP must keep, and the steps it is made of.
*/
#include "problem/mlp.h"
#include "base/context.h"
#include "base/error.h"
#include "base/types.h"
#include "problem/dequantize_rules.h"
#include "problem/field.h"
#include "problem/gather_rules.h"
#include "problem/geometry.h"
#include "problem/host_sizes_rules.h"
#include "problem/problem.h"
#include "problem/quantize.h"
#include "problem/result_rules.h"

#include <stdio.h>
#include <string.h>

/* ------------------------------------------------------------------- steps */

const char *const qn_mlp_phase_names[QUERN_PHASES] = {
    [QUERN_PHASE_FORWARD] = "forward",
    [QUERN_PHASE_BACKWARD] = "backward",
    [QUERN_PHASE_WGRAD] = "wgrad",
    [QUERN_PHASE_WEIGHTS] = "weights"};

const int qn_mlp_phase_order[QUERN_PHASES] = {
    QUERN_PHASE_WEIGHTS, QUERN_PHASE_FORWARD, QUERN_PHASE_BACKWARD,
    QUERN_PHASE_WGRAD};

const struct qn_mlp_step qn_mlp_steps[QN_MLP_STEPS] = {
    {QUERN_PHASE_WEIGHTS, QUERN_MLP_W1, "w1"},
    {QUERN_PHASE_WEIGHTS, QUERN_MLP_W2, "w2"},
    {QUERN_PHASE_FORWARD, QUERN_MLP_X, "x"},
    {QUERN_PHASE_FORWARD, QN_MLP_PRE, "pre = x w1^T"},
    {QUERN_PHASE_FORWARD, QN_MLP_ADD_B1, "pre + b1"},
    {QUERN_PHASE_FORWARD, QUERN_MLP_H, "h = activation(pre)"},
    {QUERN_PHASE_FORWARD, QN_MLP_Y, "y = h w2^T"},
    {QUERN_PHASE_FORWARD, QN_MLP_ADD_B2, "y + b2"},
    {QUERN_PHASE_BACKWARD, QN_MLP_PRE, "pre again"},
    {QUERN_PHASE_BACKWARD, QN_MLP_ADD_B1, "pre + b1 again"},
    {QUERN_PHASE_BACKWARD, QUERN_MLP_DY, "dy"},
    {QUERN_PHASE_BACKWARD, QN_MLP_DY_LATER, "dy, for dw2"},
    {QUERN_PHASE_BACKWARD, QN_MLP_DH, "dh = dy w2"},
    {QUERN_PHASE_BACKWARD, QUERN_MLP_DPRE, "dpre, from dh and pre"},
    {QUERN_PHASE_BACKWARD, QN_MLP_B2, "db2 and its part of dprob, from dy"},
    {QUERN_PHASE_BACKWARD, QN_MLP_DX, "dx = dpre w1"},
    {QUERN_PHASE_BACKWARD, QN_MLP_X_LATER, "x, for dw1"},
    {QUERN_PHASE_WGRAD, QN_MLP_DW2, "dw2 = dy^T h"},
    {QUERN_PHASE_WGRAD, QN_MLP_DW1, "dw1 = dpre^T x"},
};

int qn_mlp_again(const struct qn_mlp_step *step)
{
    return step->phase == QUERN_PHASE_BACKWARD &&
           (step->index == QN_MLP_ADD_B1 || step->index == QN_MLP_PRE);
}

const struct qn_mlp_step *qn_mlp_step_of(int index)
{
    const struct qn_mlp_step *step = qn_mlp_steps;

    while (step->index != index)
        step++;
    return step;
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
    [QN_MLP_X_LATER] = {QN_X, TOKENS, HIDDEN},
    [QN_MLP_DY_LATER] = {QN_DY, TOKENS, HIDDEN},
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

int qn_mlp_has(const struct qn_mlp *mlp, int phase)
{
    return !mlp->forward_only || phase == QUERN_PHASE_WEIGHTS ||
           phase == QUERN_PHASE_FORWARD;
}

int qn_mlp_refuse(const struct qn_mlp *mlp, int phase)
{
    if (qn_mlp_has(mlp, phase))
        return QUERN_OK;
    return qn_error_set(QUERN_EINVAL,
                        "%s is not possible: grad=0 makes the MLP forward-only",
                        qn_mlp_phase_names[phase]);
}

int64_t qn_mlp_operands(const struct qn_mlp *mlp)
{
    return mlp->ffn * qn_activation_operands(mlp->activation);
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

/* The recipe whose kernels take values without scales: any recipe's that keeps
   such a tensor as it is. */
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

int qn_mlp_packed(const struct qn_recipe *recipe)
{
    return recipe->scaling[QN_W].packed;
}

/* Forward reads rowwise tensors only. */
static int copies_of(const struct qn_mlp *mlp, int scaled)
{
    return scaled && !mlp->forward_only ? QUERN_BOTH_COPIES : QUERN_ROWWISE;
}

int qn_mlp_later(const struct qn_mlp *mlp, const struct qn_recipe *recipe)
{
    const struct qn_scaling *s = &recipe->scaling[QN_X];

    return mlp->x_later && !mlp->forward_only && s->type != QUERN_TYPE_NONE &&
           !s->history && !s->stochastic;
}

/* Does a launch of its own make dy's columnwise tensor? */
static int is_dy_later(const struct qn_mlp *mlp, const struct qn_recipe *recipe)
{
    const struct qn_scaling *s = &recipe->scaling[QN_DY];

    return mlp->dy_later && !mlp->forward_only && !mlp->bias &&
           s->type != QUERN_TYPE_NONE && !s->history && !s->stochastic;
}

/* x's tensors are made together, or one in each phase. */
static int copies_at(const struct qn_mlp *mlp, const struct qn_recipe *recipe,
                     int tensor)
{
    if (tensor == QN_MLP_X_LATER || tensor == QN_MLP_DY_LATER)
        return QUERN_COLUMNWISE;
    if (tensor == QUERN_MLP_X && qn_mlp_later(mlp, recipe))
        return QUERN_ROWWISE;
    if (tensors[tensor].of == QN_W && qn_mlp_packed(recipe))
        return QUERN_ROWWISE;
    return copies_of(mlp, tensor < QUERN_MLP_TENSORS &&
                              qn_mlp_scaled(recipe, tensor));
}

int qn_mlp_cast(const struct quern_context *ctx, const struct qn_mlp *mlp,
                const struct qn_recipe *recipe, int tensor,
                struct qn_quantization *q)
{
    int acts = tensor == QUERN_MLP_H || tensor == QUERN_MLP_DPRE;
    int later = tensor == QN_MLP_X_LATER || tensor == QN_MLP_DY_LATER;
    int of_bias = tensor >= QUERN_MLP_TENSORS && !later;
    int scaled = !of_bias && qn_mlp_scaled(recipe, tensor);

    if ((of_bias && !mlp->bias) ||
        (tensor == QN_MLP_X_LATER && !qn_mlp_later(mlp, recipe)) ||
        (tensor == QN_MLP_DY_LATER && !is_dy_later(mlp, recipe)) ||
        (mlp->forward_only && tensors[tensor].of == QN_DY))
        return 0;
    memset(q, 0, sizeof *q);
    strcpy(q->recipe,
           of_bias ? taking(ctx, recipe, tensor)->name : mlp->recipe);
    q->of = tensors[tensor].of;
    q->type = mlp->type;
    q->copies = copies_at(mlp, recipe, tensor);
    q->activation = acts ? mlp->activation : QUERN_NO_ACTIVATION;
    q->interleave = acts ? mlp->interleave : 0;
    q->probability = acts && mlp->probability;
    q->groups = mlp->groups;
    q->m = length_of(mlp, tensors[tensor].rows);
    q->k = length_of(mlp, tensors[tensor].columns);
    set_bias(mlp, tensor, q);
    return acts || scaled || of_bias;
}

void qn_mlp_tokens(const struct qn_mlp *mlp, struct qn_quantization *q)
{
    q->copies = QUERN_ROWWISE;
    q->groups = 1;
    q->m = qn_mlp_token_count(mlp);
}

const struct qn_recipe *qn_mlp_gradients(const struct quern_context *ctx,
                                         const struct qn_recipe *recipe)
{
    const struct qn_recipe *plain = qn_dequantize_plain_of(ctx, recipe->x);

    return qn_mlp_packed(recipe) && plain ? plain : recipe;
}

const struct qn_recipe *qn_mlp_product(const struct quern_context *ctx,
                                       const struct qn_mlp *mlp,
                                       const struct qn_recipe *recipe,
                                       int product, struct qn_problem *p)
{
    if (products[product].op == QUERN_WGRAD)
        recipe = qn_mlp_gradients(ctx, recipe);
    memset(p, 0, sizeof *p);
    strcpy(p->recipe, recipe->name);
    p->op = products[product].op;
    p->m = length_of(mlp, products[product].m);
    p->n = length_of(mlp, products[product].n);
    p->k = length_of(mlp, products[product].k);
    p->groups = mlp->groups;
    p->sizes = product == QN_MLP_PRE ? mlp->sizes : 0; /* loads them for all */
    p->d_type = p->op == QUERN_WGRAD ? mlp->dw_type : mlp->type;
    p->beta = p->op == QUERN_WGRAD ? mlp->dw_beta : QUERN_BETA_ZERO;
    p->microbatches = p->op == QUERN_WGRAD ? mlp->microbatches : 0;
    if (product == QN_MLP_Y || product == QN_MLP_DX)
        p->outside = mlp->outside;
    p->bias = mlp->bias && p->op == QUERN_FPROP;
    if (p->op == QUERN_WGRAD)
        p->pointers = mlp->pointers & QUERN_MLP_DW ? QUERN_POINTERS_D : 0;
    else if (!qn_mlp_scaled(recipe, products[product].b))
        p->pointers = mlp->pointers & QUERN_MLP_W ? QUERN_POINTERS_B : 0;
    p->probability = p->bias && product == QN_MLP_Y && mlp->probability;
    qn_problem_defaults(p, recipe);
    return recipe;
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
    p->copies = copies_of(mlp, 1);
    return !qn_result_wrong(p, recipe) && !qn_result_apart(p, recipe);
}

int qn_mlp_fused(const struct quern_context *ctx, const struct qn_mlp *mlp,
                 const struct qn_recipe *recipe, struct qn_problem *p)
{
    qn_mlp_product(ctx, mlp, recipe, QN_MLP_PRE, p);
    p->saved = !mlp->forward_only;
    return activate(mlp, recipe, QUERN_MLP_H, p);
}

int qn_mlp_gather(const struct qn_mlp *mlp, const struct qn_recipe *recipe,
                  struct qn_problem *p)
{
    const int back = p->op == QUERN_DGRAD;
    const struct qn_scaling *s = &recipe->scaling[back ? QN_DY : QN_X];
    const int scaled = s->type != QUERN_TYPE_NONE, codes = qn_gather_scales(s);

    if (mlp->tokens == QUERN_TOKENS_NONE || mlp->topk < 1 ||
        mlp->m < mlp->topk ||
        (!codes && (!qn_gather_values(s) || p->copies || p->bias)))
        return 0;
    if (back ? !is_dy_later(mlp, recipe)
             : !mlp->x_later ||
                   (scaled && !mlp->forward_only && !qn_mlp_later(mlp, recipe)))
        return 0;
    if (scaled)
        p->dequantize =
            codes ? QUERN_DEQUANTIZE_MAINLOOP : QUERN_DEQUANTIZE_PASS;
    p->gather = QUERN_GATHER_A;
    p->topk = mlp->topk;
    p->tokens = qn_mlp_token_count(mlp);
    return 1;
}

int qn_mlp_back(const struct quern_context *ctx, const struct qn_mlp *mlp,
                const struct qn_recipe *recipe, struct qn_problem *p)
{
    struct qn_quantization q = {.of = QN_DY};

    qn_mlp_product(ctx, mlp, recipe, QN_MLP_DH, p);
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

    for (int of = 0; of < QN_TENSORS - mlp->forward_only; of++)
        if (recipe->scaling[of].type == QUERN_TYPE_NONE &&
            elements[of] != mlp->type)
            return qn_error_set(QUERN_EINVAL, "in=%s: recipe %s keeps %s as %s",
                                qn_type_name(mlp->type), recipe->name,
                                qn_of_name(of), qn_type_name(elements[of]));
    return QUERN_OK;
}

/* Next to dy's copies w would have to be k-major for dgrad, as w1 and w2 are
   not: square ones would multiply without a word. */
static int check_weights(const struct qn_mlp *mlp,
                         const struct qn_recipe *recipe)
{
    if (mlp->forward_only || qn_mlp_scaled(recipe, QUERN_MLP_W1) ||
        !qn_mlp_scaled(recipe, QUERN_MLP_DY))
        return QUERN_OK;
    return qn_error_set(QUERN_EINVAL,
                        "recipe %s scales dy and keeps w as %s, which dgrad "
                        "would read transposed: an MLP has no such copy; its "
                        "products one by one take one",
                        recipe->name, qn_type_name(recipe->w));
}

/* Nothing may be said of gradients that a forward-only MLP lacks. */
static int check_forward(const struct qn_mlp *mlp)
{
    const char *given = mlp->recompute                 ? "recompute=1"
                        : mlp->dw_beta                 ? "beta=1"
                        : mlp->microbatches > 1        ? "microbatches="
                        : mlp->pointers & QUERN_MLP_DW ? "pointers=dw"
                                                       : NULL;

    if (!mlp->forward_only || !given)
        return QUERN_OK;
    return qn_error_set(QUERN_EINVAL,
                        "%s is about backward, which grad=0 leaves out", given);
}

/* Products store in= and dw=, by the names that users gave: their recipe's
   gradients of weights may be products of another one. */
static int check_stored(const struct quern_context *ctx,
                        const struct qn_mlp *mlp,
                        const struct qn_recipe *recipe)
{
    static const struct {
        const char *key;
        int product;
    } stored[] = {{"in", QN_MLP_PRE}, {"dw", QN_MLP_DW2}};
    int code = QUERN_OK;

    for (int i = 0; i < 2 - mlp->forward_only && !code; i++) {
        struct qn_problem p;
        const struct qn_recipe *of =
            qn_mlp_product(ctx, mlp, recipe, stored[i].product, &p);
        char writer[160];

        if (of == recipe)
            snprintf(writer, sizeof writer, "recipe %s", recipe->name);
        else
            snprintf(writer, sizeof writer,
                     "recipe %s takes its dw from wgrad %s, which",
                     recipe->name, of->name);
        code = qn_problem_writes(&p, of, stored[i].key, writer);
    }
    return code;
}

/* The same for each step, as quantize and problem have them. */
static int check_steps(struct quern_context *ctx, const struct qn_mlp *mlp,
                       const struct qn_recipe *recipe)
{
    struct qn_quantization q;
    struct qn_problem p;
    int code = QUERN_OK;

    for (int i = 0; i < QN_MLP_STEPS && !code; i++) {
        const struct qn_mlp_step *step = &qn_mlp_steps[i];

        if (!qn_mlp_has(mlp, step->phase))
            continue;
        if (step->index >= QN_MLP_PRE) {
            qn_mlp_product(ctx, mlp, recipe, step->index, &p);
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
    if (!code && !mlp->forward_only)
        code = qn_problem_gradient(recipe, "backward", "write grad=0");
    if (!code)
        code = qn_host_size_problem(mlp->sizes, 1);
    if (!code)
        code = check_type(mlp, recipe);
    if (!code)
        code = check_weights(mlp, recipe);
    if (!code)
        code = check_forward(mlp);
    if (!code && mlp->bias &&
        (!taking(ctx, recipe, QUERN_MLP_X) ||
         !taking(ctx, recipe, QUERN_MLP_DY)))
        code = qn_error_set(QUERN_EINVAL,
                            "bias=1: no recipe has bf16 for x, w and dy, whose "
                            "kernels would sum dy");
    if (!code)
        code = check_stored(ctx, mlp, recipe);
    if (!code)
        code = check_steps(ctx, mlp, recipe);
    if (!code)
        code = qn_split_check_rows(mlp->groups, mlp->m, mlp->split, 1);
    if (out)
        *out = recipe;
    return code;
}
