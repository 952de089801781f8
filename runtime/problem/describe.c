/* SPDX-License-Identifier: Apache-2.0 */
/* describe.c: the requirements for a caller. Knows no GPU and no kernel: every
   kernel of a variant takes the same operands. */
#include "base/context.h"
#include "problem/fuse_rules.h"
#include "problem/geometry.h"
#include "problem/lora_rules.h"
#include "problem/problem.h"
#include "problem/quantize.h"
#include "problem/result_rules.h"

#include <string.h>

/* A group axis comes first; a ragged axis counts its total. A copy is as
   quantize says. */
static void describe_operand(const struct qn_problem *problem,
                             const struct qn_recipe *recipe, int role,
                             struct qn_tensor *tensor)
{
    struct qn_quantization q;
    struct qn_geometry g;
    int dims = 0;

    tensor->sizes_type = QUERN_I32;
    if (qn_scale_source(problem, recipe, role, &q)) {
        qn_quantize_copy(&q, recipe, q.copies, tensor);
        return;
    }
    qn_geometry_of(problem, recipe, role, &g);
    if (g.grouped)
        tensor->shape[dims++] = g.groups;
    tensor->shape[dims++] = g.rows;
    tensor->shape[dims++] = g.columns;
    tensor->ndim = dims;
    tensor->type = g.type;
    tensor->bytes = (size_t)qn_geometry_bytes(&g, 0, 0);
    tensor->alignment = (size_t)qn_problem_alignment(problem, g.type);
}

/* Adapters and lora_t. */
static void describe_lora(struct quern_context *ctx,
                          const struct qn_problem *problem,
                          struct qn_args *args)
{
    struct qn_tensor *const a = &args->lora_a, *const b = &args->lora_b;
    const int forward = problem->op == QUERN_FPROP;
    const struct qn_recipe *plain;
    struct qn_problem down, up;

    qn_lora_down(ctx, problem, &down);
    qn_lora_up(ctx, problem, &up);
    plain = qn_context_recipe(ctx, down.recipe);
    describe_operand(&down, plain, QN_ROLE_D, &args->lora_t);
    describe_operand(&down, plain, QN_ROLE_B, forward ? a : b);
    describe_operand(&up, plain, QN_ROLE_B, forward ? b : a);
}

/* Arguments for copies of the result, besides the tensors. */
static void describe_result(const struct qn_problem *p,
                            const struct qn_recipe *recipe,
                            struct qn_description *d)
{
    struct qn_quantization q;
    const struct qn_scaling *s = qn_result_source(p, recipe, QN_ROLE_D, &q);

    d->history = s ? s->history : 0;
    d->random = s ? s->stochastic : 0;
}

int qn_describe_valid(struct quern_context *ctx,
                      const struct qn_problem *problem,
                      const struct qn_recipe *recipe,
                      struct qn_description *description)
{
    memset(description, 0, sizeof *description);
    describe_operand(problem, recipe, QN_ROLE_A, &description->args.a);
    describe_operand(problem, recipe, QN_ROLE_B, &description->args.b);
    if (problem->beta == QUERN_BETA_ANY)
        describe_operand(problem, recipe, QN_ROLE_C, &description->args.c);
    describe_operand(problem, recipe, QN_ROLE_D, &description->args.d);
    if (qn_geometry_has(problem, QN_ROLE_P))
        describe_operand(problem, recipe, QN_ROLE_P, &description->args.p);
    if (qn_geometry_has(problem, QN_ROLE_T))
        describe_operand(problem, recipe, QN_ROLE_T, &description->args.t);
    if (problem->lora)
        describe_lora(ctx, problem, &description->args);
    qn_problem_limits(&description->args.limit, &description->args.slope,
                      &description->args.shift);
    describe_result(problem, recipe, description);
    return qn_fuse_describe(ctx, problem, recipe, description);
}

int qn_describe_operands(struct quern_context *ctx,
                         const struct qn_problem *problem,
                         struct qn_description *description,
                         const struct qn_recipe **out)
{
    const struct qn_recipe *recipe;
    int code = qn_problem_check(ctx, problem, &recipe);

    if (!code)
        code = qn_describe_valid(ctx, problem, recipe, description);
    if (!code && out)
        *out = recipe;
    return code;
}
