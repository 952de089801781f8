/* SPDX-License-Identifier: Apache-2.0 */
/*
** call.c: one call of an operator. Nothing here depends on a line's
** computation: a loop over the plan's operands serves all of them. No C++
** exception starts before everything that the call owns was released.
*/
#include "binding/binding.h"
#include "torch/kept.h"
#include "torch/op.h"
#include "torch/queue.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* A tensor that the caller gave: its handle is ours to delete. */
struct tensor {
    struct torch_tensor *handle;
    void *data;
    int64_t ndim, *shape, *strides;
    int type; /* torch's */
};

struct call {
    const struct qn_op *op;
    char line[256];
    int64_t key[26];      /* the line's values, by the letter of their key */
    int64_t queue, layer; /* queue 0: run at once */
    struct tensor given[QUERN_ARGS_COUNT];         /* by enum quern_arg */
    struct torch_tensor *result[QUERN_ARGS_COUNT]; /* made here */
    int32_t device, index;                         /* of torch's */
    int host;
    struct CUstream_st *stream;
    void *guard; /* makes the device torch's current one */
    struct quern_plan *plan;
    struct quern_args args;
    struct qn_kept *kept;               /* the workspace, or errors; or NULL */
    const struct quern_operand *errors; /* of the plan; NULL: it has none */
    char error[1024];
};

/* Note a sentence; always QUERN_EINVAL. */
__attribute__((format(printf, 2, 3))) static int fail(struct call *c,
                                                      const char *format, ...)
{
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(c->error, sizeof c->error, format, arguments);
    va_end(arguments);
    return QUERN_EINVAL;
}

const char *quern_torch_specs(const char *folder)
{
    return qn_binding_add_specs(folder);
}

/* -------------------------------------------------------------------- types */

/* torch's number of a type; -1: a narrow one, whose tensors are bytes. */
static int torch_type(int type)
{
    switch (type) {
    case QUERN_BF16:
        return qn_abi.aoti_torch_dtype_bfloat16();
    case QUERN_F16:
        return qn_abi.aoti_torch_dtype_float16();
    case QUERN_F32:
        return qn_abi.aoti_torch_dtype_float32();
    case QUERN_I32:
    case QUERN_F16_ZERO:
    case QUERN_BF16_ZERO:
        return qn_abi.aoti_torch_dtype_int32();
    case QUERN_I64:
        return qn_abi.aoti_torch_dtype_int64();
    default:
        return -1;
    }
}

static const char *type_name(int type)
{
    static const char *const names[] = {
#define NAME(name, text, ...) [QUERN_##name] = text,
        QUERN_TYPES(NAME)
#undef NAME
    };

    for (int i = QUERN_BF16; i < QUERN_TYPE_COUNT; i++)
        if (torch_type(i) == type)
            return names[i];
    return type == qn_abi.aoti_torch_dtype_uint8() ? "uint8" : "another type";
}

static int is_sizes(int arg)
{
    return arg == QUERN_ARG_LENGTHS || arg == QUERN_ARG_STARTS ||
           arg == QUERN_ARG_ENDS;
}

/* ---------------------------------------------------------------- arguments */

static void take_scalar(struct call *c, const char *name, qn_abi_value value)
{
    double number;

    memcpy(&number, &value, sizeof number);
    if (name[0] == 'l')
        c->args.limit = (float)number;
    else if (name[1] == 'l')
        c->args.slope = (float)number;
    else
        c->args.shift = (float)number;
}

/* More of the line, which is cut at its end: the library then refuses it. With
   libquadmath loaded, as scipy does, printf takes a microsecond. */
static int append(struct call *c, int used, const char *text)
{
    while (*text && used < (int)sizeof c->line - 1)
        c->line[used++] = *text++;
    c->line[used] = 0;
    return used;
}

static int append_key(struct call *c, int used, const char *name, int64_t value)
{
    char digits[24], *at = digits + sizeof digits;
    uint64_t left = value < 0 ? -(uint64_t)value : (uint64_t)value;

    *--at = 0;
    do
        *--at = (char)('0' + left % 10);
    while (left /= 10);
    if (value < 0)
        *--at = '-';
    used = append(c, used, " ");
    used = append(c, used, name);
    used = append(c, used, "=");
    c->key[name[0] - 'a'] = value;
    return append(c, used, at);
}

/* The arguments leave the stack; each that has an owner is ours. */
static void take(struct call *c, qn_abi_value *stack)
{
    const char *text = "";
    int used = 0;

    for (int i = 0; i < c->op->parameter_count; i++) {
        const struct qn_op_parameter *p = &c->op->parameters[i];
        qn_abi_value value = stack[i];

        if (p->kind == QN_OP_LINE) {
            qn_abi.torch_string_c_str((void *)value, &text);
            used = append(c, used, text);
            qn_abi.torch_delete_string((void *)value);
        } else if (p->kind == QN_OP_KEY) {
            used = append_key(c, used, p->name, (int64_t)value);
        } else if (p->kind == QN_OP_NUMBER) {
            *(p->name[0] == 'q' ? &c->queue : &c->layer) = (int64_t)value;
        } else if (p->kind == QN_OP_SCALAR) {
            take_scalar(c, p->name, value);
        } else {
            if (p->kind == QN_OP_OPTIONAL && value) {
                void *box = (void *)value;

                value = *(qn_abi_value *)box;
                qn_abi.delete_value(box);
            }
            c->given[p->arg].handle = (struct torch_tensor *)value;
        }
    }
}

static int look(struct call *c, const char *name, struct tensor *t)
{
    int32_t device, index;

    if (qn_abi.aoti_torch_get_data_ptr(t->handle, &t->data) ||
        qn_abi.aoti_torch_get_dim(t->handle, &t->ndim) ||
        qn_abi.aoti_torch_get_sizes(t->handle, &t->shape) ||
        qn_abi.aoti_torch_get_strides(t->handle, &t->strides) ||
        qn_abi.aoti_torch_get_dtype(t->handle, &t->type) ||
        qn_abi.aoti_torch_get_device_type(t->handle, &device) ||
        qn_abi.aoti_torch_get_device_index(t->handle, &index))
        return fail(c, "%s: torch cannot read this tensor", name);
    if (c->device < 0) {
        c->device = device;
        c->index = index;
    }
    if (device != c->device || index != c->index)
        return fail(c, "%s is on another device than the first tensor", name);
    return QUERN_OK;
}

static int look_at_all(struct call *c)
{
    int code = QUERN_OK;

    c->device = -1;
    for (int i = 0; i < c->op->parameter_count && !code; i++) {
        const struct qn_op_parameter *p = &c->op->parameters[i];

        if (p->kind >= QN_OP_TENSOR && c->given[p->arg].handle)
            code = look(c, p->name, &c->given[p->arg]);
    }
    c->host = c->device == qn_abi.aoti_torch_device_type_cpu();
    if (!code && !c->host && c->device != qn_abi.aoti_torch_device_type_cuda())
        return fail(c, "tensors must be on the CPU or on a CUDA device");
    return code;
}

/* ---------------------------------------------------------------- the plan */

/* The device and torch's current stream. torch's guard costs a microsecond:
   only where another device is current. */
static int enter(struct call *c)
{
    const char *error;
    void *stream = NULL;
    int other;

    if (!qn_abi.aoti_torch_create_cuda_guard ||
        !qn_abi.aoti_torch_get_current_cuda_stream)
        return fail(c, "this torch has no CUDA");
    error = qn_kept_enter(c->index, &other);
    if (error)
        return fail(c, "%s", error);
    if ((other && qn_abi.aoti_torch_create_cuda_guard(c->index, &c->guard)) ||
        qn_abi.aoti_torch_get_current_cuda_stream(c->index, &stream))
        return fail(c, "torch has no current stream of the device");
    c->stream = stream;
    return QUERN_OK;
}

static int find_plan(struct call *c)
{
    struct quern_plan_options options = QUERN_PLAN_OPTIONS_INIT;
    struct quern_context *ctx;
    int code = qn_binding_open(&ctx);

    if (code)
        return fail(c, "%s", quern_errmsg());
    options.device = c->host ? -1 : c->index;
    options.backend = c->host ? QUERN_BACKEND_HOST : QUERN_BACKEND_AUTO;
    code = c->host ? QUERN_OK : enter(c);
    if (code)
        return code;
    if (quern_plan_get(ctx, c->line, &options, c->stream, &c->plan))
        return fail(c, "%s", quern_errmsg());
    return QUERN_OK;
}

/* The rows of this run: the tokens of routes, else the number of the line's
   ragged key, -1 if groups have no sizes. */
static int64_t rows_of(const struct call *c, const struct quern_operand *table,
                       int count)
{
    const char *ragged = strstr(c->line, " ragged=");
    const char axis = ragged ? ragged[8] : *c->line == 'w' ? 'k' : 'm';

    if (c->key['t' - 'a'])
        return c->key['m' - 'a'];
    return count && is_sizes(table->arg) ? c->key[axis - 'a'] : -1;
}

/* ----------------------------------------------------------------- operands */

static struct torch_tensor *empty(struct call *c, int ndim,
                                  const int64_t *shape, int type)
{
    int64_t strides[QUERN_MAX_DIMS], next = 1;
    struct torch_tensor *t = NULL;

    for (int i = ndim; i-- > 0;) {
        strides[i] = next;
        next *= shape[i] ? shape[i] : 1;
    }
    if (qn_abi.aoti_torch_empty_strided(ndim, shape, strides, type, c->device,
                                        c->index, &t))
        return NULL;
    return t;
}

/* Rows of one length that begin further apart. */
static int is_padded(const struct quern_operand *o)
{
    return o->ndim > 1 && o->pitch.base > o->shape[o->ndim - 1].base;
}

/* As torch has the operand: narrow types, padded rows and memory without a
   shape are bytes. Returns the number of axes. */
static int shape_of(const struct quern_operand *o, int64_t rows, int64_t *shape,
                    int *type)
{
    *type = torch_type(o->type);
    if (*type < 0 || !o->ndim || is_padded(o)) {
        *type = qn_abi.aoti_torch_dtype_uint8();
        shape[0] = quern_extent(&o->bytes, rows);
        return 1;
    }
    for (int i = 0; i < o->ndim; i++)
        shape[i] = quern_extent(&o->shape[i], rows);
    return o->ndim;
}

static void print_shape(char *text, size_t room, const int64_t *shape, int ndim)
{
    size_t used = (size_t)snprintf(text, room, "[");

    for (int i = 0; i < ndim && used < room; i++)
        used += (size_t)snprintf(text + used, room - used, "%s%lld",
                                 i ? ", " : "", (long long)shape[i]);
    if (used < room)
        snprintf(text + used, room - used, "]");
}

/* Addresses of the groups' matrices may stand for an operand. */
static int is_pointers(const struct quern_operand *o, const struct tensor *t)
{
    return o->pointers && t->type == torch_type(QUERN_I64);
}

static int check(struct call *c, const struct quern_operand *o, int64_t rows)
{
    const struct tensor *t = &c->given[o->arg];
    char wanted[96], found[96];
    int64_t shape[QUERN_MAX_DIMS];
    int type, ndim = shape_of(o, rows, shape, &type);

    if (is_pointers(o, t)) {
        ndim = 1;
        shape[0] = c->key['g' - 'a'];
        type = t->type;
    } else if (is_sizes(o->arg) && t->type == torch_type(QUERN_I64)) {
        type = t->type;
    }
    if (t->type != type)
        return fail(c, "%s is %s: %s is expected", o->name, type_name(t->type),
                    is_sizes(o->arg) ? "i32 or i64" : type_name(type));
    if (t->ndim == ndim &&
        !memcmp(shape, t->shape, (size_t)ndim * sizeof *shape))
        return QUERN_OK;
    print_shape(wanted, sizeof wanted, shape, ndim);
    print_shape(found, sizeof found, t->shape, (int)t->ndim);
    return fail(c, "%s has the shape %s: %s is expected", o->name, found,
                wanted);
}

static int is_contiguous(const struct tensor *t)
{
    int64_t next = 1;
    int packed = 1;

    for (int i = (int)t->ndim; i-- > 0; next *= t->shape[i]) {
        if (!t->shape[i])
            return 1;
        packed &= t->shape[i] == 1 || t->strides[i] == next;
    }
    return packed;
}

/* For the library a stride of 0 says that there are no gaps. */
static int is_repeated(const struct tensor *t, int64_t axis)
{
    return t->shape[axis] > 1 && !t->strides[axis];
}

/* Compiled code gives slices that begin anywhere: those that a run only reads
   are copied. A deferred run would outlive the copy. */
static int align(struct call *c, const struct quern_operand *o)
{
    struct tensor *t = &c->given[o->arg], copy = {.handle = NULL};

    if (!((uintptr_t)t->data & (o->alignment - 1)) || is_pointers(o, t) ||
        c->queue || (o->written >> c->op->phase & 1))
        return QUERN_OK;
    if (qn_abi.aoti_torch_clone(t->handle, &copy.handle))
        return fail(c, "%s: torch has no memory for an aligned copy", o->name);
    qn_abi.aoti_torch_delete_tensor_object(t->handle);
    *t = copy;
    return look(c, o->name, t);
}

/* Rows, and matrices of 3 axes, may have any stride where that is allowed. */
static int give(struct call *c, const struct quern_operand *o, int64_t rows)
{
    struct quern_buffer *b = &c->args.of[o->arg];
    struct tensor *t = &c->given[o->arg];
    int code = check(c, o, rows);

    if (!code)
        code = align(c, o);
    if (code)
        return code;
    if (is_pointers(o, t))
        b->pointers = t->data;
    else
        b->data = t->data;
    if (is_sizes(o->arg))
        b->type = t->type == torch_type(QUERN_I64) ? QUERN_I64 : QUERN_I32;
    if (is_contiguous(t))
        return QUERN_OK;
    if (!o->strided || t->ndim < 2 || t->strides[t->ndim - 1] != 1)
        return fail(c, "%s is not contiguous%s: call contiguous()", o->name,
                    o->strided ? " along its last axis" : "");
    if (is_repeated(t, t->ndim - 2) || (t->ndim > 2 && is_repeated(t, 0)))
        return fail(c, "%s has rows that share memory: call contiguous()",
                    o->name);
    b->stride = t->strides[t->ndim - 2];
    b->group_stride = t->ndim > 2 ? t->strides[0] : 0;
    return QUERN_OK;
}

/* A result: memory of torch's. */
static int make(struct call *c, const struct quern_operand *o, int64_t rows)
{
    int64_t shape[QUERN_MAX_DIMS];
    int type, ndim = shape_of(o, rows, shape, &type);
    struct torch_tensor *t = empty(c, ndim, shape, type);

    c->result[o->arg] = t;
    if (!t || qn_abi.aoti_torch_get_data_ptr(t, &c->args.of[o->arg].data))
        return fail(c, "%s: torch has no memory for it", o->name);
    return QUERN_OK;
}

/* Memory for errors that a layer's runs find: kept, unlike the workspace. */
static int keep_errors(struct call *c)
{
    struct quern_args found = QUERN_ARGS_INIT;
    const struct quern_operand *o = c->errors;
    const char *error;

    if (!o || !(o->written >> c->op->phase & 1))
        return QUERN_OK;
    error = qn_kept(c->plan, c->index, c->stream, 0, o->zero_bytes,
                    o->zero_bytes, &found, &c->kept);
    c->args.of[QUERN_ARG_ERRORS].data = found.of[QUERN_ARG_WORKSPACE].data;
    return error ? fail(c, "%s", error) : QUERN_OK;
}

/*
** Small workspaces on a GPU are kept, large ones are torch's until the call
** ends. Those of deferred runs are kept until their queue is destroyed.
*/
static int make_workspace(struct call *c, const struct quern_operand *o,
                          int64_t rows)
{
    const size_t bytes = (size_t)quern_extent(&o->bytes, rows);
    void **data = &c->args.of[QUERN_ARG_WORKSPACE].data;
    const char *error;

    if (!c->host && (c->queue || bytes <= QN_KEPT_BYTES)) {
        error = qn_kept(c->plan, c->index, c->stream, c->queue, bytes,
                        o->zero_bytes, &c->args, &c->kept);
        return error ? fail(c, "%s", error) : QUERN_OK;
    }
    if (make(c, o, rows) || (!c->host && keep_errors(c)))
        return QUERN_EINVAL;
    if (!c->host && qn_kept_zero(*data, o->zero_bytes, c->stream))
        return fail(c, "the driver cannot zero a workspace");
    if (c->host)
        memset(*data, 0, o->zero_bytes);
    return QUERN_OK;
}

static int is_result(const struct call *c, int arg)
{
    for (int i = 0; i < c->op->result_count; i++)
        if (c->op->results[i] == arg)
            return 1;
    return 0;
}

/* Results that the line does not have are empty. */
static int make_missing(struct call *c)
{
    const int64_t none = 0;

    for (int i = 0; i < c->op->result_count; i++) {
        struct torch_tensor **t = &c->result[c->op->results[i]];

        if (!*t)
            *t = empty(c, 1, &none, qn_abi.aoti_torch_dtype_uint8());
        if (!*t)
            return fail(c, "torch has no memory for an empty tensor");
    }
    return QUERN_OK;
}

static int fill(struct call *c)
{
    int count, code = QUERN_OK;
    const struct quern_operand *o = quern_plan_operands(c->plan, &count);
    const int64_t rows = rows_of(c, o, count);
    const struct quern_operand *workspace = NULL;
    char known[QUERN_ARGS_COUNT] = {0};

    c->args.rows = rows;
    c->args.phase = c->op->phase;
    for (; count > 0 && !code; count--, o++) {
        known[o->arg] = 1;
        if (c->given[o->arg].handle)
            code = give(c, o, rows);
        else if (o->arg == QUERN_ARG_WORKSPACE)
            workspace = o;
        else if (o->arg == QUERN_ARG_ERRORS)
            c->errors = o;
        else if (is_result(c, o->arg) && o->written >> c->op->phase & 1)
            code = make(c, o, rows);
    }
    for (int i = 0; i < c->op->parameter_count && !code; i++) {
        const struct qn_op_parameter *p = &c->op->parameters[i];

        if (p->kind >= QN_OP_TENSOR && c->given[p->arg].handle &&
            !known[p->arg])
            code = fail(c, "%s is given: '%s' has no such operand", p->name,
                        c->line);
    }
    if (!code)
        code = make_missing(c);
    /* Last: only this call uses it until the run was launched. */
    return code || !workspace ? code : make_workspace(c, workspace, rows);
}

/* ----------------------------------------------------------------- the call */

static void drop(struct torch_tensor *t)
{
    if (t)
        qn_abi.aoti_torch_delete_tensor_object(t);
}

/* Release everything but results that were handed over. */
static void release(struct call *c)
{
    qn_kept_release(c->kept);
    for (int i = 0; i < QUERN_ARGS_COUNT; i++) {
        drop(c->given[i].handle);
        drop(c->result[i]);
    }
    if (c->guard)
        qn_abi.aoti_torch_delete_cuda_guard(c->guard);
}

/* A run on the host is checked at once; quern_torch_check checks the others. */
static int run(struct call *c)
{
    const char *error;

    if (c->queue) {
        error = qn_queue_put(c->queue, c->plan, &c->args, c->layer);
        return error ? fail(c, "%s", error) : QUERN_OK;
    }
    if (quern_run(c->plan, &c->args, c->stream) ||
        (c->host && c->args.of[QUERN_ARG_WORKSPACE].data &&
         quern_check(c->plan, &c->args, NULL)))
        return fail(c, "%s", quern_errmsg());
    return QUERN_OK;
}

void qn_call(const struct qn_op *op, qn_abi_value *stack)
{
    struct call c = {.op = op, .args = QUERN_ARGS_INIT};
    int code;

    take(&c, stack);
    code = look_at_all(&c);
    if (!code)
        code = find_plan(&c);
    if (!code)
        code = fill(&c);
    if (!code)
        code = run(&c);
    for (int i = 0; i < op->result_count && !code; i++) {
        stack[i] = (qn_abi_value)c.result[op->results[i]];
        c.result[op->results[i]] = NULL;
    }
    release(&c);
    if (code)
        qn_abi.aoti_torch_check(false, __func__, __FILE__, __LINE__, c.error);
}
