/*
** mlp_plan.c: a plan for each step of a grouped MLP.
*/
#include "mlp.h"
#include "gradient.h"
#include "text.h"
#include "why.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int check_options(const struct quern_plan_options *options)
{
    if (options && options->backend == QUERN_BACKEND_CUBLASLT)
        return qn_error_set(QUERN_EINVAL,
                            "options.backend is cublaslt: it multiplies, and "
                            "quantizes nothing");
    if (options && options->kernel)
        return qn_error_set(QUERN_EINVAL,
                            "options.kernel is '%s': an MLP runs many kernels, "
                            "and none is to be named",
                            options->kernel);
    return QUERN_OK;
}

/* Of what one launch makes: copies that a cast would have to make are a step of
   their own. */
static int plan_one(struct quern_mlp_plan *plan, const struct quern_problem *p,
                    const struct quern_plan_options *options, int product)
{
    struct quern_plan **out = &plan->products[product];

    return p->copies ? qn_plan_alone(plan->ctx, p, options, out)
                     : qn_plan_fused(plan->ctx, p, options, out);
}

/* pre and h at once, where a kernel does that. */
static int plan_fused(struct quern_mlp_plan *plan,
                      const struct quern_plan_options *options)
{
    struct quern_problem p;
    int code;

    if (!qn_mlp_fused(&plan->mlp, plan->recipe, &p))
        return QUERN_OK;
    code = plan_one(plan, &p, options, QN_MLP_PRE);
    plan->fused = !code;
    return code == QUERN_ENOKERNEL ? QUERN_OK : code;
}

/* dpre in the launch of dh, where a kernel does that and the model says that it
   takes less time. */
static int plan_back(struct quern_mlp_plan *plan,
                     const struct quern_plan_options *options)
{
    struct qn_gradient_figures figures;
    struct quern_problem p, plain;
    int code;

    if (!qn_mlp_back(&plan->mlp, plan->recipe, &p))
        return QUERN_OK;
    qn_mlp_product(&plan->mlp, plan->recipe, QN_MLP_DH, &plain);
    code = qn_gradient_compare(plan->ctx, &p, &plain, options, 0, &figures);
    if (code || !figures.better)
        return code;
    code = plan_one(plan, &p, options, QN_MLP_DH);
    plan->back = !code;
    return code == QUERN_ENOKERNEL || code == QUERN_ECOMPILE ? QUERN_OK : code;
}

/* Does a kernel that makes pre and h, or dpre, do it? */
static int is_fused(const struct qn_mlp_step *step, int fused, int back)
{
    const int i = step->index;

    return (fused &&
            i == (step->is_cast ? (int)QUERN_MLP_H : (int)QN_MLP_PRE)) ||
           (back &&
            i == (step->is_cast ? (int)QUERN_MLP_DPRE : (int)QN_MLP_DH));
}

/* The same product without its bias. */
static struct quern_problem without_bias(const struct quern_problem *p)
{
    struct quern_problem plain = *p;

    plain.bias = plain.probability = 0;
    return plain;
}

/* And with it, of operands that are expanded in that way. */
static struct quern_problem with_way(const struct quern_problem *p, int way)
{
    struct quern_problem expanded = *p;

    expanded.expand = way;
    return expanded;
}

/*
** Where no kernel adds the bias, one does without it, and a pass of its own
** follows; unless its operands are expanded ahead, so that the kernel of what
** these are then may add it.
*/
static int plan_product(struct quern_mlp_plan *plan,
                        const struct quern_problem *p,
                        const struct quern_plan_options *options, int product)
{
    const struct quern_problem plain = without_bias(p);
    struct quern_plan **out = &plan->products[product], *other;
    int code = qn_plan_fused(plan->ctx, p, options, out);
    struct quern_problem expanded;

    if (code != QUERN_ENOKERNEL || !p->bias)
        return code;
    code = qn_plan_fused(plan->ctx, &plain, options, out);
    if (code || (*out)->problem.expand <= QUERN_EXPAND_INSIDE)
        return code;
    expanded = with_way(p, (*out)->problem.expand);
    code = qn_plan_fused(plan->ctx, &expanded, options, &other);
    if (code)
        return code == QUERN_ENOKERNEL ? QUERN_OK : code;
    quern_plan_free(*out);
    *out = other;
    return QUERN_OK;
}

/* Is the cast a pass for a bias that its product (fused or not) adds? */
static int is_added(const struct quern_mlp_plan *plan,
                    const struct qn_mlp_step *step)
{
    int first = step->index == QN_MLP_ADD_B1;

    return step->is_cast && (first || step->index == QN_MLP_ADD_B2) &&
           plan->products[first ? QN_MLP_PRE : QN_MLP_Y]->problem.bias;
}

/* One step's plan, if there is something to do. */
static int plan_step(struct quern_mlp_plan *plan,
                     const struct qn_mlp_step *step,
                     const struct quern_plan_options *options)
{
    struct quern_quantization q;
    struct quern_problem p;
    int code = QUERN_OK;

    if (qn_mlp_again(step))
        return QUERN_OK; /* there it is */
    if (!step->is_cast && step->index == QN_MLP_PRE)
        code = plan_fused(plan, options);
    else if (!step->is_cast && step->index == QN_MLP_DH)
        code = plan_back(plan, options);
    if (code || is_fused(step, plan->fused, plan->back) ||
        is_added(plan, step)) {
        /* failed, or done */
    } else if (!step->is_cast) {
        qn_mlp_product(&plan->mlp, plan->recipe, step->index, &p);
        code = plan_product(plan, &p, options, step->index);
    } else if (qn_mlp_cast(plan->ctx, &plan->mlp, plan->recipe, step->index,
                           &q)) {
        code = quern_quantize_plan(plan->ctx, &q, options,
                                   &plan->casts[step->index]);
    }
    if (code)
        qn_error_add("  in the step %s", step->name);
    return code;
}

void quern_mlp_plan_free(struct quern_mlp_plan *plan)
{
    if (!plan)
        return;
    for (int i = 0; i < QN_MLP_CASTS; i++)
        quern_quantize_plan_free(plan->casts[i]);
    for (int i = 0; i < QN_MLP_PRODUCTS; i++)
        quern_plan_free(plan->products[i]);
    free(plan);
}

int quern_mlp_plan(struct quern_context *ctx, const struct quern_mlp *mlp,
                   const struct quern_plan_options *options,
                   struct quern_mlp_plan **out)
{
    struct quern_mlp_plan *plan;
    int code;

    if (!ctx || !mlp || !out)
        return qn_error_null("ctx", ctx, "mlp", mlp, "plan");
    *out = NULL;
    code = check_options(options);
    if (code)
        return code;
    plan = calloc(1, sizeof *plan);
    if (!plan)
        return qn_error_memory();
    plan->ctx = ctx;
    plan->mlp = *mlp;
    code = qn_mlp_describe(ctx, mlp, &plan->need, &plan->space, &plan->recipe);
    for (int i = 0; i < QN_MLP_STEPS && !code; i++)
        code = plan_step(plan, &qn_mlp_steps[i], options);
    if (code)
        quern_mlp_plan_free(plan);
    else
        *out = plan;
    return qn_error_done(code);
}

/* --------------------------------------------------------------------- why */

/* pre and h at once. *fused: is there a kernel? Else why not is a line of its
   own. */
static int explain_fused(struct quern_context *ctx, const struct quern_mlp *mlp,
                         const struct qn_recipe *recipe,
                         const struct quern_plan_options *options, int *fused,
                         struct qn_text *text)
{
    struct qn_why_choice choice;
    struct quern_problem p;
    char line[512], *why = NULL;
    int code = QUERN_OK;

    *fused = qn_mlp_fused(mlp, recipe, &p);
    if (!*fused) {
        qn_text_add(text,
                    "  h apart from pre: its scales are known only when all "
                    "of it is\n");
        return QUERN_OK;
    }
    code = qn_why_explain(ctx, &p, options, &choice, &why);
    if (code)
        return code;
    quern_problem_print(&p, line, sizeof line);
    *fused = choice.served && !choice.apart && !choice.unfused;
    if (*fused) {
        qn_text_add(text, "  pre = x w1^T and h = activation(pre)\n    %s\n",
                    line);
        qn_text_add_chosen(text, "    ", why);
    } else {
        qn_text_add(text, "  h apart from pre: no kernel serves\n    %s\n",
                    line);
    }
    quern_free(why);
    return QUERN_OK;
}

/* dpre in the launch of dh, if that is better, or why it is not. */
static int explain_back(struct quern_context *ctx, const struct quern_mlp *mlp,
                        const struct qn_recipe *recipe,
                        const struct quern_plan_options *options, int *back,
                        struct qn_text *text)
{
    struct qn_gradient_figures f;
    struct quern_problem p, plain;
    char line[512], *why = NULL;
    int code;

    *back = qn_mlp_back(mlp, recipe, &p);
    if (!*back) {
        qn_text_add(text,
                    "  dpre apart from dh: its scales are known only when "
                    "all of it is\n");
        return QUERN_OK;
    }
    qn_mlp_product(mlp, recipe, QN_MLP_DH, &plain);
    code = qn_gradient_compare(ctx, &p, &plain, options, 1, &f);
    if (code)
        return code;
    quern_problem_print(&p, line, sizeof line);
    *back = f.better;
    qn_text_add(text, "  %s\n    %s\n",
                f.better   ? "dh = dy w2 and dpre, from dh and pre"
                : f.served ? "dpre apart from dh: in one launch it is slower"
                           : "dpre apart from dh: no kernel serves",
                line);
    if (f.served && f.product > 0)
        qn_text_add(text,
                    "    %.0f cycles; apart %.0f, and %.0f that read dh and "
                    "pre\n",
                    f.cycles, f.product, f.cast);
    if (!f.better)
        return QUERN_OK;
    code = quern_why(ctx, &p, options, &why);
    if (!code)
        qn_text_add_chosen(text, "    ", why);
    quern_free(why);
    return code;
}

/* What runs of a problem, in place of what was said of another. */
static int explain_one(struct quern_context *ctx, const struct quern_problem *p,
                       const struct quern_plan_options *options,
                       struct qn_why_choice *choice, char **why)
{
    quern_free(*why);
    return qn_why_explain(ctx, p, options, choice, why);
}

/* As plan_product chooses; *p becomes the problem that it chooses. */
static int explain_product(struct quern_context *ctx, struct quern_problem *p,
                           const struct quern_plan_options *options, char **why)
{
    const struct quern_problem given = *p, plain = without_bias(p);
    struct quern_problem expanded;
    struct qn_why_choice choice;
    int code = explain_one(ctx, p, options, &choice, why);

    if (code || (choice.served && !choice.unfused) || !p->bias)
        return code;
    *p = plain;
    code = explain_one(ctx, &plain, options, &choice, why);
    if (code || choice.expand == QUERN_EXPAND_INSIDE)
        return code;
    expanded = with_way(&given, choice.expand);
    code = explain_one(ctx, &expanded, options, &choice, why);
    if (!code && choice.served && !choice.unfused)
        *p = expanded;
    else if (!code)
        code = explain_one(ctx, &plain, options, &choice, why);
    return code;
}

/* One step: what it does, as a line of its own, and how. *added: does the last
   product add its bias? */
static int explain_step(struct quern_context *ctx, const struct quern_mlp *mlp,
                        const struct qn_recipe *recipe,
                        const struct qn_mlp_step *step,
                        const struct quern_plan_options *options, int *added,
                        struct qn_text *text)
{
    struct quern_quantization q;
    struct quern_problem p;
    char line[512], *why = NULL;
    int code;

    if (step->is_cast) {
        if (!qn_mlp_cast(ctx, mlp, recipe, step->index, &q) ||
            (q.work == QUERN_BIAS && *added))
            return QUERN_OK;
        quern_quantize_print(&q, line, sizeof line);
        code = quern_quantize_why(ctx, &q, options, &why);
    } else {
        qn_mlp_product(mlp, recipe, step->index, &p);
        code = explain_product(ctx, &p, options, &why);
        *added = p.bias;
        quern_problem_print(&p, line, sizeof line);
    }
    if (code) {
        qn_error_add("  in the step %s", step->name);
        return code;
    }
    qn_text_add(text, "  %s\n    %s\n", step->name, line);
    qn_text_add_chosen(text, "    ", why);
    quern_free(why);
    return QUERN_OK;
}

int quern_mlp_why(struct quern_context *ctx, const struct quern_mlp *mlp,
                  const struct quern_plan_options *options, char **out)
{
    static const char *const phases[QN_MLP_PHASES] = {"weights", "forward",
                                                      "backward", "wgrad"};
    const struct qn_recipe *recipe;
    struct qn_text text = {0};
    char line[512];
    int code, phase = -1, fused = 0, back = 0, added = 0;

    if (!ctx || !mlp || !out)
        return qn_error_null("ctx", ctx, "mlp", mlp, "text");
    *out = NULL;
    code = check_options(options);
    if (!code)
        code = qn_mlp_check(ctx, mlp, &recipe);
    if (code)
        return code;
    quern_mlp_print(mlp, line, sizeof line);
    qn_text_add(&text, "%s\n", line);
    for (int i = 0; i < QN_MLP_STEPS && !code; i++) {
        if (qn_mlp_steps[i].phase != phase)
            qn_text_add(&text, "\n%s\n", phases[qn_mlp_steps[i].phase]);
        phase = qn_mlp_steps[i].phase;
        if (qn_mlp_again(&qn_mlp_steps[i])) {
            if (mlp->recompute && !qn_mlp_steps[i].is_cast)
                qn_text_add(&text, "  pre again, as in forward\n");
            continue;
        }
        if (!qn_mlp_steps[i].is_cast && qn_mlp_steps[i].index == QN_MLP_PRE) {
            code = explain_fused(ctx, mlp, recipe, options, &fused, &text);
            added = fused;
        } else if (!qn_mlp_steps[i].is_cast &&
                   qn_mlp_steps[i].index == QN_MLP_DH) {
            code = explain_back(ctx, mlp, recipe, options, &back, &text);
        }
        if (!code && !is_fused(&qn_mlp_steps[i], fused, back))
            code = explain_step(ctx, mlp, recipe, &qn_mlp_steps[i], options,
                                &added, &text);
    }
    if (!code) {
        *out = qn_text_take(&text);
        code = *out ? QUERN_OK : qn_error_memory();
    }
    qn_text_free(&text);
    return qn_error_done(code);
}
