/* SPDX-License-Identifier: Apache-2.0 */
/*
** mlp_plan.c: a plan for each step of a grouped MLP.
*/
#include "mlp/mlp_plan.h"
#include "mlp/mlp_tokens.h"
#include "base/context.h"
#include "base/error.h"
#include "base/text.h"
#include "base/types.h"
#include "choose/evidence.h"
#include "choose/select.h"
#include "choose/session.h"
#include "problem/host_sizes_rules.h"
#include "problem/problem.h"
#include "problem/scatter_rules.h"
#include "product/frame.h"
#include "product/outside.h"
#include "product/plan.h"
#include "product/why.h"
#include "quantize/quantize_plan.h"

#include <stdlib.h>

int qn_mlp_plan_options(const struct qn_plan_options *options)
{
    const int code = qn_session_no_cublaslt(options, "quantizes");

    if (code || !options || !options->kernel)
        return code;
    return qn_error_set(QUERN_EINVAL,
                        "options.kernel is '%s': an MLP runs many kernels, "
                        "and none is to be named",
                        options->kernel);
}

static int plan_zeroed(struct qn_session *s, struct qn_plan **out)
{
    return qn_outside_make(s, qn_dequantize_make, out);
}

/* A product of one launch. If it makes copies and a cast would have to, that is
   a step. */
static int plan_one(const struct qn_session *s, const struct qn_problem *p,
                    struct qn_plan **out)
{
    return qn_plan_inner(s, p, &s->options,
                         p->copies    ? qn_plan_inside
                         : p->outside ? plan_zeroed
                                      : qn_dequantize_make,
                         out);
}

/* Do kernels that write rows anywhere multiply as others do? Those of Hopper
   write 16 bits, those of 10.x are mma.sync's. */
static int has_scatter(const struct qn_session *s, const struct qn_problem *p)
{
    const int capability = qn_session_capability(s);

    return !qn_session_gpu(s) ||
           (capability / 10 != 10 &&
            (capability != 90 || qn_type_bits(p->d_type) == 16));
}

/* Has it the order of sums of Hopper's products there? */
static int is_alike(const struct qn_session *s, const struct qn_plan *scatters)
{
    return qn_session_capability(s) != 90 ||
           qn_select_sums(scatters->kernel) == 0;
}

/* The same product that reads tokens of x or dy, if that pays, or writes those
   of y or dx, where a layer has these; 0: it does neither. */
static int of_tokens(const struct qn_mlp_plan *plan, const struct qn_session *s,
                     const struct qn_problem *p, int product,
                     struct qn_problem *tokens)
{
    const struct qn_mlp *mlp = &plan->mlp;

    if (product == QN_MLP_PRE || product == QN_MLP_DH)
        return qn_mlp_tokens_wanted(s, mlp, plan->recipe, p, tokens);
    *tokens = *p;
    tokens->scatter = product == QN_MLP_Y    ? mlp->scatter_y
                      : product == QN_MLP_DX ? mlp->scatter_dx
                                             : 0;
    return tokens->scatter && has_scatter(s, p) &&
           qn_scatter_serves(p, plan->recipe);
}

/* A product of one launch, of tokens if a kernel does that. */
static int plan_either(struct qn_mlp_plan *plan, const struct qn_session *s,
                       const struct qn_problem *p, int product)
{
    struct qn_plan **out = &plan->launches[product].product;
    struct qn_problem tokens;
    int code = QUERN_ENOKERNEL;

    if (of_tokens(plan, s, p, product, &tokens))
        code = plan_one(s, &tokens, out);
    if (!code && tokens.scatter && !is_alike(s, *out)) {
        qn_plan_free(*out);
        *out = NULL;
        code = QUERN_ENOKERNEL;
    }
    if (!code)
        *(product == QN_MLP_PRE  ? &plan->gathers
          : product == QN_MLP_DH ? &plan->gathers_dy
          : product == QN_MLP_Y  ? &plan->scatters_y
                                 : &plan->scatters_dx) = 1;
    return code == QUERN_ENOKERNEL || code == QUERN_ECOMPILE
               ? plan_one(s, p, out)
               : code;
}

/* Bytes of a product's result, of which passes after it read and write some. */
static double result_bytes(const struct qn_problem *p)
{
    return (double)p->m * (double)p->n * qn_type_bits(p->d_type) / 8;
}

/* The same product without its bias. */
static struct qn_problem without_bias(const struct qn_problem *p)
{
    struct qn_problem plain = *p;

    plain.bias = plain.probability = 0;
    return plain;
}

/* Does making h in the launch of pre take less time than a pass for the bias
   and one for the activation? */
static int compare_fused(const struct qn_mlp_plan *plan,
                         const struct qn_session *s, const struct qn_problem *p,
                         int *pays)
{
    const double bytes = result_bytes(p); /* of pre, of which h is a part */
    struct qn_problem plain;

    qn_mlp_product(plan->ctx, &plan->mlp, plan->recipe, QN_MLP_PRE, &plain);
    plain = without_bias(&plain);
    return qn_epilogue_pays(s, p, &plain,
                            (p->bias ? 2 : 0) * bytes + bytes +
                                bytes / qn_activation_operands(p->activation),
                            1 + p->bias, pays);
}

/* pre and h at once, where a kernel does that. */
static int plan_fused(struct qn_mlp_plan *plan, const struct qn_session *s)
{
    struct qn_problem p;
    int pays, code;

    if (!qn_mlp_fused(plan->ctx, &plan->mlp, plan->recipe, &p))
        return QUERN_OK;
    code = compare_fused(plan, s, &p, &pays);
    plan->apart = !pays;
    if (code || !pays)
        return code;
    code = plan_either(plan, s, &p, QN_MLP_PRE);
    plan->fused = !code;
    return code == QUERN_ENOKERNEL ? QUERN_OK : code;
}

/* dpre in the launch of dh, where a kernel does that and the model says that it
   takes less time. Then dh is not rounded, so that with the same sums for all
   numbers of rows no model is asked. */
static int plan_back(struct qn_mlp_plan *plan, const struct qn_session *s)
{
    struct qn_problem p, plain;
    int code;

    if (!qn_mlp_back(plan->ctx, &plan->mlp, plan->recipe, &p))
        return QUERN_OK;
    qn_mlp_product(plan->ctx, &plan->mlp, plan->recipe, QN_MLP_DH, &plain);
    code = qn_gradient_compare(s, &p, &plain, &plan->compared);
    if (code || (!plan->compared.better && !s->options.same_sums))
        return code;
    code = plan_either(plan, s, &p, QN_MLP_DH);
    plan->back = !code;
    return code == QUERN_ENOKERNEL || code == QUERN_ECOMPILE ? QUERN_OK : code;
}

/* Does a kernel that makes pre and h, or dpre, do it? */
static int is_fused(const struct qn_mlp_plan *plan, int index)
{
    return (plan->fused && (index == QUERN_MLP_H || index == QN_MLP_PRE)) ||
           (plan->back && (index == QUERN_MLP_DPRE || index == QN_MLP_DH));
}

/*
** If no kernel adds the bias, one does without it, and a pass of its own
** follows; unless its operands become bf16 in a pass, so that the kernel of the
** dequantized ones may add it. Products of f16 or requantized ones only store.
** A pass of its own rounds once more, so that with the same sums for all
** numbers of rows it always follows.
*/
static int plan_product(struct qn_mlp_plan *plan, const struct qn_session *s,
                        const struct qn_problem *p, int product)
{
    const struct qn_problem plain = without_bias(p);
    struct qn_plan **out = &plan->launches[product].product, *other;
    struct qn_problem dequantized = *p;
    int pays = 1, code = QUERN_OK;

    if (p->bias)
        code = qn_epilogue_pays(s, p, &plain, 2 * result_bytes(p), 1, &pays);
    if (code)
        return code;
    code = pays ? plan_either(plan, s, p, product) : QUERN_ENOKERNEL;
    if (code != QUERN_ENOKERNEL || !p->bias)
        return code;
    code = plan_either(plan, s, &plain, product);
    if (code || s->options.same_sums ||
        (*out)->problem.dequantize != QUERN_DEQUANTIZE_PASS)
        return code;
    dequantized.dequantize = (*out)->problem.dequantize;
    code = plan_one(s, &dequantized, &other);
    if (code)
        return code == QUERN_ENOKERNEL ? QUERN_OK : code;
    qn_plan_free(*out);
    *out = other;
    return QUERN_OK;
}

/* Is the cast a pass for a bias that its product (fused or not) adds? */
static int is_added(const struct qn_mlp_plan *plan, int index)
{
    const int product = index == QN_MLP_ADD_B1 ? QN_MLP_PRE : QN_MLP_Y;

    return (index == QN_MLP_ADD_B1 || index == QN_MLP_ADD_B2) &&
           plan->launches[product].product->problem.bias;
}

/* One step's launch, if there is something to do. */
static int plan_step(struct qn_mlp_plan *plan, const struct qn_session *s,
                     const struct qn_mlp_step *step)
{
    const int index = step->index;
    struct qn_launch *launch = &plan->launches[index];
    struct qn_quantization q;
    struct qn_problem p;
    int code = QUERN_OK;

    if (qn_mlp_again(step) || !qn_mlp_has(&plan->mlp, step->phase) ||
        launch->product)
        return QUERN_OK; /* there it is, or not at all */
    launch->work = index < QN_MLP_PRE ? QN_WORK_QUANTIZE_A : QN_WORK_PRODUCT;
    if (index == QN_MLP_PRE)
        code = plan_fused(plan, s);
    else if (index == QN_MLP_DH)
        code = plan_back(plan, s);
    if (code || is_fused(plan, index) || is_added(plan, index)) {
        /* failed, or done */
    } else if (index >= QN_MLP_PRE) {
        qn_mlp_product(plan->ctx, &plan->mlp, plan->recipe, index, &p);
        code = plan_product(plan, s, &p, index);
    } else if ((index != QN_MLP_DY_LATER || plan->gathers_dy) &&
               qn_mlp_cast(plan->ctx, &plan->mlp, plan->recipe, index, &q)) {
        if ((index == QUERN_MLP_X && plan->gathers) ||
            (index == QUERN_MLP_DY && plan->gathers_dy))
            qn_mlp_tokens(&plan->mlp, &q);
        code = qn_quantize_plan_inner(s, &q, &s->options, &launch->cast);
    }
    if (code)
        qn_error_add("  in the step %s", step->name);
    return code;
}

void qn_mlp_plan_free(struct qn_mlp_plan *plan)
{
    if (!plan)
        return;
    for (int i = 0; i < QN_MLP_LAUNCHES; i++) {
        qn_quantize_plan_free(plan->launches[i].cast);
        qn_plan_free(plan->launches[i].product);
    }
    free(plan);
}

void qn_mlp_depend(struct qn_mlp_plan *plan, const enum qn_before first[])
{
    enum qn_before before = QN_BEFORE_NOTHING;
    int phase = -1;

    for (int i = 0; i < QN_MLP_STEPS; i++) {
        const struct qn_mlp_step *step = &qn_mlp_steps[i];
        struct qn_launch *launch = &plan->launches[step->index];

        if ((!launch->cast && !launch->product) ||
            (qn_mlp_again(step) && !plan->mlp.recompute))
            continue;
        if (step->phase != phase)
            before = first[step->phase];
        phase = step->phase;
        if (!launch->product && before != QN_BEFORE_NOTHING)
            qn_quantize_depend(launch->cast, 0);
        before = launch->product ? qn_launch_depend(launch->product, before)
                                 : QN_BEFORE_CAST;
        plan->ends[phase] = before;
    }
}

/* The most of the workspace that a step uses, before the tensors there. */
static size_t scratch_of(const struct qn_mlp_plan *plan)
{
    size_t most = QN_WORKSPACE_BYTES;

    qn_space_add(&most,
                 qn_host_size_bytes(plan->mlp.sizes, plan->mlp.groups, 1));
    for (int i = 0; i < QN_MLP_LAUNCHES; i++) {
        const struct qn_launch *launch = &plan->launches[i];
        const size_t bytes = launch->product
                                 ? launch->product->need.workspace_bytes
                             : launch->cast ? launch->cast->need.workspace_bytes
                                            : 0;

        most = bytes > most ? bytes : most;
    }
    return most;
}

/* A description has room for any steps. Forward-only runs whose kernel makes h
   from pre write no pre, and a product that gathers needs each token once. */
static void shrink_space(struct qn_mlp_plan *plan)
{
    plan->space.scratch = scratch_of(plan);
    plan->space.without_pre = plan->mlp.forward_only && plan->fused;
    plan->space.of_tokens = plan->gathers;
    plan->space.dy_of_tokens = plan->gathers_dy;
    qn_mlp_space_fill(plan->ctx, &plan->mlp, plan->recipe, &plan->need.args,
                      &plan->space);
    plan->need.workspace_bytes = plan->space.workspace;
    plan->need.saved_bytes = plan->space.saved;
}

int qn_mlp_plan_fit(const struct qn_mlp_plan *plan,
                    const struct qn_mlp_args *args, struct qn_mlp_plan *room,
                    const struct qn_mlp_plan **fitted)
{
    *fitted = plan;
    if (args->rows == plan->mlp.m)
        return QUERN_OK;
    if (args->rows < 0 || args->rows > plan->mlp.m)
        return qn_error_set(QUERN_EINVAL, "rows is %lld: 0 to %lld is expected",
                            (long long)args->rows, (long long)plan->mlp.m);
    *room = *plan;
    *fitted = room;
    room->mlp.m = args->rows;
    qn_mlp_space_fill(plan->ctx, &room->mlp, plan->recipe, &room->need.args,
                      &room->space);
    room->need.saved_bytes = room->space.saved;
    room->need.pending_bytes = room->space.pending;
    return QUERN_OK;
}

int qn_mlp_plan_inner(const struct qn_session *s, const struct qn_mlp *mlp,
                      struct qn_mlp_plan **out)
{
    struct qn_mlp_plan *plan = calloc(1, sizeof *plan);
    int code;

    if (!plan)
        return qn_error_memory();
    plan->ctx = s->ctx;
    plan->mlp = *mlp;
    code =
        qn_mlp_describe(s->ctx, mlp, &plan->need, &plan->space, &plan->recipe);
    if (!code) /* before the casts of x and dy, which depend on them */
        code = plan_step(plan, s, qn_mlp_step_of(QN_MLP_PRE));
    if (!code)
        code = plan_step(plan, s, qn_mlp_step_of(QN_MLP_DH));
    for (int i = 0; i < QN_MLP_STEPS && !code; i++)
        code = plan_step(plan, s, &qn_mlp_steps[i]);
    if (!code && qn_session_dependents(s, mlp->m))
        qn_mlp_depend(plan, (const enum qn_before[QUERN_PHASES]){0});
    if (!code)
        shrink_space(plan);
    if (code)
        qn_mlp_plan_free(plan);
    else
        *out = plan;
    return code;
}

static int make(struct qn_session *s, const void *mlp, void *plan)
{
    return qn_mlp_plan_inner(s, mlp, plan);
}

static void drop(void *plan)
{
    struct qn_mlp_plan **at = plan;

    qn_mlp_plan_free(*at);
    *at = NULL;
}

int qn_mlp_plan(struct quern_context *ctx, const struct qn_mlp *mlp,
                const struct qn_plan_options *options, struct qn_mlp_plan **out)
{
    static const struct qn_plan_kind kind = {make, drop};
    const int code = qn_mlp_plan_options(options);

    *out = NULL;
    return code ? code : qn_session_plan(ctx, options, &kind, mlp, out);
}

/* --------------------------------------------------------------------- why */

static void explain_launch(const struct qn_mlp_plan *plan, int index,
                           const char *name, struct qn_text *text)
{
    qn_text_add(text, "  %s\n", name);
    qn_why_launch(NULL, &plan->launches[index], "    ", text);
}

/* A problem that no one launch solves. */
static void add_line(const char *reason, const struct qn_problem *p,
                     struct qn_text *text)
{
    char line[512];

    qn_problem_print(p, line, sizeof line);
    qn_text_add(text, "  %s\n    %s\n", reason, line);
}

/* pre and h at once, or why not. */
static void explain_fused(const struct qn_mlp_plan *plan, struct qn_text *text)
{
    struct qn_problem p;

    if (plan->fused)
        explain_launch(plan, QN_MLP_PRE, "pre = x w1^T and h = activation(pre)",
                       text);
    else if (qn_mlp_fused(plan->ctx, &plan->mlp, plan->recipe, &p))
        add_line(plan->apart ? "h in a launch after pre: one launch is slower"
                             : "h in a launch after pre: no kernel serves",
                 &p, text);
    else
        qn_text_add(text, "  h in a launch after pre: its scales are known "
                          "only when all of it is\n");
}

/* dpre in the launch of dh, or why not. */
static void explain_back(const struct qn_mlp_plan *plan, struct qn_text *text)
{
    const struct qn_gradient_figures *f = &plan->compared;
    struct qn_problem p;

    if (!qn_mlp_back(plan->ctx, &plan->mlp, plan->recipe, &p)) {
        qn_text_add(text, "  dpre in a launch after dh: its scales are known "
                          "only when all of it is\n");
        return;
    }
    if (plan->back)
        explain_launch(plan, QN_MLP_DH, "dh = dy w2 and dpre, from dh and pre",
                       text);
    else
        add_line(f->served ? "dpre in a launch after dh: one launch is slower"
                           : "dpre in a launch after dh: no kernel serves",
                 &p, text);
    if (f->served && f->product > 0)
        qn_text_add(text,
                    "    %.0f cycles; two launches %.0f, and %.0f that read "
                    "dh and pre\n",
                    f->cycles, f->product, f->cast);
}

static void explain_step(const struct qn_mlp_plan *plan,
                         const struct qn_mlp_step *step, struct qn_text *text)
{
    const struct qn_launch *launch = &plan->launches[step->index];

    if (qn_mlp_again(step)) {
        if (plan->mlp.recompute && launch->product)
            qn_text_add(text, "  pre again, as in forward\n");
        return;
    }
    if (step->index == QN_MLP_PRE)
        explain_fused(plan, text);
    else if (step->index == QN_MLP_DH)
        explain_back(plan, text);
    if (!is_fused(plan, step->index) && (launch->cast || launch->product))
        explain_launch(plan, step->index, step->name, text);
}

int qn_mlp_evidence(const struct qn_mlp_plan *plan)
{
    int least = QUERN_EVIDENCE_RUN;

    for (int i = 0; i < QN_MLP_LAUNCHES; i++) {
        const struct qn_launch *launch = &plan->launches[i];
        const int own = launch->product ? qn_plan_evidence(launch->product)
                        : launch->cast  ? qn_quantize_evidence(launch->cast)
                                        : least;

        least = own < least ? own : least;
    }
    return least;
}

void qn_mlp_explain(const struct qn_mlp_plan *plan, int phase,
                    struct qn_text *text)
{
    for (int i = 0; i < QN_MLP_STEPS; i++)
        if (qn_mlp_steps[i].phase == phase)
            explain_step(plan, &qn_mlp_steps[i], text);
}

static int explain(struct qn_session *s, const void *given,
                   struct qn_text *text)
{
    const struct qn_mlp *mlp = given;
    struct qn_mlp_plan *plan;
    char line[512];
    int code = qn_mlp_plan_inner(s, mlp, &plan);

    if (code)
        return code;
    qn_mlp_print(mlp, line, sizeof line);
    qn_text_add(text, "%s\n", line);
    if (qn_session_gpu(s))
        qn_evidence_why(qn_mlp_evidence(plan), qn_session_capability(s), text);
    for (int i = 0; i < QUERN_PHASES; i++) {
        const int phase = qn_mlp_phase_order[i];

        if (!qn_mlp_has(mlp, phase))
            break;
        qn_text_add(text, "\n%s\n", qn_mlp_phase_names[phase]);
        qn_mlp_explain(plan, phase, text);
    }
    qn_mlp_plan_free(plan);
    return QUERN_OK;
}

int qn_mlp_why(struct quern_context *ctx, const struct qn_mlp *mlp,
               const struct qn_plan_options *options, char **out)
{
    const int code = qn_mlp_plan_options(options);

    return code ? code : qn_session_why(ctx, NULL, options, explain, mlp, out);
}

void qn_mlp_plan_info(const struct qn_mlp_plan *plan,
                      struct quern_plan_info *info)
{
    qn_plan_info(plan->launches[QN_MLP_Y].product, info);
    info->kernel = "";
    info->workspace_bytes = plan->need.workspace_bytes;
    info->tuned = 0;
    info->evidence = qn_mlp_evidence(plan);
    info->microbatches = plan->mlp.microbatches ? plan->mlp.microbatches : 1;
}
