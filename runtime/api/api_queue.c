/* SPDX-License-Identifier: Apache-2.0 */
/* api_queue.c: the wgrad queue, for plans of lines. */
#include "api/api.h"
#include "base/error.h"
#include "base/types.h"
#include "layer/moe_plan.h"

int quern_queue_put(struct quern_queue *queue, const struct quern_plan *plan,
                    const struct quern_args *args, int layer)
{
    struct quern_args deferred;
    union qn_given given;
    int code;

    if (!queue || !plan || !args)
        return qn_error_null("queue", queue, "plan", plan, "args");
    deferred = *args;
    if (plan->line.kind == QN_LINE_ROUTE)
        return qn_error_set(QUERN_EINVAL,
                            "plan is of a '%s' line: a queue defers wgrads and "
                            "sums for dbias",
                            qn_routing_name(plan->line.of.route.work));
    if (qn_api_has_mlp(plan->line.kind))
        deferred.phase = QUERN_PHASE_WGRAD;
    code = qn_api_given(plan, &deferred, &given);
    if (code)
        return code;
    if (plan->line.kind == QN_LINE_MLP)
        return qn_mlp_put(plan->of.mlp, &given.mlp, queue, layer);
    if (plan->line.kind == QN_LINE_MOE)
        return qn_moe_put(plan->of.moe, &given.mlp, queue, layer);
    if (plan->line.kind == QN_LINE_CAST)
        return qn_queue_put_dbias(queue, plan->of.cast, &given.cast, layer);
    return qn_queue_put(queue, plan->of.product, &given.product, layer);
}
