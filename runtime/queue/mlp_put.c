/* SPDX-License-Identifier: Apache-2.0 */
/* mlp_put.c: the weight gradients of an MLP, in a queue. */
#include "base/error.h"
#include "mlp/mlp_plan.h"
#include "product/plan.h"
#include "queue/queue.h"

int qn_mlp_put(const struct qn_mlp_plan *plan, const struct qn_mlp_args *args,
               struct quern_queue *queue, int layer)
{
    static const int order[] = {QN_MLP_DW2, QN_MLP_DW1};
    const struct qn_plan *plans[2];
    struct qn_args all[2];
    struct qn_mlp_plan room;
    int count = 0, code = qn_mlp_plan_fit(plan, args, &room, &plan);

    if (!code)
        code = qn_mlp_args(plan, args, QUERN_PHASE_WGRAD, QUERN_PHASE_WGRAD);
    if (!code && args->host_sizes)
        code = qn_error_set(QUERN_EINVAL,
                            "host_sizes is not NULL: sizes of queued work "
                            "are on the device (lengths)");
    if (code)
        return code;
    for (int i = 0; i < 2; i++)
        if (qn_mlp_product_args(plan, args, order[i], &all[count]))
            plans[count++] = plan->launches[order[i]].product;
    return qn_queue_put_all(queue, plans, all, count, layer);
}
