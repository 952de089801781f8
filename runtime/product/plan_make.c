/* SPDX-License-Identifier: Apache-2.0 */
/*
** plan_make.c: make a plan of any kind.
*/
#include "product/plan.h"
#include "base/context.h"
#include "base/error.h"
#include "choose/session.h"
#include "product/frame.h"
#include "product/outside.h"

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
        return qn_outside_make(s, qn_epilogue_make, plan);
    return s->problem->copies ? qn_result_make(s, plan)
                              : qn_epilogue_make(s, plan);
}

int qn_plan_make(struct quern_context *ctx, const struct qn_problem *problem,
                 const struct qn_plan_options *options, int band,
                 struct qn_plan **plan)
{
    struct qn_session session;
    int code;

    if (!ctx || !problem || !plan)
        return qn_error_null("ctx", ctx, "problem", problem, "plan");
    *plan = NULL;
    code = qn_session_open(&session, ctx, problem, options);
    session.band = band;
    if (!code)
        code = qn_plan_session(&session, plan);
    qn_session_close(&session);
    if (!code)
        qn_context_log(ctx, QUERN_LOG_DEBUG, "plan: %s on %d %s",
                       qn_plan_name(*plan), (*plan)->workers,
                       (*plan)->driver ? "CTAs" : "threads");
    return qn_error_done(code);
}

int qn_plan(struct quern_context *ctx, const struct qn_problem *problem,
            const struct qn_plan_options *options, struct qn_plan **plan)
{
    return qn_plan_make(ctx, problem, options, 0, plan);
}

void qn_plan_info(const struct qn_plan *plan, struct quern_plan_info *info)
{
    if (!info)
        return;
    *info = (struct quern_plan_info){.kernel = ""};
    if (!plan)
        return;
    info->kernel = qn_plan_name(plan);
    info->backend = plan->backend;
    info->sms = plan->workers;
    info->workspace_bytes = plan->need.workspace_bytes;
    info->streams = plan->streams;
    info->microbatches = plan->kernel ? plan->microbatches : 1;
    info->tuned = plan->tuned;
}
