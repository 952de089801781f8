/*
** run.c: check the operands of a run and launch.
**
** Nothing here allocates: parameters are completed in a copy of the plan's
** values on the stack.
*/
#include "describe.h"
#include "plan.h"
#include "types.h"

#include <stdio.h>
#include <string.h>

/* ------------------------------------------------------------------ checks */

static const char names[] = "abd";

static const struct quern_tensor *tensor_at(const struct quern_args *args,
                                            int role)
{
    const struct quern_tensor *tensors[] = {&args->a, &args->b, &args->d};

    return tensors[role];
}

/* Elements from one row to the next. */
static int64_t stride_of(const struct quern_tensor *tensor,
                         const struct qn_geometry *g)
{
    return tensor->stride ? tensor->stride : g->columns;
}

/* The plan was made for one shape. */
static int check_shape(char name, const struct quern_tensor *given,
                       const struct quern_tensor *need)
{
    if (given->type != need->type)
        return qn_error_set(QUERN_EINVAL, "%c.type is %s, the plan's is %s",
                            name, qn_type_name(given->type),
                            qn_type_name(need->type));
    if (given->ndim != need->ndim)
        return qn_error_set(QUERN_EINVAL, "%c.ndim is %d, the plan's is %d",
                            name, given->ndim, need->ndim);
    for (int i = 0; i < need->ndim; i++)
        if (given->shape[i] != need->shape[i])
            return qn_error_set(
                QUERN_EINVAL, "%c.shape[%d] is %lld, the plan's is %lld", name,
                i, (long long)given->shape[i], (long long)need->shape[i]);
    return QUERN_OK;
}

/* At least a row, and for TMA a multiple of 16 bytes. */
static int check_stride(char name, const struct quern_tensor *tensor,
                        const struct qn_geometry *g, int mapped)
{
    int64_t stride = stride_of(tensor, g);
    int bits = qn_type_bits(g->type);

    if (stride < g->columns || stride > INT32_MAX)
        return qn_error_set(QUERN_EINVAL,
                            "%c.stride is %lld: 0 (packed) or %lld to %d is "
                            "expected",
                            name, (long long)stride, (long long)g->columns,
                            INT32_MAX);
    if (mapped && (uint64_t)stride * (uint64_t)bits % 128)
        return qn_error_set(QUERN_EINVAL,
                            "%c.stride is %lld elements of %s: rows must "
                            "start at multiples of 16 bytes",
                            name, (long long)stride, qn_type_name(g->type));
    return QUERN_OK;
}

/* Bytes that the rows span; checks that the buffer holds them. */
static int check_data(char name, const struct quern_tensor *tensor,
                      const struct qn_geometry *g)
{
    int64_t bytes = qn_geometry_bytes(g, stride_of(tensor, g));

    if (bytes < 0 || (uint64_t)bytes > tensor->bytes)
        return qn_error_set(QUERN_EINVAL,
                            "%c.bytes is %zu: its rows span %lld bytes", name,
                            tensor->bytes, (long long)bytes);
    if (bytes > 0 && !tensor->data)
        return qn_error_set(QUERN_EINVAL, "%c.data is NULL", name);
    if ((uintptr_t)tensor->data % QN_ALIGNMENT)
        return qn_error_set(QUERN_EINVAL,
                            "%c.data is %p: it must be a multiple of %d", name,
                            tensor->data, QN_ALIGNMENT);
    return QUERN_OK;
}

/* Type, shape, stride, address, scale factors. */
static int check_operand(const struct quern_plan *plan,
                         const struct quern_args *args, int role)
{
    const struct quern_tensor *tensor = tensor_at(args, role);
    const struct qn_geometry *g = &plan->operands[role];
    char name = names[role];
    int code = check_shape(name, tensor, tensor_at(&plan->need.args, role));

    if (!code)
        code = check_stride(name, tensor, g, plan->mapped[role]);
    if (!code)
        code = check_data(name, tensor, g);
    if (!code && !plan->scaled && tensor->sf)
        code = qn_error_set(QUERN_EINVAL,
                            "%c.sf is not NULL: recipe %s has no scale "
                            "factors",
                            name, plan->problem.recipe);
    return code;
}

/* The operand whose arrays give the sizes: the first ragged one; -1: none. */
static int sizes_role(const struct quern_plan *plan)
{
    for (int role = QN_ROLE_A; role <= QN_ROLE_B; role++)
        if (!plan->operands[role].grouped)
            return role;
    return -1;
}

/* A ragged axis that is contiguous is the last one. */
static const void *lengths_of(const struct quern_tensor *tensor,
                              const struct qn_geometry *g)
{
    return g->inner_ragged ? tensor->last_dims : tensor->first_dims;
}

/* Elements of the sizes must be aligned, on device and host. */
static int check_array(char name, const char *field, const void *array,
                       int type)
{
    size_t bytes = type == QUERN_I64 ? 8 : 4;

    if ((uintptr_t)array % bytes)
        return qn_error_set(QUERN_EINVAL,
                            "%c.%s is %p: %s must lie at multiples of %zu",
                            name, field, array, qn_type_name(type), bytes);
    return QUERN_OK;
}

/* Whoever is ragged must say how. */
static int check_sizes(const struct quern_tensor *tensor,
                       const struct qn_geometry *g)
{
    const char *field = g->inner_ragged ? "last_dims" : "first_dims";
    char name = names[g->role];
    const void *lengths = lengths_of(tensor, g);
    int code;

    if (!lengths && !tensor->offsets)
        return qn_error_set(QUERN_EINVAL,
                            "%c.%s and %c.offsets are NULL: the groups have "
                            "no sizes",
                            name, field, name);
    if (tensor->sizes_type != QUERN_I32 && tensor->sizes_type != QUERN_I64)
        return qn_error_set(QUERN_EINVAL,
                            "%c.sizes_type is %s: i32 or i64 is expected", name,
                            qn_type_name(tensor->sizes_type));
    code = check_array(name, field, lengths, tensor->sizes_type);
    if (!code)
        code =
            check_array(name, "offsets", tensor->offsets, tensor->sizes_type);
    return code;
}

/* One operand gives the sizes; another may repeat its arrays or leave them. */
static int check_other_sizes(const struct quern_plan *plan,
                             const struct quern_args *args, int from, int role)
{
    const struct quern_tensor *t = tensor_at(args, role);
    const struct quern_tensor *source = from < 0 ? NULL : tensor_at(args, from);
    const struct qn_geometry *g = &plan->operands[role];
    const void *lengths = lengths_of(t, g);
    const void *other = g->inner_ragged ? t->first_dims : t->last_dims;
    int repeats;

    if (other)
        return qn_error_set(QUERN_EINVAL,
                            "%c.%s is not NULL: %c is not "
                            "ragged along that axis",
                            names[role],
                            g->inner_ragged ? "first_dims" : "last_dims",
                            names[role]);
    if (role == from || (!lengths && !t->offsets))
        return QUERN_OK;
    if (g->grouped)
        return qn_error_set(QUERN_EINVAL,
                            "%c.first_dims and %c.offsets must "
                            "be NULL: %c is not ragged",
                            names[role], names[role], names[role]);
    repeats =
        (!lengths || lengths == lengths_of(source, &plan->operands[from])) &&
        (!t->offsets || t->offsets == source->offsets);
    if (!repeats)
        return qn_error_set(QUERN_EINVAL,
                            "%c.first_dims and %c.offsets must "
                            "be NULL or %c's arrays",
                            names[role], names[role], names[from]);
    return QUERN_OK;
}

/* Unsigned differences cannot overflow, whatever the addresses. */
static int overlap(const void *a, size_t a_bytes, const void *b, size_t b_bytes)
{
    uintptr_t x = (uintptr_t)a, y = (uintptr_t)b;

    return a_bytes && b_bytes && (x < y ? y - x < a_bytes : x - y < b_bytes);
}

/* From the first byte to the last; 0 if empty. */
static size_t span(const struct quern_plan *plan, const struct quern_args *args,
                   int role)
{
    const struct qn_geometry *g = &plan->operands[role];

    return (size_t)qn_geometry_bytes(g, stride_of(tensor_at(args, role), g));
}

/* What is written must not be what is read, nor the workspace. */
static int check_overlap(const struct quern_plan *plan,
                         const struct quern_args *args)
{
    size_t d_bytes = span(plan, args, QN_ROLE_D);

    for (int role = QN_ROLE_A; role <= QN_ROLE_D; role++) {
        const void *data = tensor_at(args, role)->data;
        size_t bytes = span(plan, args, role);

        if (role != QN_ROLE_D && overlap(args->d.data, d_bytes, data, bytes))
            return qn_error_set(QUERN_EINVAL, "d.data overlaps %c.data",
                                names[role]);
        if (overlap(args->workspace, QN_WORKSPACE_BYTES, data, bytes))
            return qn_error_set(QUERN_EINVAL, "workspace overlaps %c.data",
                                names[role]);
    }
    return QUERN_OK;
}

/* Its contents are the caller's promise. */
static int check_workspace(const struct quern_args *args)
{
    if (!args->workspace)
        return qn_error_set(QUERN_EINVAL,
                            "workspace is NULL: %d zeroed bytes "
                            "are needed",
                            QN_WORKSPACE_BYTES);
    if ((uintptr_t)args->workspace % QN_ALIGNMENT)
        return qn_error_set(QUERN_EINVAL,
                            "workspace is %p: it must be a multiple of %d",
                            args->workspace, QN_ALIGNMENT);
    return QUERN_OK;
}

/* All rules of quern_run, in the order of its arguments. */
static int check_args(const struct quern_plan *plan,
                      const struct quern_args *args)
{
    int from = sizes_role(plan);
    int code = check_workspace(args);

    for (int role = QN_ROLE_A; !code && role <= QN_ROLE_D; role++)
        code = check_operand(plan, args, role);
    if (!code && from >= 0)
        code = check_sizes(tensor_at(args, from), &plan->operands[from]);
    for (int role = QN_ROLE_A; !code && role <= QN_ROLE_D; role++)
        code = check_other_sizes(plan, args, from, role);
    if (!code)
        code = check_overlap(plan, args);
    return code;
}

/* ------------------------------------------------------------------ values */

/* In step with QN_PARAMS by construction.          COUPLED: params -> run.c */
const size_t qn_run_values[QN_PARAM_COUNT] = {
#define OFFSET(name, type, meaning)                                            \
    [QN_PARAM_##name] = offsetof(struct qn_values, name),
    QN_PARAMS(OFFSET)
#undef OFFSET
};

/* An empty operand may be NULL, which no map takes: any address will do. */
static void *map_address(const struct quern_args *args, int role)
{
    void *data = tensor_at(args, role)->data;

    return data ? data : args->workspace;
}

/* The plan's map with this run's address; anew for rows with gaps. */
static int point_map(const struct quern_plan *plan,
                     const struct quern_args *args,
                     const struct qn_plan_map *map, struct cu_tensor_map *out)
{
    int role = map->param->role;
    const struct qn_geometry *g = &plan->operands[role];
    const struct qn_operand *operands[] = {&plan->kernel->a, &plan->kernel->b,
                                           &plan->kernel->d};
    int64_t stride = stride_of(tensor_at(args, role), g);
    void *address = map_address(args, role);
    struct qn_map again;
    char reason[256];

    if (stride == g->columns)
        return QN_CU(plan->driver, cuTensorMapReplaceAddress, out, address);
    if (!qn_tensormap_build(g, operands[role], map->param->ragged, stride,
                            &again, reason, sizeof reason))
        return qn_error_set(QUERN_EINVAL, "%c.stride is %lld: %s", names[role],
                            (long long)stride, reason);
    return qn_tensormap_encode(plan->driver, &again, address, out);
}

static int point_maps(const struct quern_plan *plan,
                      const struct quern_args *args, struct qn_values *v)
{
    int code = QUERN_OK;

    for (int i = 0; !code && i < plan->nmaps; i++) {
        const struct qn_plan_map *map = &plan->maps[i];
        size_t offset = qn_run_values[map->param->param];

        code = point_map(plan, args, map, (void *)((char *)v + offset));
    }
    return code;
}

/* What a run adds to the plan's values. */
static void set_values(const struct quern_plan *plan,
                       const struct quern_args *args, struct qn_values *v)
{
    int from = sizes_role(plan);

    v->a = args->a.data;
    v->b = args->b.data;
    v->d = args->d.data;
    v->a_stride = stride_of(&args->a, &plan->operands[QN_ROLE_A]);
    v->b_stride = stride_of(&args->b, &plan->operands[QN_ROLE_B]);
    v->d_stride = stride_of(&args->d, &plan->operands[QN_ROLE_D]);
    v->error = args->workspace;
    if (from >= 0) {
        const struct quern_tensor *tensor = tensor_at(args, from);

        v->first_dims = lengths_of(tensor, &plan->operands[from]);
        v->offsets = tensor->offsets;
        v->sizes_bytes = tensor->sizes_type == QUERN_I64 ? 8 : 4;
    }
}

/* --------------------------------------------------------------------- run */

/* Attributes must be writable for the driver, hence the copies. */
static int launch(const struct quern_plan *plan, void **params, void *stream)
{
    struct cu_launch config = plan->launch;
    struct cu_attribute cluster = plan->cluster;

    config.stream = stream;
    config.attributes = config.nattributes ? &cluster : NULL;
    return QN_CU(plan->driver, cuLaunchKernelEx, &config, plan->kernel_function,
                 params, NULL);
}

/* In the plan's context; the thread's comes back afterwards. */
static int run_on_gpu(const struct quern_plan *plan,
                      const struct quern_args *args, struct qn_values *values,
                      void **params, void *stream)
{
    struct qn_driver_scope scope;
    int code = qn_driver_enter(plan->driver, plan->context, &scope);

    if (!code)
        code = point_maps(plan, args, values);
    if (!code)
        code = launch(plan, params, stream);
    qn_driver_leave(plan->driver, &scope);
    return code;
}

int quern_run(const struct quern_plan *plan, const struct quern_args *args,
              void *stream)
{
    struct qn_values values;
    void *params[QN_PARAM_COUNT];
    int code;

    if (!plan || !args)
        return qn_error_set(QUERN_EINVAL, "%s is NULL",
                            !plan ? "plan" : "args");
    code = check_args(plan, args);
    if (code)
        return code;
    values = plan->values;
    set_values(plan, args, &values);
    for (int i = 0; i < plan->kernel->nparams; i++)
        params[i] = (char *)&values + qn_run_values[plan->kernel->params[i]];
    if (plan->driver)
        return run_on_gpu(plan, args, &values, params, stream);
    qn_host_run(plan->function, params, plan->workers);
    return QUERN_OK;
}
