/*
** ahead_plan.c: the plans of which a product is made that is expanded ahead.
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
    code = quern_plan(s->ctx, &p, &options, &ahead->product);
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
    code = quern_plan(s->ctx, &p, &s->options, &ahead->narrow);
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

int qn_ahead_plan(struct quern_plan *plan, struct qn_session *s)
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
    if (code)
        qn_ahead_plan_free(plan);
    return code;
}

void qn_ahead_plan_free(struct quern_plan *plan)
{
    if (!plan->ahead)
        return;
    for (int role = QN_ROLE_A; role <= QN_ROLE_B; role++)
        quern_quantize_plan_free(plan->ahead->casts[role]);
    quern_plan_free(plan->ahead->product);
    quern_plan_free(plan->ahead->narrow);
    free(plan->ahead);
    plan->ahead = NULL;
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
