/* SPDX-License-Identifier: Apache-2.0 */
/*
** quantize_args.c: the rules that the arguments of a run must keep. Nothing is
** read but the arguments themselves.
*/
#include "quantize/quantize_plan.h"
#include "base/error.h"
#include "base/region.h"
#include "base/sizes_type.h"
#include "base/types.h"
#include "problem/host_sizes_rules.h"
#include "problem/problem.h"

#include <string.h>

enum { DATA, SF, GLOBAL, FIELDS };

/* A tensor of a run. */
struct tensor {
    const char *const *names; /* in messages, by its fields */
    const struct qn_tensor *given, *need;
    int strided; /* rows may have larger strides than described */
    int is_copy; /* it has scales */
    int is_output;
    int optional;
    int by_address; /* matrices may be given one by one */
};

enum { TENSORS = 5, OTHERS = 13 };

#define NAME(x)                                                                \
    {                                                                          \
        x, x ".sf", x ".global"                                                \
    }
static const char *const tensor_names[][TENSORS][FIELDS] = {
    [QN_CAST_OWN] = {NAME("input"), NAME("pre"), NAME("rowwise"),
                     NAME("columnwise"), NAME("output")},
    [QN_CAST_OF_A] = {NAME("input"), NAME("pre"), NAME("a"),
                      NAME("a_columnwise"), NAME("output")},
    [QN_CAST_OF_D] = {NAME("workspace"), NAME("pre"), NAME("d"),
                      NAME("d_columnwise"), NAME("output")}};
#undef NAME

/* Else the rowwise tensor has unquantized values, and may be left out where
   only dbias is wanted. */
static int is_scaled(const struct qn_quantize_plan *plan)
{
    return qn_quantize_scaling(&plan->q, plan->recipe)->type != QUERN_TYPE_NONE;
}

/* All of them; absent ones are described without axes. */
static void list_tensors(const struct qn_quantize_plan *plan,
                         const struct qn_quantize_args *args,
                         struct tensor list[TENSORS])
{
    const struct qn_quantize_args *need = &plan->need.args;
    int work = plan->q.work, makes = work == QUERN_QUANTIZE;
    int scaled = is_scaled(plan);
    const char *const(*names)[FIELDS] = tensor_names[plan->names];
    const struct tensor all[TENSORS] = {
        {names[0], &args->in, &need->in, 1, 0, 0, 0, plan->q.of == QN_W},
        {names[1], &args->saved, &need->saved, 1, 0, 0, 0, 0},
        {names[2], &args->row, &need->row, 0, scaled, makes, makes, 0},
        {names[3], &args->column, &need->column, 0, scaled,
         work <= QUERN_TRANSPOSE, makes, 0},
        {names[4], &args->out, &need->out, 1, 0, 1, 0, 0},
    };

    memcpy(list, all, sizeof all);
}

/* Elements from one row to the next. */
static int64_t stride_of(const struct tensor *t)
{
    return t->given->stride  ? t->given->stride
           : t->need->stride ? t->need->stride
                             : t->need->shape[t->need->ndim - 1];
}

/* Unquantized tensors may have gaps between rows; quantized ones are as
   described. */
static int check_stride(const struct tensor *t)
{
    int64_t least = t->need->shape[t->need->ndim - 1], stride = stride_of(t);

    if (!t->strided && t->given->stride != t->need->stride)
        return qn_error_set(QUERN_EINVAL,
                            "%s.stride is %lld: %lld, as described, is "
                            "expected",
                            t->names[DATA], (long long)t->given->stride,
                            (long long)t->need->stride);
    if (qn_problem_stride(t->names[DATA], stride, least))
        return QUERN_EINVAL;
    if (t->given->pointers && !t->by_address)
        return qn_error_set(QUERN_EINVAL,
                            "%s.pointers is not NULL: all matrices are in %s",
                            t->names[DATA], t->names[DATA]);
    return QUERN_OK;
}

/* Bytes that the rows span; the matrices of w are one after the other. More
   than any buffer has if 64 bits do not count them. */
static int64_t span_of(const struct tensor *t)
{
    const struct qn_tensor *need = t->need;
    int64_t rows, bits;

    if (!t->strided || need->ndim < 2) /* packed, or there is none */
        return (int64_t)need->bytes;
    rows = need->shape[need->ndim - 2];
    if (need->ndim == 3)
        rows *= need->shape[0];
    if (!rows)
        return 0;
    if (__builtin_mul_overflow(rows - 1, stride_of(t), &bits) ||
        __builtin_add_overflow(bits, need->shape[need->ndim - 1], &bits) ||
        __builtin_mul_overflow(bits, qn_type_bits(need->type), &bits))
        return INT64_MAX;
    return bits / 8;
}

static int check_data(const struct tensor *t)
{
    const struct qn_tensor *given = t->given;
    int64_t bytes = span_of(t);

    if (given->group_stride)
        return qn_error_set(
            QUERN_EINVAL,
            "%s.group_stride is %lld: matrices are contiguous, 0 is expected",
            t->names[DATA], (long long)given->group_stride);
    if (given->pointers)
        return qn_problem_pointers(t->names[DATA], given);
    if ((uint64_t)bytes > given->bytes)
        return qn_error_set(QUERN_EINVAL,
                            "%s.bytes is %zu: its rows span %lld bytes",
                            t->names[DATA], given->bytes, (long long)bytes);
    if (bytes && !given->data)
        return qn_error_set(QUERN_EINVAL, "%s is NULL", t->names[DATA]);
    if ((uintptr_t)given->data % t->need->alignment)
        return qn_error_set(QUERN_EINVAL,
                            "%s is %p: it must be a multiple of %zu",
                            t->names[DATA], given->data, t->need->alignment);
    return QUERN_OK;
}

/* The scales of one level, `field`: "sf" or "global"; `need` bytes, 0 of no
   rows; without `exists` none may be given. */
static int check_level(const char *name, const char *field, const void *data,
                       size_t bytes, size_t need, int exists)
{
    if (need && !data)
        return qn_error_set(QUERN_EINVAL, "%s.%s is NULL: %zu bytes are needed",
                            name, field, need);
    if (!exists && data)
        return qn_error_set(QUERN_EINVAL,
                            "%s.%s is not NULL: the recipe has no such scales",
                            name, field);
    if (bytes < need)
        return qn_error_set(QUERN_EINVAL,
                            "%s.%s_bytes is %zu: the scales take %zu", name,
                            field, bytes, need);
    if ((uintptr_t)data % QN_ALIGNMENT)
        return qn_error_set(QUERN_EINVAL,
                            "%s.%s is %p: it must be a multiple of %d", name,
                            field, data, QN_ALIGNMENT);
    return QUERN_OK;
}

int qn_quantize_check_sf(const char *name, const struct qn_tensor *given,
                         const struct qn_tensor *need)
{
    int code =
        check_level(name, "sf", given->sf, given->sf_bytes, need->sf_bytes, 1);

    return code
               ? code
               : check_level(name, "global", given->global, given->global_bytes,
                             need->global_bytes, need->global_bytes > 0);
}

static int check_tensor(const struct tensor *t)
{
    int code;

    if ((t->optional || !t->need->ndim) && !t->given->data)
        return QUERN_OK;
    if (!t->need->ndim) /* a kernel would believe it */
        return qn_error_set(QUERN_EINVAL,
                            "%s is not NULL: this quantization has none",
                            t->names[DATA]);
    code = qn_problem_shape(t->names[DATA], t->given, t->need);
    if (!code)
        code = check_stride(t);
    if (!code)
        code = check_data(t);
    if (!code && t->is_copy)
        code = qn_quantize_check_sf(t->names[DATA], t->given, t->need);
    return code;
}

/* ------------------------------------------------------------ other arrays */

/* Given exactly if it is wanted. */
static int check_array(const char *name, const void *array, int wanted,
                       size_t alignment, const char *why)
{
    if (wanted && !array)
        return qn_error_set(QUERN_EINVAL, "%s is NULL: %s", name, why);
    if (!wanted && array)
        return qn_error_set(QUERN_EINVAL,
                            "%s is not NULL: this quantization has none", name);
    if ((uintptr_t)array % alignment)
        return qn_error_set(QUERN_EINVAL,
                            "%s is %p: it must be a multiple of %zu", name,
                            array, alignment);
    return QUERN_OK;
}

static int check_arrays(const struct qn_quantize_plan *plan,
                        const struct qn_quantize_args *args)
{
    const struct qn_quantization *q = &plan->q;
    const int delayed = plan->need.history != 0;
    /* without rows it may be NULL */
    int code = check_array("prob", args->probability,
                           q->probability && (q->m > 0 || args->probability),
                           sizeof(float), "the problem says prob=1");

    if (!code)
        code = check_array(
            "bias", args->bias, qn_quantize_has_bias(q), sizeof(float),
            q->work == QUERN_BIAS ? "it is to be added"
                                  : "the problem says dprob=1 and has no "
                                    "activation");
    if (!code)
        code = check_array("dbias", args->dbias, q->dbias, sizeof(float),
                           "the problem says dbias=1 or dbias=add");
    if (!code)
        code = check_array("dprob", args->dprob,
                           q->dprob && (q->m > 0 || args->dprob), sizeof(float),
                           "the problem says dprob=1");
    if (!code)
        code = check_array("scale", args->scale, delayed, sizeof(float),
                           "the recipe's scaling is delayed");
    if (!code)
        code = check_array("history", args->history, delayed, sizeof(float),
                           "the recipe's scaling is delayed");
    if (!code)
        code = check_array("random", args->random, plan->need.random,
                           sizeof(uint64_t), "the recipe rounds by chance");
    if (!code)
        code = check_array("noop", args->noop, args->noop != NULL, sizeof(int),
                           "");
    return code;
}

static int check_sizes_type(int sizes_type)
{
    if (!qn_sizes_valid(sizes_type))
        return qn_error_set(QUERN_EINVAL,
                            "sizes_type is %s: i32 or i64 is expected",
                            qn_type_name(sizes_type));
    return QUERN_OK;
}

int qn_quantize_check_sizes(const void *first_dims, const void *offsets,
                            int sizes_type)
{
    size_t bytes = qn_sizes_entry(sizes_type);

    if (!first_dims && !offsets)
        return qn_error_set(QUERN_EINVAL,
                            "lengths, starts and ends are NULL: the groups "
                            "have no sizes");
    if (check_sizes_type(sizes_type))
        return QUERN_EINVAL;
    if ((uintptr_t)first_dims % bytes || (uintptr_t)offsets % bytes)
        return qn_error_set(QUERN_EINVAL,
                            "lengths, starts and ends must be multiples of "
                            "%zu",
                            bytes);
    return QUERN_OK;
}

/* ----------------------------------------------------------------- overlap */

/* A tensor and its scales. The rowwise and the columnwise tensor share scales
   of more than a block. Returns how many. */
static int list_tensor(const struct tensor *t, const struct qn_scaling *s,
                       struct qn_region list[FIELDS])
{
    const struct qn_tensor *given = t->given, *need = t->need;

    if (!given->data)
        return 0;
    list[DATA] = (struct qn_region){t->names[DATA], given->data,
                                    (size_t)span_of(t), t->is_output, 0};
    list[SF] =
        (struct qn_region){t->names[SF], given->sf, need->sf_bytes,
                           t->is_output, qn_quantize_same_sf(s) ? SF : 0};
    list[GLOBAL] =
        (struct qn_region){t->names[GLOBAL], given->global, need->global_bytes,
                           t->is_output, s->hadamard ? 0 : GLOBAL};
    return FIELDS;
}

/* An output must not overlap anything else. */
static int check_overlap(const struct qn_quantize_plan *plan,
                         const struct qn_quantize_args *args,
                         const struct tensor tensors[TENSORS])
{
    const struct qn_quantization *q = &plan->q;
    const size_t entry = qn_sizes_entry(args->sizes_type);
    const size_t groups = (size_t)q->groups, word = sizeof(float);
    struct qn_region list[OTHERS + TENSORS * FIELDS] = {
        {"workspace", args->workspace, plan->need.workspace_bytes, 1, 0},
        {"dbias", args->dbias, groups * (size_t)q->k * word, 1, 0},
        {"dprob", args->dprob, (size_t)q->m * word, 1, 0},
        {"history", args->history, (size_t)plan->need.history * word, 1, 0},
        {"lengths", args->first_dims, groups * entry, 0, 0},
        {qn_sizes_operand(args->sizes_type), args->offsets,
         qn_sizes_count(args->sizes_type, q->groups) * entry, 0, 0},
        {"prob", args->probability, (size_t)q->m * word, 0, 0},
        {"random", args->random, 2 * sizeof(uint64_t), 0, 0},
        {"noop", args->noop, sizeof(int), 0, 0},
        {"bias", args->bias, groups * (size_t)q->k * word, 0, 0},
        {"scale", args->scale, 2 * word, q->work == QUERN_RESCALE, 0},
        {"host_sizes", args->host_sizes, groups * sizeof(int64_t), 0, 0},
        {"input.pointers", args->in.pointers, groups * sizeof(void *), 0, 0}};
    int regions = OTHERS;

    const struct qn_matrices in = {.name = "input",
                                   .pointers = args->in.pointers,
                                   .bytes =
                                       (size_t)span_of(&tensors[0]) / groups,
                                   .alignment = plan->need.args.in.alignment,
                                   .all = 1};
    int code;

    for (int i = 0; i < TENSORS; i++)
        regions += list_tensor(
            &tensors[i], qn_quantize_scaling(q, plan->recipe), list + regions);
    code = qn_region_check(list, regions);
    return code || plan->driver || !in.pointers
               ? code
               : qn_region_matrices(&in, 1, q->groups, NULL, list, regions);
}

static int check_workspace(const struct qn_quantize_plan *plan,
                           const void *workspace)
{
    if (!workspace)
        return qn_error_set(QUERN_EINVAL,
                            "workspace is NULL: %zu zeroed bytes are needed",
                            plan->need.workspace_bytes);
    if ((uintptr_t)workspace % QN_ALIGNMENT)
        return qn_error_set(QUERN_EINVAL,
                            "workspace is %p: it must be a multiple of %d",
                            workspace, QN_ALIGNMENT);
    return QUERN_OK;
}

/* Those of rows; the matrices of w have none. */
static int check_sizes(const struct qn_quantize_plan *plan,
                       const struct qn_quantize_args *args)
{
    if (args->host_sizes)
        return qn_host_size_rows(args->host_sizes, plan->q.sizes,
                                 plan->q.groups, plan->q.m, args->first_dims,
                                 args->offsets);
    if (plan->q.of != QN_W)
        return qn_quantize_check_sizes(args->first_dims, args->offsets,
                                       args->sizes_type);
    if (args->first_dims || args->offsets)
        return qn_error_set(QUERN_EINVAL,
                            "lengths, starts and ends must be NULL: the groups "
                            "of w have equal sizes");
    return check_sizes_type(args->sizes_type);
}

int qn_quantize_args_given(const struct qn_quantize_plan *plan,
                           const struct qn_quantize_args *args)
{
    struct tensor list[TENSORS];
    int code = check_workspace(plan, args->workspace);

    list_tensors(plan, args, list);
    for (int i = 0; !code && i < TENSORS; i++)
        code = check_tensor(&list[i]);
    if (!code)
        code = check_arrays(plan, args);
    if (!code && plan->q.work != QUERN_RESCALE)
        code = check_sizes(plan, args);
    if (!code)
        code = check_overlap(plan, args, list);
    return code;
}

int qn_quantize_args(const struct qn_quantize_plan *plan,
                     const struct qn_quantize_args *args)
{
    const int sums = plan->q.dbias && !is_scaled(plan); /* are enough */

    if (plan->q.work == QUERN_QUANTIZE && !args->row.data &&
        !args->column.data && plan->q.m && !(sums && args->dbias))
        return qn_error_set(QUERN_EINVAL,
                            "rowwise and %s are NULL: there is nothing to make",
                            sums ? "dbias" : "columnwise");
    return qn_quantize_args_given(plan, args);
}
