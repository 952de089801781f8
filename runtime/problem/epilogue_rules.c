/* SPDX-License-Identifier: Apache-2.0 */
/* epilogue_rules.c: which epilogues may take a launch of their own, and its
   part of the workspace. */
#include "problem/epilogue_rules.h"
#include "base/context.h"
#include "problem/dequantize_rules.h"
#include "problem/geometry.h"
#include "problem/gradient_rules.h"
#include "problem/problem.h"

int qn_epilogue_has(const struct qn_problem *p)
{
    return p->bias || p->activation || p->lora;
}

static int writes_f32(const struct qn_recipe *recipe)
{
    return recipe->d_types >> QUERN_F32 & 1;
}

int qn_epilogue_lacks_sums(const struct qn_problem *p,
                           const struct qn_recipe *recipe)
{
    return qn_epilogue_has(p) && !p->copies && !writes_f32(recipe);
}

void qn_epilogue_product(const struct qn_problem *p,
                         const struct qn_recipe *recipe,
                         struct qn_problem *product)
{
    *product = *p;
    product->bias = product->activation = product->interleave = 0;
    product->probability = product->saved = 0;
    product->dbias = QUERN_NO_DBIAS;
    product->dprob = 0;
    product->copies = 0;
    product->lora = 0;
    product->d_type = QUERN_F32;
    if (!writes_f32(recipe))
        product->dequantize = QUERN_DEQUANTIZE_PASS;
}

int qn_epilogue_has_sums(struct quern_context *ctx, const struct qn_problem *p,
                         const struct qn_recipe *recipe)
{
    struct qn_problem product;

    if (!qn_epilogue_has(p) || p->copies || writes_f32(recipe))
        return qn_epilogue_has(p) && !p->copies;
    qn_epilogue_product(p, recipe, &product);
    return (p->dequantize == QUERN_DEQUANTIZE_AUTO ||
            p->dequantize == QUERN_DEQUANTIZE_PASS) &&
           !qn_dequantize_wrong(ctx, &product, recipe, QUERN_DEQUANTIZE_PASS);
}

int qn_epilogue_dequantized(struct quern_context *ctx,
                            const struct qn_problem *p,
                            const struct qn_recipe *recipe,
                            struct qn_problem *dequantized)
{
    *dequantized = *p;
    dequantized->dequantize = QUERN_DEQUANTIZE_PASS;
    return qn_epilogue_has(p) && p->dequantize == QUERN_DEQUANTIZE_AUTO &&
           !qn_dequantize_wrong(ctx, p, recipe, QUERN_DEQUANTIZE_PASS);
}

/* The product has the first part, with room for the partial sums of dbias and
   dprob; then come its sums. */
size_t qn_epilogue_lay_out(const struct qn_problem *p, size_t product,
                           size_t *sums)
{
    size_t end = product;

    qn_space_add(&end, qn_gradient_end(p));
    *sums = qn_space_add(&end, qn_epilogue_sums(p));
    return end;
}

size_t qn_epilogue_sums(const struct qn_problem *p)
{
    return (size_t)p->m * (size_t)p->n * sizeof(float);
}

size_t qn_epilogue_end(struct quern_context *ctx, const struct qn_problem *p,
                       const struct qn_recipe *recipe)
{
    struct qn_problem product, dequantized;
    size_t end = 0, sums, other;

    if (qn_epilogue_has_sums(ctx, p, recipe)) {
        qn_epilogue_product(p, recipe, &product);
        end = qn_epilogue_lay_out(p, qn_workspace_bytes(ctx, &product, recipe),
                                  &sums);
    }
    if (!qn_epilogue_dequantized(ctx, p, recipe, &dequantized))
        return end;
    other = qn_workspace_bytes(ctx, &dequantized, recipe);
    return other > end ? other : end;
}
