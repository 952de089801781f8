/* SPDX-License-Identifier: Apache-2.0 */
/*
** op.c: the operators, their schemas and their registration.
*/
#include "torch/op.h"

#include <stdio.h>
#include <string.h>

#define SIZES "Tensor? lengths, Tensor? ends"
#define PRODUCT                                                                \
    "(str line, SymInt g, SymInt m, SymInt n, SymInt k, Tensor a, "            \
    "Tensor? a_sf, Tensor? a_global, Tensor b, Tensor? b_sf, "                 \
    "Tensor? b_global, " SIZES
#define QUANTIZED                                                              \
    "(Tensor rowwise, Tensor rowwise_sf, Tensor rowwise_global, "              \
    "Tensor columnwise, Tensor columnwise_sf, Tensor columnwise_global)"
#define CAST "(str line, SymInt g, SymInt m, SymInt k, "

/* Results are allocated; product_ writes the caller's d. */
#define OPS(X)                                                                 \
    X(product, PRODUCT ") -> (Tensor d)")                                      \
    X(product_, PRODUCT ", Tensor(a!) d) -> ()")                               \
    X(quantize, CAST "Tensor input, " SIZES ", Tensor? random) -> " QUANTIZED) \
    X(dequantize,                                                              \
      CAST "Tensor? rowwise, Tensor? rowwise_sf, "                             \
           "Tensor? rowwise_global, Tensor? columnwise, "                      \
           "Tensor? columnwise_sf, Tensor? columnwise_global, " SIZES          \
           ") -> (Tensor output)")

/* ------------------------------------------------------------------ schemas */

/* enum quern_arg of a name with '_' for '.'; -1: none. */
static int arg_of(const char *name)
{
    static const char *const names[] = {
#define NAME(name, text) text,
        QUERN_ARGS(NAME)
#undef NAME
    };

    for (int i = 0; i < QUERN_ARGS_COUNT; i++) {
        const char *a = names[i], *b = name;

        while (*a && (*a == *b || (*a == '.' && *b == '_')))
            a++, b++;
        if (!*a && !*b)
            return i;
    }
    return -1;
}

/* Read "TYPE NAME" and its terminator: the rest, NULL if there is no more. */
static const char *read_one(const char *text, struct qn_op_parameter *p)
{
    char type[24];
    int length = 0;

    if (sscanf(text, " %23s %23[a-z0-9_]%n", type, p->name, &length) != 2)
        return NULL;
    p->kind = !strcmp(type, "str")       ? QN_OP_LINE
              : !strcmp(type, "SymInt")  ? QN_OP_KEY
              : !strcmp(type, "Tensor?") ? QN_OP_OPTIONAL
                                         : QN_OP_TENSOR;
    p->arg = p->kind >= QN_OP_TENSOR ? arg_of(p->name) : 0;
    return text + length;
}

int qn_op_read(const char *schema, struct qn_op *op)
{
    const char *at = strchr(schema, '(');
    struct qn_op_parameter p;

    memset(op, 0, sizeof *op);
    while (at && *at != ')') {
        at = read_one(at + 1, &p);
        if (!at || p.arg < 0 || op->parameter_count == QN_OP_PARAMETERS)
            return 0;
        op->parameters[op->parameter_count++] = p;
    }
    at = at ? strstr(at, "-> (") : NULL;
    if (!at)
        return 0;
    for (at += 3; *at != ')' && at[1] != ')';) {
        at = read_one(at + 1, &p);
        if (!at || p.arg < 0 || op->result_count == QN_OP_RESULTS)
            return 0;
        op->results[op->result_count++] = p.arg;
    }
    return 1;
}

/* ------------------------------------------------------------- registration */

enum {
#define ENUM(name, schema) OP_##name,
    OPS(ENUM)
#undef ENUM
        OPS_COUNT
};

static struct qn_op ops[OPS_COUNT];

/* torch calls a kernel without saying for which operator. */
#define KERNEL(name, schema)                                                   \
    static void kernel_##name(qn_abi_value *stack, uint64_t inputs,            \
                              uint64_t outputs)                                \
    {                                                                          \
        (void)inputs;                                                          \
        (void)outputs;                                                         \
        qn_call(&ops[OP_##name], stack);                                       \
    }
OPS(KERNEL)
#undef KERNEL

static const struct {
    const char *name, *schema;
    qn_abi_kernel *kernel;
} rows[] = {
#define ROW(name, schema) {#name, #name schema, kernel_##name},
    OPS(ROW)
#undef ROW
};

static const char *define(void)
{
    static struct torch_library *space;
    int failed = qn_abi.aoti_torch_library_init_fragment("quern", __FILE__,
                                                         __LINE__, &space);

    for (int i = 0; i < OPS_COUNT && !failed; i++) {
        if (!qn_op_read(rows[i].schema, &ops[i]))
            return rows[i].schema;
        failed = qn_abi.aoti_torch_library_def(space, rows[i].schema);
    }
    return failed ? "torch refused a schema of quern" : NULL;
}

static const char *implement(const char *key, struct torch_library **space)
{
    int failed = qn_abi.aoti_torch_library_init_impl("quern", key, __FILE__,
                                                     __LINE__, space);

    for (int i = 0; i < OPS_COUNT && !failed; i++)
        failed = qn_abi.torch_library_impl(*space, rows[i].name, rows[i].kernel,
                                           qn_abi.aoti_torch_abi_version());
    return failed ? "torch refused a kernel of quern" : NULL;
}

/* Register the operators with the libtorch of this process, once. NULL, or a
   sentence that says why not. Python calls it. */
QUERN_API const char *quern_torch_load(void);

const char *quern_torch_load(void)
{
    static struct torch_library *cpu, *cuda;
    static int loaded;
    const char *error = loaded ? NULL : qn_abi_find();

    if (error || loaded++)
        return error;
    error = define();
    if (!error)
        error = implement("CPU", &cpu);
    if (!error)
        error = implement("CUDA", &cuda);
    return error;
}
