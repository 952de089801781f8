/* SPDX-License-Identifier: Apache-2.0 */
/* route_run.c: launch a plan's kernels. Nothing here allocates. */
#include "base/context.h"
#include "base/region.h"
#include "device/check.h"
#include "device/driver.h"
#include "quantize/quantize_plan.h"
#include "route/route_plan.h"

/* Outputs overlap nothing else. */
static int check_overlap(const struct qn_route_plan *plan,
                         const struct qn_route_args *args)
{
    const struct qn_route *r = &plan->route;
    const size_t pairs = (size_t)(args->tokens * r->topk),
                 groups = (size_t)r->groups,
                 index = r->index == QUERN_I64 ? 8 : 4;
    const struct qn_region list[] = {
        {"workspace", args->workspace, plan->need.workspace_bytes, 1, 0},
        {"index", args->index, pairs * index, 0, 0},
        {"lengths", args->lengths, groups * sizeof(int), 1, 0},
        {"starts", args->starts, (groups + 1) * sizeof(int), 1, 0},
        {"gather", args->gather, pairs * sizeof(int), 1, 0},
        {"inverse", args->inverse, pairs * sizeof(int), r->work == QUERN_ROUTE,
         0},
        {"prob", args->probability, pairs * sizeof(float), 0, 0},
        {"dprob", args->dprob, pairs * sizeof(float), 1, 0},
        {"input", args->in.data, args->in.bytes, 0, 0},
        {"rows", args->rows.data, args->rows.bytes, 0, 0},
        {"c", args->residual.data, args->residual.bytes, 0, 1},
        {"output", args->out.data, args->out.bytes, 1, 1}};

    return qn_region_check(list, sizeof list / sizeof list[0]);
}

static long long stride_of(const struct qn_tensor *t)
{
    return t->stride || !t->ndim ? t->stride : t->shape[1];
}

/* Tokens and rows. */
static void set_moves(const struct qn_route *r,
                      const struct qn_route_args *args, struct qn_values *v)
{
    v->k = (int)r->k;
    v->input = r->type;
    v->in = args->in.data;
    v->in_stride = stride_of(&args->in);
    v->out = args->out.data;
    v->out_stride = stride_of(&args->out);
    v->c = args->residual.data;
    v->c_stride = stride_of(&args->residual);
    v->rows = args->rows.data;
    v->rows_stride = stride_of(&args->rows);
    v->probability = args->probability;
    v->dprob = args->dprob;
    v->addresses = args->addresses;
    v->pair_numbers = args->pairs;
    v->row_numbers = args->numbers;
}

static void set_values(const struct qn_route_plan *plan,
                       const struct qn_route *r,
                       const struct qn_route_args *args, struct qn_values *v)
{
    char *space = args->workspace;

    qn_value_copy(v, &plan->launches->values);
    v->m = (int)args->tokens;
    v->topk = r->topk;
    v->groups = r->groups;
    v->experts = qn_route_experts(r);
    v->first_expert = r->first;
    v->index = args->index;
    v->sizes_bytes = r->index == QUERN_I64 ? 8 : 4;
    v->lengths = args->lengths;
    v->starts = args->starts;
    v->gather = args->gather;
    v->inverse = args->inverse;
    v->token_count = args->count;
    v->error = args->errors ? args->errors : args->workspace;
    if (r->work == QUERN_ROUTE)
        v->counters = (unsigned int *)(void *)(space + QN_WORKSPACE_BYTES);
    if (r->work != QUERN_ROUTE || plan->moves)
        set_moves(r, args, v);
}

int qn_route_launch(const struct qn_route_plan *plan,
                    const struct qn_route *route,
                    const struct qn_route_args *args, void *stream)
{
    struct qn_values values;
    int code = QUERN_OK;

    set_values(plan, route, args, &values);
    for (int i = 0; i < plan->launches->nsteps && !code; i++)
        code = qn_quantize_step_run(plan->launches, i, &values, stream);
    return code;
}

int qn_route_run(const struct qn_route_plan *plan,
                 const struct qn_route_args *args, void *stream)
{
    struct qn_driver_scope scope;
    int code = qn_context_process(plan->ctx, "plan");

    if (!code)
        code = check_overlap(plan, args);
    if (code || !plan->driver)
        return code ? code : qn_route_launch(plan, &plan->route, args, stream);
    code = qn_driver_enter(plan->driver, plan->context, &scope);
    if (!code)
        code = qn_route_launch(plan, &plan->route, args, stream);
    qn_driver_leave(plan->driver, &scope);
    return code;
}

int qn_route_run_check(const struct qn_route_plan *plan, void *workspace,
                       void *stream)
{
    const struct qn_route *r = &plan->route;

    return qn_check_route(plan->driver, plan->context, workspace, r->topk,
                          qn_route_experts(r), stream);
}
