/* SPDX-License-Identifier: Apache-2.0 */
/* lora_rules.c: rules on products with low-rank adapters. */
#include "problem/lora_rules.h"
#include "base/context.h"
#include "base/error.h"
#include "base/types.h"
#include "problem/dequantize_rules.h"
#include "problem/problem.h"

#include <stddef.h>
#include <string.h>

/* Adapters are multiplied by kernels of 16-bit values: the recipe's own, or
   those of the tokens' type next to packed weights. */
static const char *wrong_recipe(struct quern_context *ctx,
                                const struct qn_problem *p,
                                const struct qn_recipe *recipe)
{
    const int of = p->op == QUERN_FPROP ? QN_X : QN_DY;
    const int type = of == QN_X ? recipe->x : recipe->dy;

    if (recipe->scaling[of].type != QUERN_TYPE_NONE)
        return "it quantizes the tokens, and adapters need them in 16 bits";
    if (!recipe->scaled)
        return NULL;
    if (!recipe->scaling[QN_W].packed)
        return "it has a columnwise tensor of w; w in 16 bits or packed "
               "(copies "
               "= \"rowwise\") is expected";
    if (type != QUERN_BF16 && type != QUERN_F16)
        return "next to packed weights tokens in bf16 or f16 are expected";
    if (!qn_dequantize_plain_of(ctx, type))
        return type == QUERN_F16
                   ? "next to packed weights a recipe of f16 is expected"
                   : "next to packed weights a recipe of bf16 is expected";
    return NULL;
}

int qn_lora_problem(struct quern_context *ctx, const struct qn_problem *p,
                    const struct qn_recipe *recipe)
{
    const char *wrong;

    if (!p->lora)
        return QUERN_OK;
    if (p->lora < 0 || p->lora > QN_LORA_MOST)
        return qn_error_set(QUERN_EINVAL,
                            "lora=%d: ranks of 1 to %d are served", p->lora,
                            QN_LORA_MOST);
    if (p->op == QUERN_WGRAD || p->ragged != QUERN_AXIS_M ||
        p->a_major != QUERN_MAJOR_K)
        return qn_error_set(
            QUERN_EINVAL,
            "lora=%d: fprop or dgrad with ragged=m and a "
            "k-major a (layout=tn or nn) is expected; gradients "
            "of adapters are wgrads of 16 bits",
            p->lora);
    if (p->activation)
        return qn_error_set(QUERN_EINVAL,
                            "lora=%d cannot be combined with activation=%s: "
                            "the activation is a line of its own",
                            p->lora, qn_activation_name(p->activation));
    if (p->beta != QUERN_BETA_ZERO)
        return qn_error_set(QUERN_EINVAL, "lora=%d: beta=0 is expected",
                            p->lora);
    wrong = wrong_recipe(ctx, p, recipe);
    if (wrong)
        return qn_error_set(QUERN_EINVAL, "lora=%d, recipe %s: %s", p->lora,
                            recipe->name, wrong);
    return QUERN_OK;
}

/* A product of 16-bit values with the problem's rows. */
static void begin(struct quern_context *ctx, const struct qn_problem *p,
                  struct qn_problem *out)
{
    const struct qn_recipe *recipe = qn_context_recipe(ctx, p->recipe);

    *out = (struct qn_problem){.op = p->op,
                               .ragged = QUERN_AXIS_M,
                               .a_major = QUERN_MAJOR_K,
                               .b_major = p->b_major,
                               .d_type = recipe->x,
                               .alignment = p->alignment,
                               .groups = p->groups,
                               .m = p->m,
                               .n = p->n,
                               .k = p->k};
    if (recipe->scaled)
        recipe = qn_dequantize_plain_of(ctx, out->d_type);
    strncpy(out->recipe, recipe->name, sizeof out->recipe - 1);
}

void qn_lora_down(struct quern_context *ctx, const struct qn_problem *p,
                  struct qn_problem *down)
{
    begin(ctx, p, down);
    down->n = p->lora;
    down->alpha = 1;
    down->gather = p->gather;
    down->tokens = p->tokens;
    down->topk = p->topk;
}

void qn_lora_up(struct quern_context *ctx, const struct qn_problem *p,
                struct qn_problem *up)
{
    begin(ctx, p, up);
    up->k = p->lora;
    up->d_type = QUERN_F32;
    up->alpha = p->alpha;
    up->beta = QUERN_BETA_ONE;
}

size_t qn_lora_up_place(const struct qn_problem *p)
{
    return p->op == QUERN_FPROP ? offsetof(struct qn_args, lora_b)
                                : offsetof(struct qn_args, lora_a);
}

const struct qn_tensor *qn_lora_down_of(const struct qn_problem *p,
                                        const struct qn_args *args)
{
    return p->op == QUERN_FPROP ? &args->lora_a : &args->lora_b;
}

const struct qn_tensor *qn_lora_up_of(const struct qn_problem *p,
                                      const struct qn_args *args)
{
    return p->op == QUERN_FPROP ? &args->lora_b : &args->lora_a;
}
