/* SPDX-License-Identifier: Apache-2.0 */
/*
** plan_make.c: make a plan of any kind.
*/
#include "product/plan.h"
#include "base/context.h"
#include "base/error.h"
#include "choose/session.h"
#include "product/ahead.h"
#include "product/result.h"

#include <stdlib.h>

int qn_plan_make(struct quern_context *ctx, const struct quern_problem *problem,
                 const struct quern_plan_options *options, int band,
                 struct quern_plan **plan)
{
    struct qn_session session;
    int code;

    if (!ctx || !problem || !plan)
        return qn_error_null("ctx", ctx, "problem", problem, "plan");
    *plan = NULL;
    code = qn_plan_begin(&session, ctx, problem, options, band);
    if (!code)
        code = problem->copies ? qn_result_make(&session, plan)
                               : qn_ahead_make(&session, plan);
    return qn_plan_end(&session, *plan, code);
}

int quern_plan(struct quern_context *ctx, const struct quern_problem *problem,
               const struct quern_plan_options *options,
               struct quern_plan **plan)
{
    return qn_plan_make(ctx, problem, options, 0, plan);
}

void quern_plan_free(struct quern_plan *plan)
{
    qn_result_drop(plan);
}

void quern_plan_info(const struct quern_plan *plan,
                     struct quern_plan_info *info)
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
    info->parts = plan->kernel ? plan->parts : 1;
    info->tuned = plan->tuned;
}
