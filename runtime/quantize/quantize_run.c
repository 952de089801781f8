/* SPDX-License-Identifier: Apache-2.0 */
/* quantize_run.c: launch a plan's kernels. Nothing here allocates. */
#include "quantize/quantize_plan.h"
#include "base/context.h"
#include "base/sizes_type.h"
#include "choose/host_sizes.h"
#include "device/driver.h"

#include <string.h>

/* Addresses of a copy, and where its largest magnitudes go. */
static void set_copies(const struct qn_quantize_plan *plan,
                       const struct qn_quantize_args *args, struct qn_values *v)
{
    char *space = args->workspace;
    const struct qn_scaling *s = qn_quantize_scaling(&plan->q, plan->recipe);
    int alike = s->span != QN_SPAN_ROW && !s->hadamard;
    int amax = qn_quantize_needs_amax(&plan->q, s);

    v->row = args->row.data;
    v->row_sf = args->row.sf;
    v->row_global = args->row.global;
    v->column = args->column.data;
    v->column_sf = args->column.sf;
    v->column_global = args->column.global;
    if (amax && v->row && plan->q.work == QUERN_QUANTIZE)
        v->row_amax = (unsigned *)(void *)(space + plan->space.row_amax);
    if (amax && v->column)
        v->column_amax =
            alike && v->row_amax
                ? v->row_amax
                : (unsigned *)(void *)(space + plan->space.column_amax);
}

/* The address of a tensor that the work has, after its checks; else 0: the
   caller's value was not checked. */
static int64_t stride_of(const struct qn_tensor *given,
                         const struct qn_tensor *need)
{
    if (!need->ndim)
        return 0;
    return given->stride ? given->stride : need->shape[need->ndim - 1];
}

/* The caller's arrays; sizes from the host are in the workspace, or where the
   host itself computes as they are. */
static void set_sizes(const struct qn_quantize_plan *plan,
                      const struct qn_quantize_args *args, struct qn_values *v)
{
    v->first_dims = args->first_dims;
    v->offsets = args->offsets;
    v->sizes_bytes = qn_sizes_bytes(args->sizes_type);
    if (!args->host_sizes)
        return;
    v->first_dims = plan->driver ? (char *)args->workspace + plan->space.sizes
                                 : (const void *)args->host_sizes;
    v->sizes_bytes = plan->driver ? 4 : 8;
}

/* A run's additions to the plan's values. */
static void set_values(const struct qn_quantize_plan *plan,
                       const struct qn_quantize_args *args, struct qn_values *v)
{
    const struct qn_quantize_args *need = &plan->need.args;
    char *space = args->workspace;

    set_copies(plan, args, v);
    v->in = args->in.data;
    v->in_pointers = (const void *const *)args->in.pointers;
    v->in_stride = stride_of(&args->in, &need->in);
    v->gather = (int *)args->gather;
    v->topk = args->topk;
    v->in_group_stride = plan->q.m * v->in_stride;
    v->saved = args->saved.data;
    v->saved_stride = stride_of(&args->saved, &need->saved);
    v->out = args->out.data;
    v->out_stride = stride_of(&args->out, &need->out);
    v->probability = args->probability;
    v->bias = args->bias;
    v->dbias = args->dbias;
    v->dprob = args->dprob;
    v->scale = args->scale;
    v->history = args->history;
    v->random = (const unsigned long long *)args->random;
    v->noop = args->noop;
    v->limit = args->limit;
    v->slope = args->slope;
    v->shift = args->shift;
    set_sizes(plan, args, v);
    v->error = args->workspace;
    v->partials = (float *)(void *)(space + plan->space.partials);
}

/* Maxima begin at zero: no kernel need leave them so. */
static size_t cleared_bytes(const struct qn_quantize_plan *plan)
{
    return plan->steps[0].kernel->op == QN_AMAX
               ? plan->space.partials - QN_WORKSPACE_BYTES
               : 0;
}

void qn_quantize_depend(struct qn_quantize_plan *plan, int step)
{
    if (plan->q.of != QN_W && (step || !cleared_bytes(plan)))
        plan->steps[step].dependent = 1;
}

/* Queue the sizes that come from the host, if they do. */
static int put_sizes(const struct qn_quantize_plan *plan,
                     const struct qn_quantize_args *args, void *stream)
{
    if (!args->host_sizes)
        return QUERN_OK;
    return qn_host_size_put(
        plan->driver, &plan->size_step, plan->q.sizes, &args->host_sizes, 1,
        plan->q.groups, (char *)args->workspace + plan->space.sizes, stream);
}

int qn_quantize_step_run(const struct qn_quantize_plan *plan, int i,
                         struct qn_values *values, void *stream)
{
    const struct qn_quantize_step *step = &plan->steps[i];
    struct cu_launch config = step->launch;
    void *params[QN_PARAM_COUNT];

    qn_value_list(step->kernel, values, params);
    config.stream = stream;
    if (plan->driver)
        return qn_driver_launch(plan->driver, &config, NULL, step->dependent,
                                step->handle, params);
    qn_host_run(step->function, params, plan->workers);
    return QUERN_OK;
}

static int launch(const struct qn_quantize_plan *plan, struct qn_values *values,
                  void *workspace, void *stream)
{
    struct qn_driver *driver = plan->driver;
    size_t clear = cleared_bytes(plan);
    int code = QUERN_OK;

    if (clear)
        code = QN_CU(driver, cuMemsetD8Async,
                     (uint64_t)(uintptr_t)workspace + QN_WORKSPACE_BYTES, 0,
                     clear, stream);
    for (int i = 0; !code && i < plan->nsteps; i++)
        code = qn_quantize_step_run(plan, i, values, stream);
    return code;
}

static int run_on_gpu(const struct qn_quantize_plan *plan,
                      const struct qn_quantize_args *args,
                      struct qn_values *values, void *stream)
{
    int code = put_sizes(plan, args, stream);

    return code ? code : launch(plan, values, args->workspace, stream);
}

static void run_on_host(const struct qn_quantize_plan *plan,
                        struct qn_values *values, char *workspace)
{
    memset(workspace + QN_WORKSPACE_BYTES, 0, cleared_bytes(plan));
    for (int i = 0; i < plan->nsteps; i++)
        qn_quantize_step_run(plan, i, values, NULL);
}

int qn_quantize_launch(const struct qn_quantize_plan *plan,
                       const struct qn_quantize_args *args, void *stream)
{
    struct qn_values values;

    qn_value_copy(&values, &plan->values);
    set_values(plan, args, &values);
    if (plan->driver)
        return run_on_gpu(plan, args, &values, stream);
    run_on_host(plan, &values, args->workspace);
    return QUERN_OK;
}

int qn_quantize_admit(const struct qn_quantize_plan *plan,
                      const struct qn_quantize_args *args,
                      struct qn_quantize_plan *room,
                      const struct qn_quantize_plan **fitted)
{
    const struct qn_quantize_args *need = &plan->need.args;
    const int64_t rows = need->in.ndim    ? args->in.shape[0]
                         : need->out.ndim ? args->out.shape[0]
                                          : args->row.shape[0];
    int code = qn_context_process(plan->ctx, "plan");

    *fitted = plan;
    if (!code && plan->q.of != QN_W && plan->q.work != QUERN_RESCALE &&
        rows >= 0 && rows < plan->q.m)
        code = qn_quantize_fit(plan, rows, room, fitted);
    return code ? code : qn_quantize_args(*fitted, args);
}

int qn_quantize_run(const struct qn_quantize_plan *plan,
                    const struct qn_quantize_args *args, void *stream)
{
    struct qn_quantize_plan room;
    struct qn_driver_scope scope;
    int code = qn_quantize_admit(plan, args, &room, &plan);

    if (code || !plan->driver)
        return code ? code : qn_quantize_launch(plan, args, stream);
    code = qn_driver_enter(plan->driver, plan->context, &scope);
    if (!code)
        code = qn_quantize_launch(plan, args, stream);
    qn_driver_leave(plan->driver, &scope);
    return code;
}

/* The copy, as long as its rows are in this run. */
static void set_copy(const struct qn_quantize_plan *plan,
                     const struct qn_expansion *e, struct qn_values *v)
{
    struct qn_tensor t = {.ndim = 0};
    int64_t stride;

    qn_quantize_copy(e->q, plan->recipe, e->q->copies, &t);
    stride = t.stride ? t.stride : t.shape[t.ndim - 1];
    if (e->q->copies == QUERN_ROWWISE) {
        v->row = e->copy->data;
        v->row_sf = e->copy->sf;
        v->row_stride = stride;
    } else {
        v->column = e->copy->data;
        v->column_sf = e->copy->sf;
        v->column_stride = stride;
    }
}

int qn_quantize_unpack(const struct qn_quantize_plan *plan,
                       const struct qn_expansion *e, void *stream)
{
    struct qn_values values;

    qn_value_copy(&values, &plan->values);
    set_copy(plan, e, &values);
    values.m = (int)e->q->m;
    values.out = e->out;
    values.out_stride = e->q->k;
    values.first_dims = e->first_dims;
    values.offsets = e->offsets;
    values.sizes_bytes = e->sizes_bytes;
    values.align = e->align;
    values.noop = e->noop;
    values.error = e->error;
    if (plan->driver)
        return launch(plan, &values, e->error, stream);
    run_on_host(plan, &values, e->error);
    return QUERN_OK;
}
