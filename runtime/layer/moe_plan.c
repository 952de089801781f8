/* SPDX-License-Identifier: Apache-2.0 */
/* moe_plan.c: the plan of a layer is those of its parts. */
#include "layer/moe_plan.h"
#include "base/error.h"
#include "base/text.h"
#include "choose/evidence.h"
#include "choose/session.h"
#include "mlp/mlp_plan.h"
#include "quantize/quantize_plan.h"
#include "route/route_plan.h"

#include <stdio.h>
#include <stdlib.h>

void qn_moe_plan_free(struct qn_moe_plan *plan)
{
    if (!plan)
        return;
    qn_route_plan_free(plan->maps);
    qn_route_plan_free(plan->permute);
    qn_route_plan_free(plan->combine);
    qn_mlp_plan_free(plan->mlp);
    free(plan);
}

/* Does a product or a cast read tokens of x or dy through indices? A product
   of dh does only where its cast might. */
static int stays(const struct qn_moe_plan *plan, int tensor)
{
    return (tensor == QUERN_MLP_X && plan->mlp->gathers) ||
           qn_moe_gathers(&plan->moe, plan->recipe, tensor);
}

/* The tensors that a phase moves to rows first. */
static const char *moved(const struct qn_moe_plan *plan, int tensor)
{
    static const char *const names[2][2] = {{"x", "x and prob"},
                                            {"dy", "dy and prob"}};
    const int weighted = plan->moe.mlp.probability == QUERN_WEIGHTS_H;

    return !stays(plan, tensor) ? names[tensor != QUERN_MLP_X][weighted]
           : weighted           ? "prob"
                                : NULL;
}

/* Does a phase move tokens to rows, or numbers of pairs, in a launch of its
   own? */
static int permutes(const struct qn_moe_plan *plan)
{
    const struct qn_moe *moe = &plan->moe;

    return (moved(plan, QUERN_MLP_X) && !plan->maps->moves) ||
           (!moe->mlp.forward_only &&
            (moved(plan, QUERN_MLP_DY) ||
             moe->mlp.probability == QUERN_WEIGHTS_X ||
             qn_moe_keeps(moe, plan->recipe, QUERN_MLP_X)));
}

int qn_moe_copies(const struct qn_moe_plan *plan, int phase)
{
    return plan->mlp->gathers && !qn_mlp_scaled(plan->recipe, QUERN_MLP_X) &&
           (phase == QUERN_PHASE_FORWARD || plan->moe.mlp.recompute);
}

/* The launch right before the MLP's, in each phase: none where tokens may be
   copied in between. */
static void list_before(const struct qn_moe_plan *plan, enum qn_before first[])
{
    if (!qn_moe_copies(plan, QUERN_PHASE_FORWARD) ||
        (!plan->maps->moves && moved(plan, QUERN_MLP_X)))
        first[QUERN_PHASE_FORWARD] = QN_BEFORE_CAST;
    if ((qn_moe_keeps(&plan->moe, plan->recipe, QUERN_MLP_X) ||
         moved(plan, QUERN_MLP_DY)) &&
        !qn_moe_copies(plan, QUERN_PHASE_BACKWARD))
        first[QUERN_PHASE_BACKWARD] = QN_BEFORE_CAST;
}

/* Launches may depend on those before them in their phase. */
static void depend(struct qn_moe_plan *plan)
{
    const struct qn_mlp_plan *mlp = plan->mlp;
    enum qn_before first[QUERN_PHASES] = {QN_BEFORE_NOTHING};

    list_before(plan, first);
    qn_mlp_depend(plan->mlp, first);
    if (!plan->maps->moves)
        qn_quantize_depend(plan->maps->launches, 1);
    if (mlp->ends[QUERN_PHASE_FORWARD] &&
        (mlp->mlp.forward_only || mlp->ends[QUERN_PHASE_BACKWARD]))
        qn_quantize_depend(plan->combine->launches, 0);
}

/* The MLP's plan may need less than any would. */
static void shrink_scratch(struct qn_moe_plan *plan)
{
    const size_t maps = plan->maps->need.workspace_bytes;
    const size_t mlp = plan->mlp->need.workspace_bytes;
    struct qn_moe_space space;

    plan->scratch = mlp > maps ? mlp : maps;
    qn_moe_space_fill(&plan->moe, plan->recipe, plan->scratch, &space);
    plan->need.workspace_bytes = space.workspace;
}

static int plan_parts(struct qn_moe_plan *plan, struct qn_session *s)
{
    const struct {
        int work;
        struct qn_route_plan **plan;
    } moves[] = {{QUERN_ROUTE, &plan->maps},
                 {QUERN_PERMUTE, &plan->permute},
                 {QUERN_COMBINE, &plan->combine}};
    struct qn_session ordered = *s;
    struct qn_route route;
    struct qn_mlp mlp;
    int code;

    qn_moe_mlp(&plan->moe, &mlp);
    ordered.options.same_sums = ordered.demand.same_sums =
        qn_moe_within(plan->recipe);
    code = qn_mlp_plan_inner(&ordered, &mlp, &plan->mlp);
    if (code)
        return code;
    plan->mlp->layer = 1;
    for (int i = 0; i < 3 && !code; i++) {
        if (moves[i].work == QUERN_PERMUTE && !permutes(plan))
            continue;
        qn_moe_route(&plan->moe, moves[i].work, &route);
        code = qn_route_plan_session(s, &route, moves[i].plan);
    }
    if (!code && qn_session_dependents(s, mlp.m))
        depend(plan);
    if (!code)
        shrink_scratch(plan);
    return code;
}

int qn_moe_plan_inner(struct qn_session *s, const struct qn_moe *moe,
                      struct qn_moe_plan **out)
{
    struct qn_moe_plan *plan = calloc(1, sizeof *plan);
    struct qn_moe_space space;
    int code;

    if (!plan)
        return qn_error_memory();
    plan->ctx = s->ctx;
    plan->moe = *moe;
    code = qn_moe_describe(s->ctx, moe, &plan->need, &space, &plan->recipe);
    plan->scratch = space.scratch;
    if (!code)
        code = plan_parts(plan, s);
    if (code)
        qn_moe_plan_free(plan);
    else
        *out = plan;
    return code;
}

static int make(struct qn_session *s, const void *moe, void *plan)
{
    return qn_moe_plan_inner(s, moe, plan);
}

static void drop(void *plan)
{
    struct qn_moe_plan **at = plan;

    qn_moe_plan_free(*at);
    *at = NULL;
}

int qn_moe_plan(struct quern_context *ctx, const struct qn_moe *moe,
                const struct qn_plan_options *options, struct qn_moe_plan **out)
{
    static const struct qn_plan_kind kind = {make, drop};
    const int code = qn_mlp_plan_options(options);

    *out = NULL;
    return code ? code : qn_session_plan(ctx, options, &kind, moe, out);
}

/* The least of all launches. */
static int evidence_of(const struct qn_moe_plan *plan)
{
    const struct qn_route_plan *const moves[] = {plan->maps, plan->permute,
                                                 plan->combine};
    int least = qn_mlp_evidence(plan->mlp);

    for (int i = 0; i < 3; i++) {
        const int own = moves[i] ? qn_route_evidence(moves[i]) : least;

        least = own < least ? own : least;
    }
    return least;
}

void qn_moe_plan_info(const struct qn_moe_plan *plan,
                      struct quern_plan_info *info)
{
    qn_mlp_plan_info(plan->mlp, info);
    info->workspace_bytes = plan->need.workspace_bytes;
    info->evidence = evidence_of(plan);
}

/* --------------------------------------------------------------------- why */

static void explain_move(const struct qn_route_plan *plan, const char *what,
                         struct qn_text *text)
{
    qn_text_add(text, "  %s\n", what);
    qn_route_explain(plan, "    ", text);
}

/* Tokens to rows, of x or dy, by a launch of its own if `permute`. */
static void explain_rows(const struct qn_moe_plan *plan, int tensor,
                         int permute, struct qn_text *text)
{
    const char *const rows = moved(plan, tensor);
    const int product =
        tensor == QUERN_MLP_X ? plan->mlp->gathers : plan->mlp->gathers_dy;
    char what[32];

    if (permute && rows) {
        snprintf(what, sizeof what, "%s to rows", rows);
        explain_move(plan->permute, what, text);
    }
    if (stays(plan, tensor))
        qn_text_add(text, "  %s stays in tokens, which %s gathers\n",
                    tensor == QUERN_MLP_X ? "x" : "dy",
                    !product                ? "its cast"
                    : tensor == QUERN_MLP_X ? "the product of pre"
                                            : "the product of dh");
}

static void explain_maps(const struct qn_moe_plan *plan, struct qn_text *text)
{
    const char *const rows =
        plan->maps->moves ? moved(plan, QUERN_MLP_X) : NULL;
    char what[64] = "maps of rows";

    if (rows)
        snprintf(what, sizeof what, "maps of rows, and %s to rows", rows);
    explain_move(plan->maps, what, text);
}

/* The launches of a phase before those of the MLP, and after. */
static void explain_before(const struct qn_moe_plan *plan, int phase,
                           struct qn_text *text)
{
    if (phase == QUERN_PHASE_FORWARD) {
        explain_maps(plan, text);
        explain_rows(plan, QUERN_MLP_X, !plan->maps->moves, text);
    } else if (phase == QUERN_PHASE_BACKWARD) {
        explain_rows(plan, QUERN_MLP_DY, 1, text);
        if (qn_moe_keeps(&plan->moe, plan->recipe, QUERN_MLP_X))
            explain_move(plan->permute, "x to rows", text);
    }
}

static void explain_after(const struct qn_moe_plan *plan, int phase,
                          struct qn_text *text)
{
    const int weights = plan->moe.mlp.probability;
    const int forward = phase == QUERN_PHASE_FORWARD;

    if (!forward && phase != QUERN_PHASE_BACKWARD)
        return;
    if (forward ? plan->mlp->scatters_y : plan->mlp->scatters_dx)
        qn_text_add(text, "  the product of %s writes rows at addresses\n",
                    forward ? "y" : "dx");
    else
        explain_move(plan->combine,
                     forward                      ? "rows to y"
                     : weights == QUERN_WEIGHTS_H ? "rows to dx and dprob"
                                                  : "rows to dx",
                     text);
    if (forward)
        return;
    if (plan->mlp->scatters_dx && weights == QUERN_WEIGHTS_H)
        explain_move(plan->combine, "dprob of rows to pairs", text);
    if (weights == QUERN_WEIGHTS_X)
        explain_move(plan->permute, "dprob, from x and rows of dx", text);
}

static int explain(struct qn_session *s, const void *given,
                   struct qn_text *text)
{
    const struct qn_moe *moe = given;
    struct qn_moe_plan *plan;
    char line[512];
    int code = qn_moe_plan_inner(s, moe, &plan);

    if (code)
        return code;
    qn_moe_print(moe, line, sizeof line);
    qn_text_add(text, "%s\n", line);
    if (qn_session_gpu(s))
        qn_evidence_why(evidence_of(plan), qn_session_capability(s), text);
    for (int i = 0; i < QUERN_PHASES; i++) {
        const int phase = qn_mlp_phase_order[i];

        if (!qn_mlp_has(&moe->mlp, phase))
            break;
        qn_text_add(text, "\n%s\n", qn_mlp_phase_names[phase]);
        explain_before(plan, phase, text);
        qn_mlp_explain(plan->mlp, phase, text);
        explain_after(plan, phase, text);
    }
    qn_moe_plan_free(plan);
    return QUERN_OK;
}

int qn_moe_why(struct quern_context *ctx, const struct qn_moe *moe,
               const struct qn_plan_options *options, char **out)
{
    const int code = qn_mlp_plan_options(options);

    return code ? code : qn_session_why(ctx, NULL, options, explain, moe, out);
}
