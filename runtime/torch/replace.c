/* SPDX-License-Identifier: Apache-2.0 */
/*
** replace.c: aten::_grouped_mm by quern. Every user of torch._grouped_mm and
** F.grouped_mm switches, with the autograd formula and the fake kernel that
** torch has for it. Calls that quern does not support go on to torch's kernel,
** which Python reaches: quern::grouped_mm_of_torch (quern/torch/switches.py).
*/
#include "torch/op.h"

#include <stdio.h>
#include <string.h>

/* A tensor of the caller's: the last two axes, and the one before them. */
struct matrix {
    struct torch_tensor *handle;
    void *data;
    int64_t ndim, *shape, *strides;
    int32_t type;
    int64_t rows, columns, groups; /* groups: 0 if there are two axes */
    int transposed; /* its rows are contiguous, not its columns */
};

/* The call that serves a _grouped_mm. */
struct product {
    struct matrix a, b;
    char line[96];
    int64_t g, m, n, k;
};

/* -------------------------------------------------------------------- looks */

/* 0: the strides are not those of a matrix in memory. */
static int look(struct torch_tensor *handle, struct matrix *t)
{
    int64_t last, previous;

    t->handle = handle;
    if (qn_abi.aoti_torch_get_data_ptr(handle, &t->data) ||
        qn_abi.aoti_torch_get_dim(handle, &t->ndim) || t->ndim < 2 ||
        t->ndim > 3 || qn_abi.aoti_torch_get_sizes(handle, &t->shape) ||
        qn_abi.aoti_torch_get_strides(handle, &t->strides) ||
        qn_abi.aoti_torch_get_dtype(handle, &t->type))
        return 0;
    t->rows = t->shape[t->ndim - 2];
    t->columns = t->shape[t->ndim - 1];
    t->groups = t->ndim > 2 ? t->shape[0] : 0;
    last = t->strides[t->ndim - 1];
    previous = t->strides[t->ndim - 2];
    if (last != 1 || previous < t->columns) {
        if (previous != 1 || last < t->rows)
            return 0;
        t->transposed = 1;
    }
    return t->ndim < 3 || t->strides[0] >= t->rows * t->columns;
}

/* The bytes that its address and the strides of unpacked matrices divide. */
static int alignment(const struct matrix *t)
{
    const int64_t width = t->transposed ? t->rows : t->columns;
    const int64_t pitch = t->strides[t->ndim - 1 - !t->transposed];
    const int64_t group = t->groups ? t->strides[0] : pitch;
    uint64_t bits = (uint64_t)(uintptr_t)t->data;
    int align = 16;

    if (pitch != width || (t->groups && group != t->rows * t->columns))
        bits |= (uint64_t)pitch * 2 | (uint64_t)group * 2;
    while (align > 2 && bits % (uint64_t)align)
        align /= 2;
    return align;
}

/* ------------------------------------------------------------------ support */

/* torch's number of the type that an optional argument names; -1: none. */
static int32_t type_in(qn_abi_value box)
{
    return box ? (int32_t) * (const qn_abi_value *)box : -1;
}

/* Fill in the sizes of the product: 0 if the shapes do not fit. */
static int measure(struct product *p, int has_ends)
{
    const struct matrix *a = &p->a, *b = &p->b;

    p->m = a->rows;
    p->n = b->columns;
    p->k = a->columns;
    p->g = a->groups ? a->groups : b->groups;
    return a->columns == b->rows && has_ends == !(a->groups && b->groups) &&
           (!a->groups || !b->groups || a->groups == b->groups);
}

/* The op whose measured winners fit, and the axis that groups share. */
static void write_line(struct product *p, const char *recipe)
{
    const struct matrix *a = &p->a, *b = &p->b;
    const int align_a = alignment(a), align_b = alignment(b);
    const char letters[] = {b->transposed ? 't' : 'n',
                            a->transposed ? 't' : 'n', 0};
    const char *ragged = a->groups && b->groups ? "none"
                         : a->groups            ? "n"
                         : b->groups            ? "m"
                                                : "k";
    const char *op = *ragged == 'k'                             ? "wgrad"
                     : *ragged == 'm' && !strcmp(letters, "nn") ? "dgrad"
                                                                : "fprop";

    snprintf(p->line, sizeof p->line, "%s %s layout=%s ragged=%s align=%d", op,
             recipe, letters, ragged, align_a < align_b ? align_a : align_b);
}

/* self, mat2, offs?, bias?, out_dtype?: 0 if torch's kernel must serve it. */
static int supports(struct product *p, const qn_abi_value *stack)
{
    const int32_t wanted = type_in(stack[4]);
    const char *recipe;

    if (stack[3] || !look((struct torch_tensor *)stack[0], &p->a) ||
        !look((struct torch_tensor *)stack[1], &p->b) ||
        p->a.type != p->b.type || (wanted >= 0 && wanted != p->a.type))
        return 0;
    if (p->a.type == qn_abi.aoti_torch_dtype_bfloat16())
        recipe = "bf16";
    else if (p->a.type == qn_abi.aoti_torch_dtype_float16())
        recipe = "fp16";
    else
        return 0;
    if (!measure(p, stack[2] != 0))
        return 0;
    if (!p->a.groups && !p->b.groups) { /* as many groups as ends */
        struct torch_tensor *ends = *(struct torch_tensor **)stack[2];
        int64_t *shape, ndim;

        if (qn_abi.aoti_torch_get_dim(ends, &ndim) || ndim != 1 ||
            qn_abi.aoti_torch_get_sizes(ends, &shape))
            return 0;
        p->g = shape[0];
    }
    write_line(p, recipe);
    return p->g > 0 && p->g <= 1024 && p->m > 0 && p->n > 0 && p->k > 0;
}

/* -------------------------------------------------------------- torch's own */

/* Throws torch's sentence, which Python returned as bytes. */
static void pass_on(qn_abi_value *stack)
{
    struct torch_tensor *result;
    int64_t *shape;
    int32_t type;
    void *text;
    char sentence[1024];

    if (qn_abi.torch_call_dispatcher("quern::grouped_mm_of_torch", "", stack,
                                     qn_abi.aoti_torch_abi_version()))
        qn_abi.aoti_torch_check(false, __func__, __FILE__, __LINE__,
                                "torch's kernel of _grouped_mm failed");
    result = (struct torch_tensor *)stack[0];
    if (qn_abi.aoti_torch_get_dtype(result, &type) ||
        type != qn_abi.aoti_torch_dtype_uint8() ||
        qn_abi.aoti_torch_get_data_ptr(result, &text) ||
        qn_abi.aoti_torch_get_sizes(result, &shape))
        return;
    snprintf(sentence, sizeof sentence, "%.*s", (int)shape[0],
             (const char *)text);
    qn_abi.aoti_torch_delete_tensor_object(result);
    qn_abi.aoti_torch_check(false, __func__, __FILE__, __LINE__, sentence);
}

/* --------------------------------------------------------------- the kernel */

static struct qn_op op;
static const char schema[] =
    "grouped_mm(str line, SymInt g, SymInt m, SymInt n, SymInt k, Tensor a, "
    "Tensor b, Tensor? ends, Tensor d) -> ()";

/* The matrix as its memory is, rows along the last axis. Consumes the handle;
   NULL: no memory. */
static struct torch_tensor *upright(const struct matrix *t)
{
    const int64_t last = t->ndim - 1;
    int64_t shape[3] = {t->shape[0]}, strides[3] = {t->strides[0]};
    struct torch_tensor *view = NULL;

    if (!t->transposed)
        return t->handle;
    shape[last - 1] = t->columns;
    shape[last] = t->rows;
    strides[last - 1] = t->strides[last];
    strides[last] = 1;
    if (qn_abi.aoti_torch_as_strided(t->handle, shape, strides, &view))
        view = NULL;
    qn_abi.aoti_torch_delete_tensor_object(t->handle);
    return view;
}

/* As torch's fake kernel lays it out: rows are padded to 16 bytes. */
static struct torch_tensor *make_result(const struct product *p)
{
    const int64_t pitch = (p->n + 7) / 8 * 8;
    const int ndim = !p->a.groups == !p->b.groups ? 3 : 2;
    const int64_t shape[] = {p->g, p->m, p->n};
    const int64_t strides[] = {p->m * pitch, pitch, 1};
    struct torch_tensor *d = NULL;
    int32_t device, index;

    if (qn_abi.aoti_torch_get_device_type(p->a.handle, &device) ||
        qn_abi.aoti_torch_get_device_index(p->a.handle, &index) ||
        qn_abi.aoti_torch_empty_strided(ndim, shape + 3 - ndim,
                                        strides + 3 - ndim, p->a.type, device,
                                        index, &d))
        return NULL;
    return d;
}

static void drop(struct torch_tensor **t)
{
    if (*t)
        qn_abi.aoti_torch_delete_tensor_object(*t);
}

/* A failure of qn_call passes through: result is released then. */
static void grouped_mm(qn_abi_value *stack, uint64_t inputs, uint64_t outputs)
{
    __attribute__((cleanup(drop))) struct torch_tensor *result = NULL;
    struct torch_tensor *d = NULL;
    struct product p = {.g = 0};
    void *line = NULL;

    (void)inputs;
    (void)outputs;
    if (!supports(&p, stack)) {
        pass_on(stack);
        return;
    }
    if (stack[4])
        qn_abi.delete_value((void *)stack[4]);
    result = make_result(&p);
    if (result)
        qn_abi.aoti_torch_new_tensor_handle(result, &d);
    qn_abi.torch_new_string_handle(p.line, strlen(p.line), &line);
    qn_abi_value call[] = {(qn_abi_value)line,
                           (qn_abi_value)p.g,
                           (qn_abi_value)p.m,
                           (qn_abi_value)p.n,
                           (qn_abi_value)p.k,
                           (qn_abi_value)upright(&p.a),
                           (qn_abi_value)upright(&p.b),
                           stack[2],
                           (qn_abi_value)d};
    qn_call(&op, call);
    stack[0] = (qn_abi_value)result;
    result = NULL;
}

/* ------------------------------------------------------------- registration */

/*
** Replace torch's kernel of a dispatch key, "CPU" or "CUDA", or restore it.
** NULL, or a sentence. Python calls it, under a lock.
*/
QUERN_API const char *quern_torch_replace(const char *key, int on);

const char *quern_torch_replace(const char *key, int on)
{
    static struct torch_library *spaces[2];
    struct torch_library **space = &spaces[!strcmp(key, "CUDA")];
    int failed = 0;

    if (!op.parameter_count && !qn_op_read(schema, &op))
        return schema;
    if (on && !*space) {
        failed = qn_abi.aoti_torch_library_init_impl("aten", key, __FILE__,
                                                     __LINE__, space) ||
                 qn_abi.torch_library_impl(*space, "_grouped_mm", grouped_mm,
                                           qn_abi.aoti_torch_abi_version());
    } else if (!on && *space) {
        failed = qn_abi.aoti_torch_delete_library_object(*space);
        *space = NULL;
    }
    return failed ? "torch refused the kernel of aten::_grouped_mm" : NULL;
}
