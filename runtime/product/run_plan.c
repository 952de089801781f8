/* SPDX-License-Identifier: Apache-2.0 */
/* run_plan.c: run a plan of any kind, and check its records. */
#include "base/context.h"
#include "device/check.h"
#include "product/args.h"
#include "product/plan.h"
#include "product/run.h"

int qn_run(const struct qn_plan *plan, const struct qn_args *args, void *stream)
{
    const struct qn_plan *fitted;
    struct qn_plan room;
    int code = qn_context_process(plan->ctx, "plan");

    if (!code)
        code = qn_plan_fit(plan, args, &room, &fitted);
    if (!code)
        code = qn_args_check(fitted, args);
    return code ? code : qn_run_checked(fitted, args, stream);
}

int qn_check(const struct qn_plan *plan, const struct qn_args *args,
             void *stream)
{
    int from, code = qn_context_process(plan->ctx, "plan");

    if (code)
        return code;
    from = qn_args_sizes(plan, args);
    return qn_check_record(plan->driver, plan->context, args->workspace,
                           from < 0 ? &args->a : qn_args_tensor(args, from),
                           "quern_check", stream);
}
