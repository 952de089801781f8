/* SPDX-License-Identifier: Apache-2.0 */
/* fuse_plan.c: the launches before a product that quantizes an operand. */
#include "product/frame.h"
#include "base/error.h"
#include "choose/session.h"
#include "problem/dequantize_rules.h"
#include "problem/fuse_rules.h"
#include "product/plan.h"
#include "quantize/quantize_plan.h"

#include <string.h>

/* The same sums by a launch of their own, of a tensor that is not quantized. */
static void find_sums(const struct qn_problem *p,
                      const struct qn_recipe *recipe,
                      const struct qn_recipe *plain, struct qn_quantization *q)
{
    qn_fuse_quantization(p, recipe, q);
    q->copies = QUERN_ROWWISE;
    memset(q->recipe, 0, sizeof q->recipe);
    strncpy(q->recipe, plain->name, sizeof q->recipe - 1);
}

/* For sums of a tensor that no cast reads. */
static int add_sums(struct qn_plan *plan, const struct qn_session *s,
                    const struct qn_plan_options *options)
{
    const struct qn_recipe *plain = qn_dequantize_plain(s->ctx);
    struct qn_quantize_plan *cast;
    struct qn_quantization q;
    int code;

    if (!plain)
        return qn_error_set(QUERN_ENOKERNEL,
                            "dbias: no recipe has bf16 for x, w and dy, whose "
                            "kernels would sum dy");
    find_sums(&plan->problem, s->demand.recipe, plain, &q);
    code = qn_quantize_plan_inner(s, &q, options, &cast);
    if (code)
        qn_error_add("  in the sums of dy");
    else
        qn_launch_add(plan, QN_WORK_SUM_A)->cast = cast;
    return code;
}

int qn_fuse_plan(struct qn_plan *plan, const struct qn_session *s)
{
    const struct qn_plan_options options = {
        .backend = qn_session_gpu(s) ? s->options.backend : QUERN_BACKEND_HOST,
        .sms = s->options.sms};
    struct qn_quantize_plan *cast;
    struct qn_quantization q;
    int code = QUERN_OK;

    if (!plan->problem.quantize)
        return QUERN_OK;
    qn_fuse_quantization(&plan->problem, s->demand.recipe, &q);
    if (plan->kernel && qn_fuse_strategy(plan->kernel) &&
        qn_fuse_sums(&plan->problem))
        code = add_sums(plan, s, &options);
    if (!code)
        code = qn_quantize_plan_inner(s, &q, &options, &cast);
    if (!code)
        qn_launch_add(plan, QN_WORK_QUANTIZE_A)->cast = cast;
    return code;
}
