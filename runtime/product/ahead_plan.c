/* SPDX-License-Identifier: Apache-2.0 */
/*
** ahead_plan.c: the plans of which a product is made that is expanded ahead.
*/
#include "product/ahead.h"
#include "base/context.h"
#include "base/error.h"
#include "base/types.h"
#include "choose/ahead_choose.h"
#include "choose/session.h"
#include "problem/look_rules.h"
#include "problem/reencode_rules.h"
#include "product/look.h"
#include "product/plan.h"
#include "product/reencode.h"

#include <stdlib.h>

static const char *const steps[] = {"the expansion of A", "the expansion of B",
                                    "the product", "the product in FP8",
                                    "the product as f16"};

/* Casts have one kernel each: nothing is to be named or tuned. */
static int plan_casts(struct quern_plan *plan, const struct qn_session *s)
{
    struct qn_ahead_plan *ahead = plan->ahead;
    struct quern_plan_options options = s->options;
    struct quern_quantization q;
    int code = QUERN_OK;

    options.kernel = NULL;
    options.tune_ms = 0;
    for (int role = QN_ROLE_A; !code && role <= QN_ROLE_B; role++) {
        if (!qn_ahead_cast(&plan->problem, s->demand.recipe, role, &q))
            continue;
        code = quern_quantize_plan(s->ctx, &q, &options, &ahead->casts[role]);
        if (code)
            qn_error_add("  in %s", steps[role]);
    }
    return code;
}

/* Where there are two products a kernel that is named is that of the first. */
static int plan_product(struct quern_plan *plan, const struct qn_session *s)
{
    struct qn_ahead_plan *ahead = plan->ahead;
    struct quern_plan_options options = s->options;
    struct quern_problem p;
    int code;

    if (ahead->narrow)
        options.kernel = NULL;
    qn_ahead_product(s->ctx, &plan->problem, s->demand.recipe, &p);
    code = qn_plan_one(s->ctx, &p, &options, &ahead->product);
    if (code)
        qn_error_add("  in %s", steps[2]);
    return code;
}

/* The host's sums are as wide in bf16's product, so that it makes no other. */
static int plan_narrow(struct quern_plan *plan, struct qn_session *s)
{
    struct qn_ahead_plan *ahead = plan->ahead;
    struct quern_problem p;
    int code;

    if (plan->problem.expand != QUERN_EXPAND_FP8 || !s->driver)
        return QUERN_OK;
    ahead->blocks = qn_reencode_blocks(s->ctx);
    qn_reencode_product(s->ctx, s->problem, &p);
    code = qn_plan_one(s->ctx, &p, &s->options, &ahead->narrow);
    for (int role = QN_ROLE_A; !code && role <= QN_ROLE_B; role++)
        if (qn_reencode_does(s->problem, s->demand.recipe, role))
            code = qn_reencode_load(s, role, ahead->narrow->backend,
                                    &ahead->encode[role]);
    if (code)
        qn_error_add("  in %s", steps[3]);
    return code;
}

/* The host's sums have room for both. */
static int plan_f16(struct quern_plan *plan, struct qn_session *s)
{
    struct qn_ahead_plan *ahead = plan->ahead;
    struct quern_plan_options options = s->options;
    struct quern_problem p;
    int code;

    if (plan->problem.expand != QUERN_EXPAND_F16 || !s->driver)
        return QUERN_OK;
    options.tune_ms = 0;
    qn_look_product(s->problem, &p);
    code = qn_plan_alone(s->ctx, &p, &options, &ahead->narrow);
    if (!code)
        code = qn_look_load(s, ahead->narrow->backend, &ahead->step);
    if (code)
        qn_error_add("  in %s", steps[4]);
    return code;
}

/* What the outer plan is asked about: the product's kernel, and what it says of
   operands that are the caller's. Of two products the first is meant to run,
   and both say something of operands. */
static void take_over(struct quern_plan *plan)
{
    const struct quern_plan *other = plan->ahead->product;
    const struct quern_plan *product =
        plan->ahead->narrow ? plan->ahead->narrow : other;

    qn_plan_speak_for(plan, product);
    for (int role = QN_ROLE_A; role < QN_ROLES; role++) {
        if (plan->operands[role].sf.scaling &&
            plan->problem.expand != QUERN_EXPAND_F16)
            continue;
        plan->mapped[role] = product->mapped[role] || other->mapped[role];
        plan->takes_pointers[role] =
            product->takes_pointers[role] && other->takes_pointers[role];
    }
}

/* Small kernels, from where the product's is. */
static int load_steps(struct quern_plan *plan, struct qn_session *s)
{
    const struct quern_problem *p = &plan->problem;
    int code = QUERN_OK;

    if (!plan->driver)
        return QUERN_OK;
    if (p->sizes)
        code = qn_step_load(s, QN_SIZES, QUERN_X, "brings sizes from the host",
                            p->recipe, plan->backend, &plan->size_step);
    if (!code && p->expand != QUERN_EXPAND_F16 &&
        (qn_ahead_factors(p, s->demand.recipe) ||
         qn_ahead_align(p, s->demand.recipe) || plan->ahead->narrow))
        code = qn_step_load(s, QN_AHEAD, QUERN_X,
                            "prepares what is expanded ahead", p->recipe,
                            plan->backend, &plan->ahead->step);
    return code;
}

static int plan_all(struct quern_plan *plan, struct qn_session *s)
{
    int code;

    plan->ahead = calloc(1, sizeof *plan->ahead);
    if (!plan->ahead)
        return qn_error_memory();
    plan->ahead->recipe = s->demand.recipe;
    code = plan_casts(plan, s);
    if (!code)
        code = plan_narrow(plan, s);
    if (!code)
        code = plan_f16(plan, s);
    if (!code)
        code = plan_product(plan, s);
    if (!code) {
        take_over(plan);
        code = load_steps(plan, s);
    }
    return code;
}

void qn_ahead_drop(struct quern_plan *plan)
{
    if (plan && plan->ahead) {
        for (int role = QN_ROLE_A; role <= QN_ROLE_B; role++)
            quern_quantize_plan_free(plan->ahead->casts[role]);
        qn_plan_drop(plan->ahead->product);
        qn_plan_drop(plan->ahead->narrow);
        free(plan->ahead);
    }
    qn_plan_drop(plan);
}

/* Launches before the product expand its operands. */
static int plan_ahead(struct qn_session *s, int way, struct quern_plan **out)
{
    struct quern_plan *plan = qn_plan_new();
    int code;

    if (!plan)
        return QUERN_ENOMEM;
    qn_plan_fill(plan, s, way);
    code = plan_all(plan, s);
    if (code)
        qn_ahead_drop(plan);
    else
        *out = plan;
    return code;
}

/* What nobody asked for may be given up: FP8 for bf16, and that for what
   expands inside. COUPLED: imagined */
int qn_ahead_make(struct qn_session *s, struct quern_plan **out)
{
    struct qn_ahead_choice choice = {.way = QUERN_EXPAND_INSIDE};
    int code = QUERN_OK;

    if (s->problem->expand == QUERN_EXPAND_AUTO)
        code = qn_plan_tune(s);
    if (!code)
        code = qn_ahead_choose(s, &choice);
    while (!code && choice.way != QUERN_EXPAND_INSIDE) {
        code = plan_ahead(s, choice.way, out);
        if (!code)
            (*out)->tuned |= choice.tuned;
        if (choice.asked || !qn_plan_given_up(code))
            return code;
        qn_context_log(s->ctx, QUERN_LOG_INFO, "not expanded as %s: %s",
                       qn_expand_name(choice.way), qn_error_text());
        choice.way = qn_ahead_next(&choice);
        choice.tuned = 0;
        code = QUERN_OK;
    }
    return code ? code : qn_plan_inside(s, out);
}

int qn_ahead_plan(struct quern_context *ctx,
                  const struct quern_problem *problem,
                  const struct quern_plan_options *options,
                  struct quern_plan **plan)
{
    struct qn_session session;
    int code = qn_plan_begin(&session, ctx, problem, options, 0);

    *plan = NULL;
    if (!code)
        code = qn_ahead_make(&session, plan);
    return qn_plan_end(&session, *plan, code);
}
