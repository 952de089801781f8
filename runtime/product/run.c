/* SPDX-License-Identifier: Apache-2.0 */
/*
** run.c: go through a plan's launches.
**
** Nothing here allocates: parameters are completed in a copy of the plan's
** values on the stack.
*/
#include "product/run.h"
#include "base/context.h"
#include "base/error.h"
#include "base/sizes_type.h"
#include "choose/host_sizes.h"
#include "device/driver.h"
#include "problem/lora_rules.h"
#include "product/args.h"
#include "product/backend.h"
#include "product/frame.h"
#include "product/outside.h"
#include "product/plan.h"

#include <string.h>

/* ------------------------------------------------------------------ values */

/* A map anew, for rows with gaps or matrices with room between them. */
static int spread_map(const struct qn_plan *plan,
                      const struct qn_map_param *param,
                      const struct qn_tensor *tensor, void *address,
                      struct cu_tensor_map *out)
{
    struct qn_geometry numbers;
    const struct qn_geometry *g = qn_tensormap_geometry(
        &plan->problem, &plan->operands[param->role], param->kind, &numbers);
    const int64_t stride = qn_args_stride(tensor, g);
    struct qn_map again;
    char reason[256];

    if (!qn_tensormap_build(
            g, qn_tensormap_operand(plan->kernel, param), param->kind, stride,
            qn_args_group_stride(tensor, g), &again, reason, sizeof reason))
        return qn_error_set(QUERN_EINVAL, "%c.stride is %lld: %s",
                            QN_LETTERS[param->role], (long long)stride, reason);
    return qn_tensormap_encode(plan->driver, &again, address, out);
}

/*
** The plan's map with this run's address. An empty operand and one of many
** matrices have no address, which no map takes: any will do. Strides of arrays
** that are not wanted mean nothing.
*/
static int point_map(const struct qn_plan *plan, const struct qn_args *args,
                     const struct qn_plan_map *map, struct cu_tensor_map *out)
{
    const struct qn_tensor *tensor =
        (const void *)((const char *)args + map->tensor);
    void *given = *(void *const *)((const char *)args + map->address);
    void *address = given ? given : args->workspace;
    const int packed = (!tensor->stride || tensor->stride == map->pitch) &&
                       !tensor->group_stride;

    if (map->param->kind == QN_MAP_POINTER && !tensor->pointers)
        return QUERN_OK; /* nothing reads it */
    if (packed || (!tensor->data && !tensor->pointers))
        return QN_CU(plan->driver, cuTensorMapReplaceAddress, out, address);
    return spread_map(plan, map->param, tensor, address, out);
}

static int point_maps(const struct qn_plan *plan, const struct qn_args *args,
                      struct qn_values *v)
{
    int code = QUERN_OK;

    for (int i = 0; !code && i < plan->nmaps; i++) {
        const struct qn_plan_map *map = &plan->maps[i];
        size_t offset = qn_value_offsets[map->param->param];
        struct cu_tensor_map *to = (void *)((char *)v + offset);

        memcpy(to, (const char *)&plan->values + offset, sizeof *to);
        code = point_map(plan, args, map, to);
    }
    return code;
}

/* Addresses and strides of the operands; C is D, or of its own, or nothing. */
static void set_operands(const struct qn_plan *plan, const struct qn_args *args,
                         struct qn_values *v)
{
    static const struct qn_tensor none;
    const struct qn_geometry *g = plan->operands;
    const struct qn_tensor *c = plan->problem.beta == QUERN_BETA_ONE ? &args->d
                                : plan->problem.beta == QUERN_BETA_ANY
                                    ? &args->c
                                    : &none;

    v->a = args->a.data;
    v->b = args->b.data;
    v->c = c->data;
    v->d = args->d.data;
    v->a_pointers = (const void *const *)args->a.pointers;
    v->b_pointers = (const void *const *)args->b.pointers;
    v->c_pointers = (const void *const *)c->pointers;
    v->d_pointers = args->d.pointers;
    v->a_sf = args->a.sf;
    v->b_sf = args->b.sf;
    v->a_global = args->a.global;
    v->b_global = args->b.global;
    v->saved = args->p.data;
    v->row_sf = args->d.sf;
    v->column = args->t.data;
    v->column_stride = g[QN_ROLE_T].pitch;
    v->column_sf = args->t.sf;
    v->extra_a = args->lora_t.data;
    v->extra_b = qn_lora_up_of(&plan->problem, args)->data;
    v->saved_stride =
        args->p.data ? qn_args_stride(&args->p, &g[QN_ROLE_P]) : 0;
    v->a_stride = qn_args_stride(&args->a, &g[QN_ROLE_A]);
    v->b_stride = qn_args_stride(&args->b, &g[QN_ROLE_B]);
    v->c_stride = qn_args_stride(c, &g[QN_ROLE_C]);
    v->d_stride = qn_args_stride(&args->d, &g[QN_ROLE_D]);
    v->a_group_stride = qn_args_group_stride(&args->a, &g[QN_ROLE_A]);
    v->b_group_stride = qn_args_group_stride(&args->b, &g[QN_ROLE_B]);
    v->c_group_stride = qn_args_group_stride(c, &g[QN_ROLE_C]);
    v->d_group_stride = qn_args_group_stride(&args->d, &g[QN_ROLE_D]);
}

/* The address of product `i`'s sizes from the host in a launch. */
static int *sizes_place(const struct qn_plan *plan, void *workspace, int i)
{
    return (int *)(void *)((char *)workspace + QN_WORKSPACE_BYTES) +
           (ptrdiff_t)i * plan->problem.groups;
}

/* On the host itself as they are, else as loaded. */
static void set_sizes(const struct qn_plan *plan, const struct qn_args *args,
                      struct qn_values *v)
{
    const int from = qn_args_sizes(plan, args);

    if (args->host_sizes) {
        v->first_dims =
            plan->driver ? (const void *)sizes_place(plan, args->workspace, 0)
                         : args->host_sizes;
        v->offsets = NULL;
        v->sizes_bytes = plan->driver ? 4 : 8;
    } else if (from >= 0) {
        const struct qn_tensor *tensor = qn_args_tensor(args, from);

        v->first_dims = qn_args_lengths(tensor, &plan->operands[from]);
        v->offsets = tensor->offsets;
        v->sizes_bytes = qn_sizes_bytes(tensor->sizes_type);
    }
}

/* A run's additions to the plan's values. */
static void set_values(const struct qn_plan *plan, const struct qn_args *args,
                       struct qn_values *v)
{
    set_operands(plan, args, v);
    set_sizes(plan, args, v);
    v->alpha = args->alpha;
    v->beta = args->beta;
    v->scalar_step = args->scalars > 1;
    v->bias = args->bias;
    v->probability = args->probability;
    v->limit = args->limit;
    v->slope = args->slope;
    v->shift = args->shift;
    v->gather = (int *)(uintptr_t)args->gather; /* read, of a route written */
    v->scatter = args->scatter;
    v->addresses = args->addresses;
    v->noop = args->noop;
    if (v->bases) /* a kernel that takes them is run after such flags */
        v->bases = (const unsigned *)(const void *)args->noop + QN_F16_BASES;
    v->error = args->workspace;
    qn_gradient_set(&plan->problem, args, v);
}

/* --------------------------------------------------------------------- run */

static int launch(const struct qn_plan *plan, void **params, void *stream)
{
    struct cu_launch shape = plan->launch;

    shape.stream = stream;
    return qn_driver_launch(plan->driver, &shape,
                            shape.nattributes ? &plan->cluster : NULL,
                            plan->dependent, plan->kernel_function, params);
}

/* Queue the sizes that come from the host, if any do, all into the workspace
   of the first product. */
static int put_sizes(const struct qn_plan *plan,
                     const struct qn_args *const *args, int count, void *place,
                     void *stream)
{
    const struct qn_launch *launch = qn_launch_find(plan, QN_WORK_SIZES);
    const int64_t *lists[QUERN_MAX_MICROBATCHES];
    int any = 0;

    for (int i = 0; i < count; i++) {
        lists[i] = args[i]->host_sizes;
        any |= lists[i] != NULL;
    }
    if (!any || !launch)
        return QUERN_OK;
    return qn_host_size_put(plan->driver, &launch->step, plan->problem.sizes,
                            lists, count, plan->problem.groups, place, stream);
}

/* All arguments of one product in a launch. */
static void fill_part(const struct qn_values *v, struct qn_microbatch *part)
{
    *part = (struct qn_microbatch){
        .a = v->a,
        .b = v->b,
        .first_dims = v->first_dims,
        .offsets = v->offsets,
        .a_sf = v->a_sf,
        .b_sf = v->b_sf,
        .a_global = v->a_global,
        .b_global = v->b_global,
        .a_stride = v->a_stride,
        .b_stride = v->b_stride,
        .a_sf_stride = v->a_sf_stride,
        .b_sf_stride = v->b_sf_stride,
        .sizes_bytes = v->sizes_bytes,
        .k = v->k,
    };
}

/* Product i of a launch, whose values `v` it completes; plain values are the
   first product's. */
static int add_part(const struct qn_plan *plan, const struct qn_args *args,
                    int i, struct qn_values *v)
{
    const struct qn_plan *fitted;
    struct qn_values other, *one = i ? &other : v;
    struct qn_plan room;
    int code = qn_plan_fit(plan, args, &room, &fitted);

    if (code)
        return code;
    memcpy(one, &fitted->values, QN_PLAIN_BYTES);
    set_values(fitted, args, one);
    if (plan->driver)
        code = point_maps(fitted, args, one);
    v->microbatch_count = i + 1;
    fill_part(one, &v->microbatches.part[i]);
    if (args->host_sizes && plan->driver)
        v->microbatches.part[i].first_dims = sizes_place(plan, v->error, i);
    v->microbatch_maps.part[i].a = one->a_map;
    v->microbatch_maps.part[i].b = one->b_map;
    return code;
}

/* The current context is the plan's. */
static int merge(const struct qn_plan *plan, const struct qn_args *const *args,
                 int count, void *stream)
{
    struct qn_values values;
    void *params[QN_PARAM_COUNT];
    int code = QUERN_OK;

    for (int i = 0; !code && i < count; i++)
        code = add_part(plan, args[i], i, &values);
    if (code)
        return code;
    qn_value_list(plan->kernel, &values, params);
    code = put_sizes(plan, args, count,
                     sizes_place(plan, args[0]->workspace, 0), stream);
    if (!code && plan->driver)
        return launch(plan, params, stream);
    if (!code)
        qn_host_run(plan->function, params, plan->workers);
    return code;
}

int qn_run_merged(const struct qn_plan *plan, const struct qn_args *const *args,
                  int count, void *stream)
{
    struct qn_driver_scope scope;
    int code = qn_context_process(plan->ctx, "plan");

    if (code || !plan->driver)
        return code ? code : merge(plan, args, count, stream);
    code = qn_driver_enter(plan->driver, plan->context, &scope);
    if (!code)
        code = merge(plan, args, count, stream);
    qn_driver_leave(plan->driver, &scope);
    return code;
}

/* All but the maps, of a plan for just these arguments. */
static void complete(const struct qn_plan *plan, const struct qn_args *args,
                     struct qn_values *values, void **params)
{
    qn_value_copy(values, &plan->values);
    values->microbatch_count = 0;
    set_values(plan, args, values);
    if (plan->kernel)
        qn_value_list(plan->kernel, values, params);
}

int qn_run_prepare(const struct qn_plan *plan, const struct qn_args *args,
                   struct qn_values *values, void **params)
{
    int code = qn_args_check(plan, args);

    if (!code && args->host_sizes)
        code = qn_error_set(QUERN_EINVAL,
                            "args.host_sizes is not NULL: one launch is "
                            "measured, with sizes on the device");
    if (!code && plan->problem.dequantize > QUERN_DEQUANTIZE_MAINLOOP)
        code = qn_error_set(QUERN_EINVAL,
                            "dequantize: one launch is measured, this run is "
                            "several; dequantize=mainloop is one");
    if (!code && qn_launch_find(plan, QN_WORK_QUANTIZE_D))
        code = qn_error_set(QUERN_EINVAL,
                            "copies: one launch is measured, this run is a "
                            "product and a cast; measure it without copies");
    if (!code && plan->problem.lora && plan->nlaunches)
        code = qn_error_set(QUERN_EINVAL,
                            "lora: one launch is measured, this run is "
                            "several; measure it without adapters");
    if (!code && plan->sums)
        code = qn_error_set(QUERN_EINVAL,
                            "bias, activation: one launch is measured, this "
                            "run is a product and its epilogue");
    if (code)
        return code;
    complete(plan, args, values, params);
    return plan->microbatches > 1 ? add_part(plan, args, 0, values)
                                  : point_maps(plan, args, values);
}

/* ---------------------------------------------------------------- launches */

static int run_sizes(struct qn_frame *f, const struct qn_launch *launch)
{
    const struct qn_plan *plan = f->plan;
    void *place = plan->problem.dequantize > QUERN_DEQUANTIZE_MAINLOOP
                      ? qn_frame_at(f, f->space.brought)
                      : sizes_place(plan, f->args->workspace, 0);

    (void)launch;
    if (!f->args->host_sizes)
        return QUERN_OK;
    f->lengths = place;
    f->sizes_type = QUERN_I32;
    return put_sizes(plan, &f->args, 1, place, f->stream);
}

/* One kernel, with arguments that its plan fits. */
static int multiply(struct qn_frame *f, const struct qn_plan *plan,
                    const struct qn_args *args)
{
    void *params[QN_PARAM_COUNT];
    int code;

    complete(plan, args, &f->values, params);
    if (plan->products)
        return plan->ctx->cublaslt->run(plan, &f->values, args->host_sizes,
                                        f->stream);
    if (!plan->driver) {
        qn_host_run(plan->function, params, plan->workers);
        return QUERN_OK;
    }
    code = point_maps(plan, args, &f->values);
    return code ? code : launch(plan, params, f->stream);
}

/* With operands, or a D, in the workspace. */
static int multiply_other(struct qn_frame *f, const struct qn_launch *launch)
{
    const struct qn_problem *p = &f->plan->problem;
    struct qn_args args = *f->args;
    const struct qn_plan *fitted;
    struct qn_plan room;
    int code;

    if (f->plan->numbers)
        qn_result_product_args(f, &args);
    if (f->plan->sums)
        qn_epilogue_args(f, &args);
    if (launch->operands)
        qn_dequantize_args(f, launch, &args);
    if (launch->work != QN_WORK_PRODUCT)
        qn_lora_args(f, launch, &args);
    code = p->gather && launch->work != QN_WORK_UP
               ? qn_plan_fit_total(launch->product, p->m, p->tokens, &room,
                                   &fitted)
               : qn_plan_fit(launch->product, &args, &room, &fitted);
    return code ? code : multiply(f, fitted, &args);
}

static int run_product(struct qn_frame *f, const struct qn_launch *launch)
{
    return launch->product ? multiply_other(f, launch)
                           : multiply(f, f->plan, f->args);
}

/* --------------------------------------------------------------------- run */

/* In the plan's context. */
static int run_all(struct qn_frame *f)
{
    static int (*const run[QN_WORKS])(struct qn_frame *,
                                      const struct qn_launch *) = {
        [QN_WORK_SIZES] = run_sizes,
        [QN_WORK_PREPARE] = qn_dequantize_prepare,
        [QN_WORK_RANGE] = qn_dequantize_check_range,
        [QN_WORK_REQUANTIZE] = qn_dequantize_to_fp8,
        [QN_WORK_DEQUANTIZE] = qn_dequantize_to_bf16,
        [QN_WORK_QUANTIZE_A] = qn_fuse_quantize,
        [QN_WORK_SUM_A] = qn_fuse_sum,
        [QN_WORK_DOWN] = multiply_other,
        [QN_WORK_PRODUCT] = run_product,
        [QN_WORK_UP] = multiply_other,
        [QN_WORK_EPILOGUE] = qn_epilogue_run,
        [QN_WORK_SUM] = qn_gradient_sum,
        [QN_WORK_QUANTIZE_D] = qn_result_quantize,
        [QN_WORK_OUTSIDE] = qn_outside_run,
    };
    const struct qn_plan *plan = f->plan;
    int code = QUERN_OK;

    for (int i = 0; !code && i < plan->nlaunches; i++)
        code = run[plan->launches[i].work](f, &plan->launches[i]);
    return code;
}

int qn_run_checked(const struct qn_plan *plan, const struct qn_args *args,
                   void *stream)
{
    struct qn_driver_scope scope;
    struct qn_frame frame;
    int code;

    if (plan->microbatches > 1)
        return qn_run_merged(plan, &args, 1, stream);
    frame.plan = plan;
    frame.args = args;
    frame.stream = stream;
    if (plan->nlaunches > 1 || plan->launches[0].product)
        qn_args_given(plan, args, &frame.lengths, &frame.offsets,
                      &frame.sizes_type);
    if (plan->problem.dequantize > QUERN_DEQUANTIZE_MAINLOOP)
        qn_dequantize_lay_out(&plan->problem, plan->recipe, plan->target,
                              &frame.space);
    if (!plan->driver)
        return run_all(&frame);
    code = qn_driver_enter(plan->driver, plan->context, &scope);
    if (!code)
        code = run_all(&frame);
    qn_driver_leave(plan->driver, &scope);
    return code;
}
