/* SPDX-License-Identifier: Apache-2.0 */
/*
** plan_make.c: make a plan of any kind.
*/
#include "product/plan.h"
#include "base/context.h"
#include "base/error.h"
#include "choose/evidence.h"
#include "choose/session.h"
#include "product/frame.h"
#include "product/outside.h"
#include "quantize/quantize_plan.h"

#include <stdlib.h>

int qn_plan_session(struct qn_session *s, struct qn_plan **plan)
{
    int code =
        s->outline ? QUERN_OK : qn_session_capture(s, NULL, "making a plan");

    *plan = NULL;
    if (!code)
        code = qn_session_name(s);
    if (code)
        return code;
    if (s->problem->outside && s->demand.backend != QUERN_BACKEND_CUBLASLT)
        code = qn_outside_make(s, qn_lora_make, plan);
    else
        code = s->problem->copies ? qn_result_make(s, plan)
                                  : qn_lora_make(s, plan);
    if (!code && qn_session_dependents(
                     s, qn_geometry_length(s->problem, s->problem->ragged)))
        qn_launch_depend(*plan, QN_BEFORE_NOTHING);
    return code;
}

static int make(struct qn_session *s, const void *line, void *plan)
{
    (void)line;
    return qn_plan_session(s, plan);
}

static void drop(void *plan)
{
    struct qn_plan **at = plan;

    qn_plan_free(*at);
    *at = NULL;
}

int qn_plan_make(struct quern_context *ctx, const struct qn_problem *problem,
                 const struct qn_plan_options *options, int band,
                 struct qn_plan **plan)
{
    static const struct qn_plan_kind kind = {make, drop};
    struct qn_session session;
    int code = qn_session_open(&session, ctx, problem, options);

    *plan = NULL;
    session.band = band;
    if (!code)
        code = qn_session_make(&session, &kind, NULL, plan);
    qn_session_close(&session);
    if (!code)
        qn_context_log(ctx, QUERN_LOG_DEBUG, "plan: %s on %d %s",
                       qn_plan_name(*plan), (*plan)->workers,
                       (*plan)->driver ? "multiprocessors" : "threads");
    return qn_error_done(code);
}

int qn_plan(struct quern_context *ctx, const struct qn_problem *problem,
            const struct qn_plan_options *options, struct qn_plan **plan)
{
    return qn_plan_make(ctx, problem, options, 0, plan);
}

/* The least evidence of one launch's kernels, which are the plan's or its
   own. */
static int launch_evidence(const struct qn_plan *plan,
                           const struct qn_launch *launch)
{
    int cast =
        launch->cast ? qn_quantize_evidence(launch->cast) : QUERN_EVIDENCE_RUN;

    if (!qn_launch_multiplies(launch))
        return qn_evidence_least(cast, launch->step.kernel, plan->capability);
    if (launch->product && launch->product->nlaunches)
        return qn_plan_evidence(launch->product);
    if (launch->product)
        plan = launch->product;
    return plan->kernel ? qn_evidence(plan->kernel, plan->capability)
                        : QUERN_EVIDENCE_NONE;
}

int qn_plan_evidence(const struct qn_plan *plan)
{
    int least = QUERN_EVIDENCE_RUN;

    for (int i = 0; i < plan->nlaunches; i++) {
        const int own = launch_evidence(plan, &plan->launches[i]);

        least = own < least ? own : least;
    }
    return least;
}

void qn_plan_info(const struct qn_plan *plan, struct quern_plan_info *info)
{
    *info = (struct quern_plan_info){
        .kernel = qn_plan_name(plan),
        .backend = plan->backend,
        .sms = plan->workers,
        .workspace_bytes = plan->need.workspace_bytes,
        .streams = plan->streams,
        .microbatches = plan->kernel ? plan->microbatches : 1,
        .tuned = plan->tuned,
        .evidence = qn_plan_evidence(plan)};
}
