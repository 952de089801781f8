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

/* What the product says of operands that are the caller's. */
static void take_operands(struct quern_plan *plan,
                          const struct quern_plan *product)
{
    for (int role = QN_ROLE_A; role < QN_ROLES; role++) {
        if (role == QN_ROLE_D || role == QN_ROLE_T)
            continue;
        plan->mapped[role] = product->mapped[role];
        plan->takes_pointers[role] = product->takes_pointers[role];
    }
}

static int add_product(struct quern_plan *plan, const struct qn_session *s)
{
    struct quern_problem p;
    struct quern_plan *product;
    int code;

    qn_result_product(&plan->problem, &p);
    code = quern_plan(s->ctx, &p, &s->options, &product);
    if (code) {
        qn_error_add("  in the product whose result a cast would quantize");
        return code;
    }
    take_operands(plan, product);
    plan->problem.expand = product->problem.expand;
    plan->blocks = product->blocks;
    plan->cast = product->need.workspace_bytes;
    qn_launch_absorb(plan, product, QN_OPERANDS_GIVEN, QN_FLAG_CALLER);
    return QUERN_OK;
}

/* Casts have one kernel each: nothing is to be named or tuned. */
static int add_cast(struct quern_plan *plan, const struct qn_session *s)
{
    struct quern_plan_options options = s->options;
    struct quern_quantize_plan *cast;
    struct quern_quantization q;
    int code;

    options.kernel = NULL;
    options.tune_ms = 0;
    qn_result_cast(&plan->problem, s->demand.recipe, &q);
    code = quern_quantize_plan(s->ctx, &q, &options, &cast);
    if (code)
        qn_error_add("  in the cast of the product's result");
    else
        qn_launch_add(plan, QN_WORK_QUANTIZE_D)->cast = cast;
    return code;
}

int qn_result_plan(struct quern_plan *plan, struct qn_session *s)
{
    struct qn_result_space space;
    int code = add_product(plan, s);

    if (!code)
        code = add_cast(plan, s);
    if (code)
        return code;
    space.cast = plan->cast;
    qn_result_lay_out(&plan->problem, s->demand.recipe, &space);
    plan->cast = space.cast;
    plan->numbers = space.numbers;
    plan->need.workspace_bytes = space.end;
    return QUERN_OK;
}

/* --------------------------------------------------------------------- why */

/* The product's line, and its kernels. */
static int explain_both(struct qn_session *s, int *served, struct qn_text *text)
{
    struct quern_problem product;
    struct qn_why_choice choice;
    char line[512], *why = NULL;
    int code;

    qn_result_product(s->problem, &product);
    code = qn_why_explain(s->ctx, &product, &s->options, &choice, &why);
    if (code)
        return code;
    *served = choice.served;
    quern_problem_print(&product, line, sizeof line);
    qn_text_add(text, "%s\n", line);
    if (choice.unfused)
        qn_text_add(text, "no kernel fuses its bias or activation\n");
    qn_text_add_chosen(text, "", why);
    if (!choice.served)
        qn_text_add(text, "  no kernel fits\n");
    quern_free(why);
    return QUERN_OK;
}

/* The cast's line, and its kernel unless the GPU is imagined. */
static int explain_cast(struct qn_session *s, struct qn_text *text)
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
    code = explain_both(s, served, text);
    return code ? code : explain_cast(s, text);
}
