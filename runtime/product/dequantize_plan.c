/* SPDX-License-Identifier: Apache-2.0 */
/* dequantize_plan.c: the launches of a product with dequantized operands. */
#include "product/frame.h"
#include "base/context.h"
#include "base/error.h"
#include "base/types.h"
#include "choose/dequantize_choose.h"
#include "choose/session.h"
#include "problem/range_rules.h"
#include "problem/requantize_rules.h"
#include "product/plan.h"
#include "quantize/quantize_plan.h"

static const char *const steps[] = {"the dequantize pass of A",
                                    "the dequantize pass of B", "the product",
                                    "the product in FP8", "the product as f16"};

/* Casts have one kernel each: nothing is to be named or tuned. */
static int add_casts(struct qn_plan *plan, const struct qn_session *s)
{
    struct qn_plan_options options = s->options;
    struct qn_quantize_plan *cast;
    struct qn_quantization q;
    const int tried = plan->kernel != NULL;

    options.kernel = NULL;
    options.tune_ms = 0;
    for (int role = QN_ROLE_A; role <= QN_ROLE_B; role++) {
        struct qn_launch *launch;
        int code;

        if (!qn_dequantize_cast(&plan->problem, s->demand.recipe, role, &q))
            continue;
        code = qn_quantize_plan_inner(s, &q, &options, &cast);
        if (code) {
            qn_error_add("  in %s", steps[role]);
            return code;
        }
        launch = qn_launch_add(plan, QN_WORK_DEQUANTIZE);
        launch->role = role;
        launch->flag = tried ? QN_FLAG_FIT : QN_FLAG_CALLER;
        launch->cast = cast;
    }
    return QUERN_OK;
}

/* The product that every value fits. If there are two products, a kernel that
   is named is the other's. */
static int add_wide(struct qn_plan *plan, const struct qn_session *s)
{
    const int tried = plan->kernel != NULL;
    struct qn_plan_options options = s->options;
    struct qn_plan *product;
    struct qn_problem p;
    int code;

    if (tried)
        options.kernel = NULL;
    qn_dequantize_product(s->ctx, &plan->problem, s->demand.recipe, &p);
    code = qn_plan_inner(s, &p, &options, qn_plan_inside, &product);
    if (code)
        qn_error_add("  in %s", steps[2]);
    else
        qn_launch_absorb(plan, product, QN_OPERANDS_DEQUANTIZED,
                         tried ? QN_FLAG_FIT : QN_FLAG_CALLER);
    return code;
}

/* The product that is tried. The host's sums are as wide in bf16's product, so
   that it makes no other. */
static int add_narrow(struct qn_plan *plan, struct qn_session *s)
{
    const int fp8 = plan->problem.dequantize == QUERN_DEQUANTIZE_FP8;
    struct qn_plan_options options = s->options;
    struct qn_plan *product;
    struct qn_problem p;
    int code;

    if (plan->problem.dequantize == QUERN_DEQUANTIZE_PASS || !qn_session_gpu(s))
        return QUERN_OK;
    if (fp8)
        qn_requantize_product(s->ctx, s->problem, s->demand.recipe, &p);
    else
        qn_range_product(s->problem, &p);
    if (!fp8)
        options.tune_ms = 0;
    code = qn_plan_inner(s, &p, &options, qn_plan_inside, &product);
    if (code)
        qn_error_add("  in %s", steps[fp8 ? 3 : 4]);
    else
        qn_launch_absorb(plan, product, QN_OPERANDS_REQUANTIZED,
                         QN_FLAG_MISFIT);
    return code;
}

/* Small kernels that run before all others. */
static int add_first(struct qn_plan *plan, const struct qn_session *s)
{
    const struct qn_problem *p = &plan->problem;
    const struct qn_recipe *recipe = s->demand.recipe;
    const int fp8 = p->dequantize == QUERN_DEQUANTIZE_FP8 && qn_session_gpu(s);
    int code;

    if (p->sizes && qn_session_gpu(s))
        qn_launch_add(plan, QN_WORK_SIZES);
    code = qn_fuse_plan(plan, s);
    if (code)
        return code;
    if (p->dequantize == QUERN_DEQUANTIZE_F16 && qn_session_gpu(s))
        qn_launch_add(plan, QN_WORK_RANGE);
    else if (qn_dequantize_factors(p, recipe) ||
             qn_dequantize_align(p, recipe) || fp8)
        qn_launch_add(plan, QN_WORK_PREPARE);
    for (int role = QN_ROLE_A; fp8 && role <= QN_ROLE_B; role++)
        if (qn_requantize_does(p, recipe, role))
            qn_launch_add(plan, QN_WORK_REQUANTIZE)->role = role;
    return QUERN_OK;
}

/* Their kernels, of the backend that the product's kernel has. */
static int load_step(const struct qn_plan *plan, struct qn_session *s,
                     struct qn_launch *launch)
{
    static const struct {
        int op;
        const char *task; /* NULL: the launch has no such kernel */
    } kernels[QN_WORKS] = {
        [QN_WORK_SIZES] = {QN_SIZES, "loads sizes from the host"},
        [QN_WORK_PREPARE] = {QN_FACTORS, "prepares a dequantize pass"},
        [QN_WORK_RANGE] = {QN_RANGE, "checks whether f16 holds the values"}};
    const int work = launch->work;

    if (work == QN_WORK_REQUANTIZE)
        return qn_requantize_load(s, launch->role, plan->backend,
                                  &launch->step);
    return kernels[work].task
               ? qn_step_load(s, kernels[work].op, QN_X, kernels[work].task,
                              plan->problem.recipe, plan->backend,
                              &launch->step)
               : QUERN_OK;
}

static int add_all(struct qn_plan *plan, struct qn_session *s)
{
    int code;

    if (plan->problem.dequantize == QUERN_DEQUANTIZE_FP8 && qn_session_gpu(s))
        plan->target = qn_requantize_target(s->ctx, s->demand.recipe);
    code = add_first(plan, s);
    if (!code)
        code = add_narrow(plan, s);
    if (!code)
        code = add_casts(plan, s);
    if (!code)
        code = add_wide(plan, s);
    for (int i = 0; !code && qn_session_gpu(s) && i < plan->nlaunches; i++)
        code = load_step(plan, s, &plan->launches[i]);
    return code;
}

/* A strategy that the problem does not name may be given up for the
   mainloop. */
int qn_dequantize_make(struct qn_session *s, struct qn_plan **out)
{
    struct qn_dequantize_choice choice = {.strategy =
                                              QUERN_DEQUANTIZE_MAINLOOP};
    int code = QUERN_OK;

    if (s->problem->dequantize == QUERN_DEQUANTIZE_AUTO)
        code = qn_plan_tune(s);
    if (!code)
        code = qn_dequantize_choose(s, &choice);
    while (!code && choice.strategy != QUERN_DEQUANTIZE_MAINLOOP) {
        code = qn_plan_several(s, choice.strategy, add_all, out);
        if (!code)
            (*out)->tuned |= choice.tuned;
        if (choice.asked || !qn_plan_given_up(code))
            return code;
        qn_context_log(s->ctx, QUERN_LOG_INFO, "not dequantized as %s: %s",
                       qn_dequantize_name(choice.strategy), qn_error_text());
        choice.strategy = qn_dequantize_next(&choice);
        choice.tuned = 0;
        code = QUERN_OK;
    }
    return code ? code : qn_plan_inside(s, out);
}
