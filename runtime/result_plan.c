/*
** result_plan.c: the plans of a product whose copies a cast makes, and why it
** does.
*/
#include "model.h"
#include "plan.h"
#include "quantize.h"
#include "result.h"
#include "select.h"
#include "session.h"
#include "text.h"
#include "types.h"
#include "why.h"

#include <stdlib.h>
#include <string.h>

/* ------------------------------------------------------------------- model */

/* Where a scale is of more than a block, two launches read all of the input. */

struct cost {
    double bytes, cycles;
};

static struct cost cost_of(const struct quern_problem *p,
                           const struct qn_recipe *recipe)
{
    struct quern_quantization q;
    struct quern_tensor copy = {0};
    struct cost cost;
    double read;
    int twice;

    qn_result_cast(p, recipe, &q);
    twice = qn_quantize_needs_amax(&q, qn_quantize_scaling(&q, recipe));
    read = qn_quantize_values(&q) * qn_type_bits(q.type) / 8;
    cost.bytes = twice ? 2 * read : read;
    for (int which = QUERN_ROW; which <= QUERN_COLUMN; which++) {
        if (!(q.copies & which))
            continue;
        qn_quantize_copy(&q, recipe, which, &copy);
        cost.bytes += (double)copy.bytes + (double)copy.sf_bytes;
    }
    cost.cycles = qn_model_cast(cost.bytes, 1 + twice);
    return cost;
}

/* -------------------------------------------------------------------- plan */

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
    code = quern_plan(s->ctx, &product, &s->options, &result->product);
    if (code == QUERN_ENOKERNEL &&
        qn_result_ahead(s->ctx, &product, s->demand.recipe, &ahead))
        code = quern_plan(s->ctx, &ahead, &s->options, &result->product);
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

int qn_result_plan(struct quern_plan *plan, struct qn_session *s)
{
    struct qn_result_space *space;
    int code;

    plan->result = calloc(1, sizeof *plan->result);
    if (!plan->result)
        return qn_error_memory();
    code = plan_product(plan, s);
    if (!code)
        code = plan_cast(plan, s);
    if (code) {
        qn_result_plan_free(plan);
        return code;
    }
    take_over(plan);
    space = &plan->result->space;
    space->cast = plan->result->product->need.workspace_bytes;
    qn_result_lay_out(&plan->problem, s->demand.recipe, space);
    plan->need.workspace_bytes = space->end;
    return QUERN_OK;
}

void qn_result_plan_free(struct quern_plan *plan)
{
    if (!plan->result)
        return;
    quern_plan_free(plan->result->product);
    quern_quantize_plan_free(plan->result->cast);
    free(plan->result);
    plan->result = NULL;
}

/* --------------------------------------------------------------------- why */

/* As the plan would choose; `product` becomes what it would be of. */
static int explain_product(struct qn_session *s, struct quern_problem *product,
                           struct qn_why_choice *choice, char **why)
{
    struct quern_problem ahead;
    int code = qn_why_explain(s->ctx, product, &s->options, choice, why);

    if (code || choice->served ||
        !qn_result_ahead(s->ctx, product, s->demand.recipe, &ahead))
        return code;
    *product = ahead;
    quern_free(*why);
    return qn_why_explain(s->ctx, product, &s->options, choice, why);
}

/* The product's line, and its kernels. */
static int add_product(struct qn_session *s, int *served, struct qn_text *text)
{
    struct quern_problem product;
    struct qn_why_choice choice;
    char line[512], *why = NULL;
    int code;

    qn_result_product(s->problem, &product);
    code = explain_product(s, &product, &choice, &why);
    if (code)
        return code;
    *served = choice.served;
    quern_problem_print(&product, line, sizeof line);
    qn_text_add(text, "%s\n", line);
    qn_text_add_chosen(text, "", why);
    if (!choice.served)
        qn_text_add(text, "  no kernel fits\n");
    quern_free(why);
    return QUERN_OK;
}

/* The cast's line, and its kernel unless the GPU is imagined. */
static int add_cast(struct qn_session *s, struct qn_text *text)
{
    struct quern_plan_options options = s->options;
    struct quern_quantization q;
    char line[512], *why = NULL;
    int code = QUERN_OK;

    options.kernel = NULL;
    qn_result_cast(s->problem, s->demand.recipe, &q);
    quern_quantize_print(&q, line, sizeof line);
    qn_text_add(text, "%s\n", line);
    if (s->driver || s->demand.backend == QUERN_BACKEND_HOST)
        code = quern_quantize_why(s->ctx, &q, &options, &why);
    if (why)
        qn_text_add_chosen(text, "", why);
    quern_free(why);
    return code;
}

int qn_result_why(struct qn_session *s, int apart, int *served,
                  struct qn_text *text)
{
    const struct qn_recipe *recipe = s->demand.recipe;
    const struct cost cost = cost_of(s->problem, recipe);
    const char *reason = qn_result_apart(s->problem, recipe);
    int code;

    if (!apart) {
        qn_text_add(text,
                    "copies of the result leave the product's own launch; a "
                    "cast behind it would take %.0f cycles to move %.0f MB\n\n",
                    cost.cycles, cost.bytes / 1e6);
        return QUERN_OK;
    }
    qn_text_add(text,
                "copies of the result are made by a cast behind the product, "
                "%.0f cycles to move %.0f MB: %s\n\n",
                cost.cycles, cost.bytes / 1e6,
                reason ? reason
                       : "no kernel makes them in the product's launch");
    code = add_product(s, served, text);
    return code ? code : add_cast(s, text);
}
