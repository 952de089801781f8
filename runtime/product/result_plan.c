/* SPDX-License-Identifier: Apache-2.0 */
/* result_plan.c: the launches of a product whose copies a cast makes. */
#include "product/frame.h"
#include "base/context.h"
#include "base/error.h"
#include "choose/session.h"
#include "problem/result_rules.h"
#include "product/plan.h"
#include "quantize/quantize_plan.h"

#include <string.h>

/* Do the options name a kernel that would make the copies? */
static int is_named(const struct qn_session *s)
{
    const char *name = s->options.kernel;

    for (int i = 0; name && i < s->ctx->nkernels; i++) {
        const struct qn_kernel *kernel = s->ctx->kernels[i].kernel;

        if (!strcmp(kernel->name, name))
            return qn_select_variant(s->problem, kernel);
    }
    return 0;
}

static int add_product(struct qn_plan *plan, const struct qn_session *s)
{
    struct qn_problem p;
    struct qn_plan *product;
    int code;

    qn_result_product(&plan->problem, &p);
    code = qn_plan_inner(s, &p, &s->options, qn_epilogue_make, &product);
    if (code) {
        qn_error_add("  in the product whose result a cast would quantize");
        return code;
    }
    plan->problem.dequantize = product->problem.dequantize;
    plan->target = product->target;
    plan->need.workspace_bytes = product->need.workspace_bytes;
    qn_launch_absorb(plan, product, QN_OPERANDS_GIVEN, QN_FLAG_CALLER);
    return QUERN_OK;
}

/* Casts have one kernel each: nothing is to be named or tuned. */
static int add_cast(struct qn_plan *plan, const struct qn_session *s)
{
    struct qn_plan_options options = s->options;
    struct qn_quantize_plan *cast;
    struct qn_quantization q;
    int code;

    options.kernel = NULL;
    options.tune_ms = 0;
    qn_result_cast(&plan->problem, s->demand.recipe, &q);
    code = qn_quantize_plan_inner(s, &q, &options, &cast);
    if (code)
        qn_error_add("  in the cast of the product's result");
    else
        qn_launch_add(plan, QN_WORK_QUANTIZE_D)->cast = cast;
    return code;
}

static int add_both(struct qn_plan *plan, struct qn_session *s)
{
    struct qn_result_space space;
    int code = add_product(plan, s);

    if (!code)
        code = add_cast(plan, s);
    if (code)
        return code;
    qn_result_lay_out(&plan->problem, s->demand.recipe,
                      plan->need.workspace_bytes, &space);
    plan->cast = space.cast;
    plan->numbers = space.numbers;
    plan->need.workspace_bytes = space.end;
    return QUERN_OK;
}

/* Copies leave the product's own launch where a kernel makes them. */
int qn_result_make(struct qn_session *s, struct qn_plan **out)
{
    const int only = s->demand.backend == QUERN_BACKEND_CUBLASLT ||
                     is_named(s); /* no cast after these */
    int code = QUERN_ENOKERNEL;

    if (only || (!qn_result_apart(s->problem, s->demand.recipe) &&
                 s->problem->dequantize <= QUERN_DEQUANTIZE_MAINLOOP))
        code = qn_plan_inside(s, out);
    if (only || !qn_plan_given_up(code))
        return code;
    return qn_plan_several(s, s->problem->dequantize, add_both, out);
}
