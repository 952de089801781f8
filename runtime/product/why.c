/* SPDX-License-Identifier: Apache-2.0 */
/*
** why.c: explain which launches a plan has and why, and each other kernel.
*/
#include "product/why.h"
#include "base/context.h"
#include "base/error.h"
#include "base/text.h"
#include "base/types.h"
#include "choose/dequantize_choose.h"
#include "choose/evidence.h"
#include "choose/model.h"
#include "choose/session.h"
#include "choose/trial.h"
#include "problem/fuse_rules.h"
#include "problem/problem.h"
#include "product/frame.h"
#include "product/backend.h"
#include "product/outside.h"
#include "product/plan.h"
#include "quantize/quantize_plan.h"

#include <stdlib.h>
#include <string.h>

/* ------------------------------------------------------------------- lists */

static void add_step(const struct qn_quantize_step *step, const char *indent,
                     struct qn_text *text)
{
    qn_step_explain(step->kernel->name, step->dependent, indent, text);
}

/* The model's estimate, below a kernel's name. */
static void add_figures(const struct qn_figures *f, const char *indent,
                        struct qn_text *text)
{
    qn_text_add(text,
                "%s    %.0f cycles: %.0f tiles in %.6g waves of %.0f, memory "
                "%.0f (%.0f MB are read again)\n"
                "%s    a tile: math %.0f, copies %.0f, store %.0f; %.0f %% of "
                "it real\n",
                indent, f->cycles, f->tiles, f->waves, f->tile_cycles,
                f->memory_cycles, f->again / 1e6, indent, f->math, f->copy,
                f->store, 100 * f->real);
}

static void add_product(const struct qn_plan *plan, const char *indent,
                        struct qn_text *text)
{
    qn_step_explain(plan->kernel->name, plan->dependent, indent, text);
    if (plan->backend != QUERN_BACKEND_HOST)
        add_figures(&plan->figures, indent, text);
}

static void print_line(const struct qn_plan *plan, char *line, size_t size)
{
    struct qn_problem p = plan->problem;

    if (p.dequantize == QUERN_DEQUANTIZE_MAINLOOP)
        p.dequantize = QUERN_DEQUANTIZE_AUTO; /* as most lines have it */
    qn_problem_print(&p, line, size);
}

/* The purpose of a launch, if no line of a problem says it. */
static const char *const purposes[QN_WORKS] = {
    [QN_WORK_SIZES] = "sizes from the host",
    [QN_WORK_PREPARE] = "factors, sizes and flags for the next launches",
    [QN_WORK_RANGE] = "range check for f16",
    [QN_WORK_REQUANTIZE] = "requantize to FP8: ",
    [QN_WORK_DOWN] = "lora_t, of the tokens",
    [QN_WORK_UP] = "adapters, added to the product's sums",
    [QN_WORK_EPILOGUE] = "epilogue of the product's sums",
    [QN_WORK_SUM] = "sums of the product's partial sums",
    [QN_WORK_OUTSIDE] = "zeros outside the groups: "};

/* Only if the values do not fit the narrow type that was tried. */
static const char *condition_of(const struct qn_launch *launch)
{
    return launch->flag == QN_FLAG_MISFIT ? "   (if all values fit)"
           : launch->flag == QN_FLAG_FIT  ? "   (if some value does not fit)"
                                          : "";
}

static void add_list(const struct qn_plan *plan, const char *indent,
                     struct qn_text *text)
{
    for (int i = 0; i < plan->nlaunches; i++)
        qn_why_launch(plan, &plan->launches[i], indent, text);
}

void qn_why_launch(const struct qn_plan *plan, const struct qn_launch *launch,
                   const char *indent, struct qn_text *text)
{
    const struct qn_plan *product = launch->product;
    const struct qn_quantize_plan *cast = launch->cast;
    char line[512] = "";

    if (launch->work == QN_WORK_PRODUCT && product)
        print_line(product, line, sizeof line);
    else if (cast && !purposes[launch->work])
        qn_quantize_print(&cast->q, line, sizeof line);
    if (purposes[launch->work])
        qn_text_add(text, "%s%s", indent, purposes[launch->work]);
    if (launch->work == QN_WORK_REQUANTIZE || launch->work == QN_WORK_OUTSIDE)
        qn_text_add(text, "%c", "ABCDP"[launch->role]);
    if (*line)
        qn_text_add(text, "%s%s", indent, line);
    if (*line || purposes[launch->work])
        qn_text_add(text, "%s\n", condition_of(launch));
    if (launch->work == QN_WORK_PRODUCT && product && product->nlaunches)
        add_list(product, indent, text);
    else if (qn_launch_multiplies(launch))
        add_product(product ? product : plan, indent, text);
    else if (launch->work == QN_WORK_SUM || launch->work == QN_WORK_EPILOGUE ||
             launch->work == QN_WORK_OUTSIDE)
        add_step(&cast->steps[launch->index], indent, text);
    else if (launch->step.kernel)
        qn_step_explain(launch->step.kernel->name, launch->step.dependent,
                        indent, text);
    for (int i = 0; *line && cast && i < cast->nsteps; i++)
        add_step(&cast->steps[i], indent, text);
}

/* -------------------------------------------------------------- candidates */

/* The bound for any choice of tiles, by the kernel that would run: rows of
   padding cost nothing where memory takes longer. */
static void add_floors(struct qn_text *text, const struct qn_session *s,
                       const struct qn_choice *best)
{
    const struct qn_figures *f = &best->figures;
    const int sms = s->demand.sms;

    qn_text_add(
        text,
        "products would take %.0f cycles, with the padding of tiles %.0f; "
        "memory %.0f\n\n",
        f->tiles * f->real * f->math / sms, f->tiles * f->math / sms,
        f->memory_cycles - f->again / qn_model_memory(s->demand.device));
    if (f->quantize_cycles > 0)
        qn_fuse_why(s->problem, best, text);
}

/* In the model's order, but for a measured winner; the first would run, unless
   operands are dequantized `ahead`. */
static void add_choices(struct qn_text *text, const struct qn_choice *list,
                        int count, const struct qn_kernel *tuned, int ahead)
{
    for (int i = 0; i < count && list[i].fits; i++) {
        const struct qn_kernel *kernel = list[i].candidate->kernel;

        qn_text_add(text, "%s %s%s%s\n", i || ahead ? " " : ">", kernel->name,
                    kernel->cubin || kernel->host ? " (linked)" : "",
                    kernel == tuned ? " (tuned)" : "");
        add_figures(&list[i].figures, "", text);
    }
}

/* With the first rule that each one breaks. */
static void add_excluded(struct qn_text *text, const struct qn_choice *list,
                         int count)
{
    int first = 1;

    for (int i = 0; i < count; i++) {
        if (list[i].fits)
            continue;
        qn_text_add(text, "%s  %s\n    %s\n", first ? "\nexcluded\n" : "",
                    list[i].candidate->kernel->name, list[i].reason);
        first = 0;
    }
}

/* A point that would have been a kernel of the problem's variant. */
static int of_variant(const struct qn_problem *p,
                      const struct qn_rejected *point)
{
    return point->op == p->op && point->ragged == p->ragged &&
           qn_fuse_serves(p->quantize, point->quantize) &&
           point->a_major == p->a_major && point->b_major == p->b_major &&
           point->d_type == p->d_type && !strcmp(point->recipe, p->recipe) &&
           qn_problem_takes(p, point->epilogue, point->activation,
                            point->interleave);
}

/* With the sentence of their spec. */
static void add_rejected(struct qn_text *text,
                         const struct quern_registry *registry,
                         const struct qn_problem *p)
{
    int first = 1;

    for (int i = 0; registry && i < registry->nrejected; i++) {
        const struct qn_rejected *point = &registry->rejected[i];

        if (!of_variant(p, point))
            continue;
        qn_text_add(text, "%s  %s\n    %s (%s)\n",
                    first ? "\nnot made, for this variant\n" : "", point->name,
                    point->reason, point->spec);
        first = 0;
    }
}

static void tell_choice(const struct qn_choice *choice,
                        const struct qn_kernel *tuned,
                        const struct qn_why_facts *facts)
{
    const struct qn_kernel *kernel = choice->candidate->kernel;
    const struct qn_why_kernel told = {
        .state = choice->fits ? QN_WHY_SERVES : QN_WHY_EXCLUDED,
        .name = kernel->name,
        .spec = kernel->spec,
        .reason = choice->fits ? NULL : choice->reason,
        .figures = choice->fits ? &choice->figures : NULL,
        .linked = kernel->cubin || kernel->host,
        .tuned = kernel == tuned,
    };

    facts->visit(facts->user, &told);
}

static void tell_rejected(const struct quern_registry *registry,
                          const struct qn_problem *p,
                          const struct qn_why_facts *facts)
{
    for (int i = 0; registry && i < registry->nrejected; i++) {
        const struct qn_rejected *point = &registry->rejected[i];
        const struct qn_why_kernel told = {.state = QN_WHY_NOT_MADE,
                                           .name = point->name,
                                           .spec = point->spec,
                                           .reason = point->reason};

        if (of_variant(p, point))
            facts->visit(facts->user, &told);
    }
}

static void tell_kernels(const struct qn_session *s,
                         const struct qn_choice *list, int count,
                         const struct qn_why_facts *facts)
{
    for (int i = 0; i < count; i++)
        tell_choice(&list[i], s->tuned.kernel, facts);
    tell_rejected(s->ctx->base, s->problem, facts);
    tell_rejected(s->ctx->linked, s->problem, facts);
}

/* Judged for one backend. */
static int list_for(struct qn_session *s, int backend, struct qn_choice **list,
                    int *count)
{
    int code;

    s->demand.backend = backend;
    code = qn_select_list(s->ctx, &s->demand, list, count);
    if (code)
        return code;
    code = qn_tuned_prefer(s, *list, *count);
    if (code)
        free(*list);
    else
        qn_trial_mark(s, *list, *count);
    return code;
}

/* The same order in which qn_plan tries the backends. */
static int choose(struct qn_session *s, struct qn_choice **list, int *count)
{
    int backends[2], code;
    const int tries = qn_select_backends(s->ctx, s->demand.backend, backends);

    code = list_for(s, backends[0], list, count);
    if (code || tries == 1 || (*count && (*list)[0].fits))
        return code;
    free(*list);
    return list_for(s, backends[1], list, count);
}

/* The plan without its code; NULL if no kernel serves the problem. */
static int make(const struct qn_session *s, struct qn_plan **plan)
{
    struct qn_session outline = *s;
    int code = qn_plan_session(&outline, plan);

    return code == QUERN_ENOKERNEL ? QUERN_OK : code;
}

/* The problem, and where it would run; a plan's evidence. */
static void add_title(struct qn_text *text, const struct qn_session *s,
                      const struct qn_plan *plan)
{
    char problem[512];

    qn_problem_print(s->problem, problem, sizeof problem);
    qn_text_add(text, "%s\nbackend %s, %d %s\n", problem,
                qn_backend_name(s->demand.backend), s->demand.sms,
                s->demand.backend == QUERN_BACKEND_HOST ? "threads"
                                                        : "multiprocessors");
    if (plan && s->demand.backend != QUERN_BACKEND_HOST)
        qn_evidence_why(qn_plan_evidence(plan), plan->capability, text);
    qn_text_add(text, "\n");
    if (s->problem->sizes && s->demand.backend != QUERN_BACKEND_HOST &&
        s->demand.backend != QUERN_BACKEND_CUBLASLT)
        qn_text_add(text,
                    "sizes from the host come with a launch of their own%s\n\n",
                    s->problem->sizes == QUERN_SIZES_FIXED
                        ? ", which graphs keep"
                        : ", which no graph captures");
}

/* Memory that only zeros go to. */
static void add_outside(const struct qn_session *s, struct qn_text *text)
{
    const struct qn_problem *p = s->problem;
    const double bytes = qn_outside_bytes(p, s->demand.recipe);

    if (p->outside)
        qn_text_add(text,
                    "zeros outside the groups come with a launch of their own: "
                    "at most %.0f cycles to write %.0f MB\n\n",
                    qn_model_cast(&s->device, bytes, 1 + p->saved),
                    bytes / 1e6);
}

/* Why no plan serves the problem. */
static void add_none(struct qn_session *s, const struct qn_choice *list,
                     int count, struct qn_text *text)
{
    if (count && list[0].fits)
        return;
    qn_select_none(s->ctx, &s->demand, list, 0);
    qn_text_add(text, "%s\n", count ? "no kernel fits" : qn_error_text());
}

/* Three lists: kernels that fit, that do not fit, that do not exist. */
static void add_candidates(struct qn_session *s, const struct qn_choice *list,
                           int count, const struct qn_plan *plan,
                           struct qn_text *text)
{
    const int own =
        plan && plan->kernel && !qn_launch_find(plan, QN_WORK_PRODUCT)->product;

    if (own)
        add_floors(text, s, list);
    else if (!plan)
        add_none(s, list, count, text);
    if (!own && count && list[0].fits)
        qn_text_add(text, "%s\n",
                    s->problem->lora
                        ? "kernels that go on along k with the adapters"
                        : "kernels that would dequantize in the mainloop");
    add_choices(text, list, count, s->tuned.kernel, !own);
    add_excluded(text, list, count);
    add_rejected(text, s->ctx->base, s->problem);
    add_rejected(text, s->ctx->linked, s->problem);
}

/* Does the plan make up for a kernel that fuses the epilogue? */
static int is_unfused(const struct qn_plan *plan,
                      const struct qn_dequantize_choice *strategy)
{
    return plan->sums || (strategy->strategy == QUERN_DEQUANTIZE_MAINLOOP &&
                          plan->problem.dequantize > QUERN_DEQUANTIZE_MAINLOOP);
}

/* The plan's launches, if they are several, and why it has them. */
static void add_plan(struct qn_session *s, const struct qn_plan *plan,
                     const struct qn_dequantize_choice *strategy,
                     struct qn_text *text)
{
    const int apart = plan && qn_launch_find(plan, QN_WORK_QUANTIZE_D);

    if (s->problem->copies)
        qn_result_why(s, apart, text);
    else if (plan && is_unfused(plan, strategy))
        qn_epilogue_why(s, text);
    else
        qn_dequantize_why(s, strategy, text);
    if (apart && plan->sums)
        qn_text_add(text, "no kernel fuses its bias or activation\n");
    if (!plan || (plan->nlaunches == 1 && !plan->launches[0].product))
        return;
    qn_text_add(text, "launches\n");
    add_list(plan, "", text);
    qn_text_add(text, "\n");
}

/* The title, with the device that runs it. */
static void tell_title(const struct qn_session *s, const struct qn_plan *plan,
                       struct qn_why_facts *facts, struct qn_text *text)
{
    add_title(text, s, plan);
    if (facts) {
        facts->backend = s->demand.backend;
        facts->units = s->demand.sms;
    }
}

/* The session's problem; `told` points to the facts, or to NULL. */
static int explain(struct qn_session *s, const void *told, struct qn_text *text)
{
    struct qn_why_facts *facts = *(struct qn_why_facts *const *)told;
    struct qn_plan *plan = NULL;
    struct qn_dequantize_choice strategy;
    struct qn_choice *list = NULL;
    int count, served, code = qn_session_name(s);

    if (!code)
        code = qn_dequantize_choose(s, &strategy);
    if (!code && s->demand.backend == QUERN_BACKEND_CUBLASLT) {
        tell_title(s, NULL, facts, text);
        return s->ctx->cublaslt->explain(s, &served, text);
    }
    if (!code)
        code = make(s, &plan);
    if (!code)
        code = choose(s, &list, &count);
    if (!code) {
        tell_title(s, plan, facts, text);
        add_outside(s, text);
        add_plan(s, plan, &strategy, text);
        qn_trial_why(s, list, count, text);
        qn_tuned_why(s, strategy.tuned, text);
        if (!strategy.asked || !plan)
            add_candidates(s, list, count, plan, text);
        if (facts && (!strategy.asked || !plan))
            tell_kernels(s, list, count, facts);
    }
    qn_plan_free(plan);
    free(list);
    return code;
}

int qn_why(struct quern_context *ctx, const struct qn_problem *problem,
           const struct qn_plan_options *options, struct qn_why_facts *facts,
           char **out)
{
    return qn_session_why(ctx, problem, options, explain, &facts, out);
}
