/* SPDX-License-Identifier: Apache-2.0 */
/* describe_all.c: the requirements for a caller, with a workspace for any
   plan of a GPU. That depends on the kernels that there are. */
#include "choose/describe_all.h"
#include "choose/model.h"
#include "problem/problem.h"
#include "problem/epilogue_rules.h"
#include "problem/result_rules.h"

/* For a problem without quantized results. */
static size_t product_bytes(struct quern_context *ctx,
                            const struct qn_problem *p,
                            const struct qn_recipe *recipe)
{
    const size_t fused = qn_workspace_bytes(ctx, p, recipe);
    size_t apart;

    if (!qn_epilogue_apart(ctx, p, recipe))
        return fused;
    apart = qn_epilogue_end(ctx, p, recipe);
    return apart > fused ? apart : fused;
}

static size_t workspace(struct quern_context *ctx, const struct qn_problem *p,
                        const struct qn_recipe *recipe)
{
    struct qn_result_space space;
    struct qn_problem product;

    if (!p->copies)
        return product_bytes(ctx, p, recipe);
    qn_result_product(p, &product);
    qn_result_lay_out(p, recipe, product_bytes(ctx, &product, recipe), &space);
    return space.end;
}

int qn_describe(struct quern_context *ctx, const struct qn_problem *problem,
                struct qn_description *description,
                const struct qn_recipe **out)
{
    const struct qn_recipe *recipe;
    int code = qn_describe_operands(ctx, problem, description, &recipe);

    if (code)
        return code;
    description->workspace_bytes = workspace(ctx, problem, recipe);
    if (out)
        *out = recipe;
    return QUERN_OK;
}

int qn_problem_describe(struct quern_context *ctx,
                        const struct qn_problem *problem,
                        struct qn_description *description)
{
    return qn_describe(ctx, problem, description, NULL);
}
