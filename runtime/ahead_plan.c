/*
** ahead_plan.c: the plans of which a product is made that is expanded ahead.
*/
#include "ahead.h"
#include "problem.h"

#include <stdlib.h>
#include <string.h>

static const char *const steps[] = {"the expansion of A", "the expansion of B",
                                    "the product"};

/* Casts have one kernel each: nothing is to be named or tuned. */
static int plan_casts(struct qn_ahead_plan *ahead, const struct qn_session *s)
{
    struct quern_plan_options options = s->options;
    struct quern_quantization q;
    int code = QUERN_OK;

    options.kernel = NULL;
    options.tune_ms = 0;
    for (int role = QN_ROLE_A; !code && role <= QN_ROLE_B; role++) {
        if (!qn_ahead_cast(s->problem, s->demand.recipe, role, &q))
            continue;
        code = quern_quantize_plan(s->ctx, &q, &options, &ahead->casts[role]);
        if (code)
            qn_error_add("  in %s", steps[role]);
    }
    return code;
}

static int plan_product(struct qn_ahead_plan *ahead, const struct qn_session *s)
{
    struct quern_problem p;
    int code;

    qn_ahead_product(s->ctx, s->problem, s->demand.recipe, &p);
    code = quern_plan(s->ctx, &p, &s->options, &ahead->product);
    if (code)
        qn_error_add("  in %s", steps[2]);
    return code;
}

/* What the outer plan is asked about: the product's kernel, and what it says of
   operands that are the caller's. */
static void take_over(struct quern_plan *plan)
{
    const struct quern_plan *product = plan->ahead->product;

    plan->kernel = product->kernel;
    plan->backend = product->backend;
    plan->tuned = product->tuned;
    plan->workers = product->workers;
    plan->driver = product->driver;
    plan->context = product->context;
    plan->parts = 1;
    for (int role = QN_ROLE_A; role < QN_ROLES; role++) {
        if (plan->operands[role].sf.scaling)
            continue;
        plan->mapped[role] = product->mapped[role];
        plan->takes_pointers[role] = product->takes_pointers[role];
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
        code = qn_step_load(s, QN_SIZES, "brings sizes from the host",
                            p->recipe, plan->backend, &plan->size_step);
    if (!code && (qn_ahead_factors(p, s->demand.recipe) ||
                  qn_ahead_align(p, s->demand.recipe)))
        code = qn_step_load(s, QN_AHEAD, "prepares what is expanded ahead",
                            p->recipe, plan->backend, &plan->ahead->step);
    return code;
}

int qn_ahead_plan(struct quern_plan *plan, struct qn_session *s)
{
    int code;

    plan->ahead = calloc(1, sizeof *plan->ahead);
    if (!plan->ahead)
        return qn_error_memory();
    plan->ahead->recipe = s->demand.recipe;
    code = plan_casts(plan->ahead, s);
    if (!code)
        code = plan_product(plan->ahead, s);
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

/* The kernels that would run. */
static int explain_steps(struct qn_session *s, struct qn_text *text)
{
    struct quern_plan_options options = s->options;
    struct quern_quantization q;
    struct quern_problem p;
    char line[512], *why = NULL;
    int code = QUERN_OK;

    options.kernel = NULL;
    for (int role = QN_ROLE_A; !code && role <= QN_ROLE_B; role++)
        if (qn_ahead_cast(s->problem, s->demand.recipe, role, &q))
            code = explain_cast(s, &q, &options, text);
    qn_ahead_product(s->ctx, s->problem, s->demand.recipe, &p);
    if (!code)
        code = quern_why(s->ctx, &p, &s->options, &why);
    if (code)
        return code;
    quern_problem_print(&p, line, sizeof line);
    qn_text_add(text, "%s\n", line);
    qn_text_add_chosen(text, "", why);
    quern_free(why);
    return QUERN_OK;
}

int qn_ahead_why(struct qn_session *s, const struct qn_ahead_choice *choice,
                 struct qn_text *text)
{
    const struct qn_ahead_figures *f = &choice->figures;
    struct qn_ahead_space space;
    int code;

    if (choice->judged)
        qn_text_add(text,
                    "expand=%s: ahead %.0f cycles, %.0f of them to move %.0f "
                    "MB; inside %.0f, as products wait for what expands\n",
                    choice->ahead ? "ahead" : "inside", f->ahead, f->moving,
                    f->bytes / 1e6, f->inside);
    else if (choice->asked)
        qn_text_add(text, "expand=ahead, as the problem says\n");
    if (!choice->ahead) {
        if (choice->judged)
            qn_text_add(text, "\n");
        return QUERN_OK;
    }
    qn_ahead_lay_out(s->problem, s->demand.recipe, &space);
    qn_text_add(text, "operands become bf16 in %zu bytes of workspace\n\n",
                space.end);
    code = explain_steps(s, text);
    if (!code && !choice->asked)
        qn_text_add(text,
                    "\nkernels that would expand beside their products\n");
    return code;
}
