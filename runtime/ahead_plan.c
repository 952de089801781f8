/*
** ahead_plan.c: the launches of a product with dequantized operands.
*/
#include "ahead.h"
#include "plan.h"
#include "problem.h"
#include "select.h"
#include "types.h"
#include "why.h"

#include <stdlib.h>
#include <string.h>

static const char *const steps[] = {"the expansion of A", "the expansion of B",
                                    "the product", "the product in FP8",
                                    "the product as f16"};

/* Casts have one kernel each: nothing is to be named or tuned. */
static int add_casts(struct quern_plan *plan, const struct qn_session *s)
{
    struct quern_plan_options options = s->options;
    struct quern_quantize_plan *cast;
    struct quern_quantization q;
    const int tried = plan->kernel != NULL;

    options.kernel = NULL;
    options.tune_ms = 0;
    for (int role = QN_ROLE_A; role <= QN_ROLE_B; role++) {
        struct qn_launch *launch;
        int code;

        if (!qn_ahead_cast(&plan->problem, s->demand.recipe, role, &q))
            continue;
        code = quern_quantize_plan(s->ctx, &q, &options, &cast);
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

/* What the product says of operands that are the caller's. Of two products both
   have a say. */
static void take_operands(struct quern_plan *plan,
                          const struct quern_plan *product)
{
    const int first = !plan->kernel;

    for (int role = QN_ROLE_A; role < QN_ROLES; role++) {
        if (plan->operands[role].sf.scaling &&
            plan->problem.expand != QUERN_EXPAND_F16)
            continue;
        plan->mapped[role] =
            product->mapped[role] || (!first && plan->mapped[role]);
        plan->takes_pointers[role] = product->takes_pointers[role] &&
                                     (first || plan->takes_pointers[role]);
    }
}

static void add_product(struct quern_plan *plan, struct quern_plan *product,
                        int operands, int flag)
{
    take_operands(plan, product);
    qn_launch_absorb(plan, product, operands, flag);
}

/* The product that every value fits. If there are two products, a kernel that is
   named is the other's. */
static int add_wide(struct quern_plan *plan, const struct qn_session *s)
{
    const int tried = plan->kernel != NULL;
    struct quern_plan_options options = s->options;
    struct quern_plan *product;
    struct quern_problem p;
    int code;

    if (tried)
        options.kernel = NULL;
    qn_ahead_product(s->ctx, &plan->problem, s->demand.recipe, &p);
    code = qn_plan_fused(s->ctx, &p, &options, &product);
    if (code)
        qn_error_add("  in %s", steps[2]);
    else
        add_product(plan, product, QN_OPERANDS_DEQUANTIZED,
                    tried ? QN_FLAG_FIT : QN_FLAG_CALLER);
    return code;
}

/* The product that is tried. The host's sums are as wide in bf16's product, so
   that it makes no other. */
static int add_narrow(struct quern_plan *plan, struct qn_session *s)
{
    const int fp8 = plan->problem.expand == QUERN_EXPAND_FP8;
    struct quern_plan_options options = s->options;
    struct quern_plan *product;
    struct quern_problem p;
    int code;

    if (plan->problem.expand == QUERN_EXPAND_AHEAD || !s->driver)
        return QUERN_OK;
    if (fp8) {
        qn_reencode_product(s->ctx, s->problem, &p);
        code = qn_plan_fused(s->ctx, &p, &options, &product);
    } else {
        options.tune_ms = 0;
        qn_look_product(s->problem, &p);
        code = qn_plan_alone(s->ctx, &p, &options, &product);
    }
    if (code)
        qn_error_add("  in %s", steps[fp8 ? 3 : 4]);
    else
        add_product(plan, product, QN_OPERANDS_REQUANTIZED, QN_FLAG_MISFIT);
    return code;
}

/* Small kernels that run before all others. */
static void add_first(struct quern_plan *plan, const struct qn_session *s)
{
    const struct quern_problem *p = &plan->problem;
    const struct qn_recipe *recipe = s->demand.recipe;
    const int fp8 = p->expand == QUERN_EXPAND_FP8 && s->driver;

    if (p->sizes && s->driver)
        qn_launch_add(plan, QN_WORK_SIZES);
    if (p->expand == QUERN_EXPAND_F16 && s->driver)
        qn_launch_add(plan, QN_WORK_RANGE);
    else if (qn_ahead_factors(p, recipe) || qn_ahead_align(p, recipe) || fp8)
        qn_launch_add(plan, QN_WORK_PREPARE);
    for (int role = QN_ROLE_A; fp8 && role <= QN_ROLE_B; role++)
        if (qn_reencode_does(p, recipe, role))
            qn_launch_add(plan, QN_WORK_REQUANTIZE)->role = role;
}

/* Their kernels, of the backend that the product's kernel has. */
static int load_step(const struct quern_plan *plan, struct qn_session *s,
                     struct qn_launch *launch)
{
    const char *recipe = plan->problem.recipe;

    switch (launch->work) {
    case QN_WORK_SIZES:
        return qn_step_load(s, QN_SIZES, QUERN_X, "brings sizes from the host",
                            recipe, plan->backend, &launch->step);
    case QN_WORK_PREPARE:
        return qn_step_load(s, QN_AHEAD, QUERN_X,
                            "prepares what is expanded ahead", recipe,
                            plan->backend, &launch->step);
    case QN_WORK_RANGE:
        return qn_look_load(s, plan->backend, &launch->step);
    case QN_WORK_REQUANTIZE:
        return qn_reencode_load(s, launch->role, plan->backend, &launch->step);
    default:
        return QUERN_OK;
    }
}

int qn_ahead_plan(struct quern_plan *plan, struct qn_session *s)
{
    int code;

    if (plan->problem.expand == QUERN_EXPAND_FP8 && s->driver)
        plan->blocks = qn_reencode_blocks(s->ctx);
    add_first(plan, s);
    code = add_narrow(plan, s);
    if (!code)
        code = add_casts(plan, s);
    if (!code)
        code = add_wide(plan, s);
    for (int i = 0; !code && plan->driver && i < plan->nlaunches; i++)
        code = load_step(plan, s, &plan->launches[i]);
    return code;
}

/* --------------------------------------------------------------------- why */

/* A cast's line, and its kernel unless the GPU is imagined. */
static int explain_cast(struct qn_session *s,
                        const struct quern_quantization *q,
                        const struct quern_plan_options *options,
                        struct qn_text *text)
{
    char line[512], *why = NULL;
    int code = QUERN_OK;

    quern_quantize_print(q, line, sizeof line);
    qn_text_add(text, "%s\n", line);
    if (s->driver || s->demand.backend == QUERN_BACKEND_HOST)
        code = quern_quantize_why(s->ctx, q, options, &why);
    if (why)
        qn_text_add_chosen(text, "", why);
    quern_free(why);
    return code;
}

/* A product's line, and its kernel. */
static int explain_product(struct qn_session *s, const struct quern_problem *p,
                           const struct quern_plan_options *options,
                           int *served, struct qn_text *text)
{
    struct qn_why_choice choice;
    char line[512], *why = NULL;
    int code = qn_why_explain(s->ctx, p, options, &choice, &why);

    if (code)
        return code;
    *served &= choice.served;
    quern_problem_print(p, line, sizeof line);
    qn_text_add(text, "%s\n", line);
    qn_text_add_chosen(text, "", why);
    quern_free(why);
    return QUERN_OK;
}

/* The kernels that would run, of a problem that says which way. */
static int explain_steps(struct qn_session *s,
                         const struct quern_problem *given, int second,
                         int *served, struct qn_text *text)
{
    struct quern_plan_options options = s->options, product = s->options;
    struct quern_quantization q;
    struct quern_problem p;
    int code = QUERN_OK;

    options.kernel = NULL;
    if (second)
        product.kernel = NULL;
    for (int role = QN_ROLE_A; !code && role <= QN_ROLE_B; role++)
        if (qn_ahead_cast(given, s->demand.recipe, role, &q))
            code = explain_cast(s, &q, &options, text);
    qn_ahead_product(s->ctx, given, s->demand.recipe, &p);
    return code ? code : explain_product(s, &p, &product, served, text);
}

/* The same of FP8, and what stands behind it. */
static int explain_fp8(struct qn_session *s, int *served, struct qn_text *text)
{
    struct quern_problem p;
    int code;

    if (s->demand.backend == QUERN_BACKEND_HOST) {
        qn_text_add(text, "on the host none of this: its sums are wide, and "
                          "the values as they are\n\n");
        return explain_steps(s, s->problem, 0, served, text);
    }
    for (int role = QN_ROLE_A; role <= QN_ROLE_B; role++)
        if (qn_reencode_does(s->problem, s->demand.recipe, role))
            qn_reencode_why(s, role, text);
    qn_reencode_product(s->ctx, s->problem, &p);
    code = explain_product(s, &p, &s->options, served, text);
    if (code)
        return code;
    qn_text_add(text, "\nif some value does not fit, by a flag on the "
                      "device\n");
    return explain_steps(s, s->problem, 1, served, text);
}

/* The product as f16. */
static int explain_tried(struct qn_session *s, const struct quern_problem *p,
                         int *served, struct qn_text *text)
{
    struct qn_demand demand = s->demand;
    struct qn_choice best;
    char line[512];
    int found;

    demand.problem = p;
    found = qn_select_best(s->ctx, &demand, &best);
    if (found < 0)
        return QUERN_ENOMEM;
    *served &= found;
    quern_problem_print(p, line, sizeof line);
    qn_text_add(text, "%s\n%s %s\n", line, found ? ">" : " ",
                found ? best.candidate->kernel->name : "no kernel fits");
    if (found)
        qn_text_add(text, "    %.0f cycles: %.0f tiles in %.0f waves of %.0f\n",
                    best.figures.cycles, best.figures.tiles, best.figures.waves,
                    best.figures.tile_cycles);
    return QUERN_OK;
}

/* What looks, the product, and what stands behind it. */
static int explain_f16(struct qn_session *s, int *served, struct qn_text *text)
{
    struct quern_problem p;
    int code = QUERN_OK;

    qn_look_product(s->problem, &p);
    if (s->demand.backend == QUERN_BACKEND_HOST)
        qn_text_add(text, "on the host none of this: its products are wide\n");
    else {
        qn_look_why(s, text);
        code = explain_tried(s, &p, served, text);
        qn_text_add(text, "\nif some value does not fit, by a flag on the "
                          "device\n");
    }
    return code ? code : explain_steps(s, &p, 1, served, text);
}

/* What was compared. */
static void add_figures(const struct qn_ahead_choice *choice,
                        struct qn_text *text)
{
    static const int ways[] = {QUERN_EXPAND_FP8, QUERN_EXPAND_F16,
                               QUERN_EXPAND_AHEAD};

    qn_text_add(text, "expand=%s%s: ", qn_expand_name(choice->way),
                choice->tuned ? ", as was measured; by the model" : "");
    for (int i = 0; i < 3; i++) {
        const struct qn_ahead_cost *cost = &choice->cost[ways[i]];

        if (cost->cycles > 0)
            qn_text_add(text, "%s %.0f cycles, %.0f of them to move %.0f MB; ",
                        qn_expand_name(ways[i]), cost->cycles, cost->moving,
                        cost->bytes / 1e6);
    }
    qn_text_add(text, "inside %.0f, as products wait for what expands\n",
                choice->cost[QUERN_EXPAND_INSIDE].cycles);
}

/* What becomes of the operands, and what it takes. */
static void add_way(struct qn_session *s, int way, struct qn_text *text)
{
    const struct qn_recipe *blocks =
        way == QUERN_EXPAND_FP8 ? qn_reencode_blocks(s->ctx) : NULL;
    struct quern_quantization q;
    struct qn_ahead_space space;

    if (way == QUERN_EXPAND_F16) {
        qn_text_add(text, "codes become f16 beside the product, relative to "
                          "each operand's largest scale: exact, where its "
                          "scales are within 2^21 of each other\n\n");
        return;
    }
    qn_ahead_lay_out(s->problem, s->demand.recipe, blocks, &space);
    if (blocks)
        qn_text_add(
            text,
            "operands become e4m3 with a power of two for 128 values of k, the "
            "same values, in %zu bytes of workspace\n"
            "sums are those of FP8 tensor cores, of about 13 bits for 128 "
            "values; expand=inside%s sums in fp32\n\n",
            space.end,
            qn_ahead_cast(s->problem, s->demand.recipe, QN_ROLE_A, &q)
                ? " or ahead"
                : "");
    else
        qn_text_add(text, "operands become bf16 in %zu bytes of workspace\n\n",
                    space.end);
}

/* Why values that may be expanded are not to be had in FP8. */
static void add_wrong(struct qn_session *s, struct qn_text *text)
{
    const struct quern_problem *p = s->problem;
    const char *why = qn_reencode_wrong(s->ctx, p, s->demand.recipe);

    if (why && p->expand == QUERN_EXPAND_AUTO &&
        !qn_ahead_check(s->ctx, p, s->demand.recipe))
        qn_text_add(text, "not as fp8: %s\n", why);
    why = qn_look_wrong(p, s->demand.recipe);
    if (why && p->expand == QUERN_EXPAND_AUTO &&
        !qn_ahead_check(s->ctx, p, s->demand.recipe))
        qn_text_add(text, "not as f16: %s\n", why);
}

/* Sizes alone may have decided. */
static int is_small(struct qn_session *s)
{
    const struct quern_problem *p = s->problem;
    const struct qn_recipe *recipe = s->demand.recipe;

    return p->expand == QUERN_EXPAND_AUTO && !s->demand.kernel &&
           s->demand.backend != QUERN_BACKEND_HOST &&
           !qn_ahead_wrong(s->ctx, p, recipe, QUERN_EXPAND_AHEAD) &&
           !qn_ahead_end(s->ctx, p, recipe);
}

int qn_ahead_why(struct qn_session *s, const struct qn_ahead_choice *choice,
                 int *served, struct qn_text *text)
{
    int code;

    add_wrong(s, text);
    if (choice->judged)
        add_figures(choice, text);
    else if (choice->asked)
        qn_text_add(text, "expand=%s, as the problem says\n",
                    qn_expand_name(choice->way));
    else if (is_small(s))
        qn_text_add(text, "expand=inside: too few rows meet each weight to "
                          "expand them in launches of their own\n\n");
    if (choice->way == QUERN_EXPAND_INSIDE) {
        if (choice->judged)
            qn_text_add(text, "\n");
        return QUERN_OK;
    }
    add_way(s, choice->way, text);
    code = choice->way == QUERN_EXPAND_FP8 ? explain_fp8(s, served, text)
           : choice->way == QUERN_EXPAND_F16
               ? explain_f16(s, served, text)
               : explain_steps(s, s->problem, 0, served, text);
    if (!code && !choice->asked)
        qn_text_add(text,
                    "\nkernels that would expand beside their products\n");
    return code;
}
