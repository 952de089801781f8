/* SPDX-License-Identifier: Apache-2.0 */
/* api_queue.c: the wgrad queue, for plans of lines. */
#include "api/api.h"
#include "base/error.h"
#include "base/types.h"
#include "layer/moe_plan.h"

int quern_queue_create(struct quern_context *ctx, int capacity,
                       struct quern_queue **queue)
{
    return qn_queue(ctx, capacity, (struct qn_queue **)queue);
}

void quern_queue_destroy(struct quern_queue *queue)
{
    qn_queue_free((struct qn_queue *)queue);
}

int quern_queue_put(struct quern_queue *queue, const struct quern_plan *plan,
                    const struct quern_args *args, int layer)
{
    struct qn_queue *to = (struct qn_queue *)queue;
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
        return qn_mlp_put(plan->of.mlp, &given.mlp, to, layer);
    if (plan->line.kind == QN_LINE_MOE)
        return qn_moe_put(plan->of.moe, &given.mlp, to, layer);
    if (plan->line.kind == QN_LINE_CAST)
        return qn_queue_put_dbias(to, plan->of.cast, &given.cast, layer);
    return qn_queue_put(to, plan->of.product, &given.product, layer);
}

int quern_queue_flush(struct quern_queue *queue, int layer, int most,
                      struct CUstream_st *stream)
{
    return qn_queue_flush((struct qn_queue *)queue, layer, most, stream);
}

int quern_queue_drop(struct quern_queue *queue, int layer)
{
    return qn_queue_drop((struct qn_queue *)queue, layer);
}

int quern_queue_count(const struct quern_queue *queue, int layer)
{
    return qn_queue_count((const struct qn_queue *)queue, layer);
}
