/* SPDX-License-Identifier: Apache-2.0 */
/*
** lora_plan.c: plans of products with adapters. A launch makes lora_t of the
** tokens; then the product goes on along k with that, or, if no kernel does so,
** leaves sums in fp32 that a third one adds to.
*/
#include "choose/session.h"
#include "product/frame.h"
#include "product/plan.h"

#include <string.h>

/* The last launch becomes the first, but for the one that loads sizes. */
static void move_last(struct qn_plan *plan)
{
    const int last = plan->nlaunches - 1;
    const int to = plan->launches[0].work == QN_WORK_SIZES;
    const struct qn_launch moved = plan->launches[last];

    memmove(&plan->launches[to + 1], &plan->launches[to],
            (size_t)(last - to) * sizeof moved);
    plan->launches[to] = moved;
}

/* The plan speaks for the product, which is therefore made first. */
static int add_all(struct qn_plan *plan, struct qn_session *s)
{
    struct qn_plan *product;
    int code =
        qn_plan_inner(s, s->problem, &s->options, qn_epilogue_make, &product);

    if (code)
        return code;
    plan->problem.dequantize = product->problem.dequantize;
    plan->target = product->target;
    plan->need.workspace_bytes = product->need.workspace_bytes;
    qn_launch_absorb(plan, product, QN_OPERANDS_GIVEN, QN_FLAG_CALLER);
    code = qn_lora_add_down(plan, s);
    if (!code)
        move_last(plan);
    return code;
}

int qn_lora_make(struct qn_session *s, struct qn_plan **plan)
{
    return s->problem->lora
               ? qn_plan_several(s, s->problem->dequantize, add_all, plan)
               : qn_epilogue_make(s, plan);
}
