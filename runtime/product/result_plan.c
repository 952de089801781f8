/* SPDX-License-Identifier: Apache-2.0 */
/*
** result_plan.c: the plans of a product whose copies a cast makes, and why it
** does.
*/
#include "product/result.h"
#include "base/context.h"
#include "base/error.h"
#include "choose/session.h"
#include "product/ahead.h"
#include "product/plan.h"

#include <stdlib.h>
#include <string.h>

int qn_result_named(const struct qn_session *s)
{
    const char *name = s->options.kernel;

    for (int i = 0; name && i < s->ctx->nkernels; i++) {
        const struct qn_kernel *kernel = s->ctx->kernels[i].kernel;

        if (!strcmp(kernel->name, name))
            return qn_select_variant(s->problem, kernel);
    }
    return 0;
}

/* As the product is, or of operands that are expanded ahead, where a recipe's
   own kernels stop at the sums. */
static int plan_product(struct quern_plan *plan, const struct qn_session *s)
{
    struct qn_result_plan *result = plan->result;
    struct quern_problem product, ahead;
    int code;

    qn_result_product(&plan->problem, &product);
    code = qn_ahead_plan(s->ctx, &product, &s->options, &result->product);
    if (code == QUERN_ENOKERNEL &&
        qn_result_ahead(s->ctx, &product, s->demand.recipe, &ahead))
        code = qn_ahead_plan(s->ctx, &ahead, &s->options, &result->product);
    if (code)
        qn_error_add("  in the product whose result a cast would quantize");
    return code;
}

/* Casts have one kernel each: nothing is to be named or tuned. */
static int plan_cast(struct quern_plan *plan, const struct qn_session *s)
{
    struct quern_plan_options options = s->options;
    struct quern_quantization q;
    int code;

    options.kernel = NULL;
    options.tune_ms = 0;
    qn_result_cast(&plan->problem, s->demand.recipe, &q);
    code = quern_quantize_plan(s->ctx, &q, &options, &plan->result->cast);
    if (code)
        qn_error_add("  in the cast of the product's result");
    return code;
}

/* What the outer plan is asked about: the product's kernel, and what it says of
   operands that are the caller's. */
static void take_over(struct quern_plan *plan)
{
    const struct quern_plan *product = plan->result->product;

    qn_plan_speak_for(plan, product);
    for (int role = QN_ROLE_A; role < QN_ROLES; role++) {
        if (role == QN_ROLE_D || role == QN_ROLE_T)
            continue;
        plan->mapped[role] = product->mapped[role];
        plan->takes_pointers[role] = product->takes_pointers[role];
    }
}

static int plan_both(struct quern_plan *plan, struct qn_session *s)
{
    struct qn_result_space *space;
    int code;

    plan->result = calloc(1, sizeof *plan->result);
    if (!plan->result)
        return qn_error_memory();
    code = plan_product(plan, s);
    if (!code)
        code = plan_cast(plan, s);
    if (code)
        return code;
    take_over(plan);
    space = &plan->result->space;
    space->cast = plan->result->product->need.workspace_bytes;
    qn_result_lay_out(&plan->problem, s->demand.recipe, space);
    plan->need.workspace_bytes = space->end;
    return QUERN_OK;
}

void qn_result_drop(struct quern_plan *plan)
{
    if (plan && plan->result) {
        qn_ahead_drop(plan->result->product);
        quern_quantize_plan_free(plan->result->cast);
        free(plan->result);
    }
    qn_ahead_drop(plan);
}

/* A cast behind it quantizes the result. */
static int plan_result(struct qn_session *s, struct quern_plan **out)
{
    struct quern_plan *plan = qn_plan_new();
    int code;

    if (!plan)
        return QUERN_ENOMEM;
    qn_plan_fill(plan, s, s->problem->expand);
    code = plan_both(plan, s);
    if (code)
        qn_result_drop(plan);
    else
        *out = plan;
    return code;
}

/* Copies leave the product's own launch where a kernel makes them.
   COUPLED: imagined */
int qn_result_make(struct qn_session *s, struct quern_plan **out)
{
    const int only = s->demand.backend == QUERN_BACKEND_CUBLASLT ||
                     qn_result_named(s); /* no cast behind these */
    int code = QUERN_ENOKERNEL;

    if (only || (!qn_result_apart(s->problem, s->demand.recipe) &&
                 s->problem->expand <= QUERN_EXPAND_INSIDE))
        code = qn_plan_inside(s, out);
    return only || !qn_plan_given_up(code) ? code : plan_result(s, out);
}
