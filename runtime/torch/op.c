/* SPDX-License-Identifier: Apache-2.0 */
/*
** op.c: the operators, their schemas and their registration.
*/
#include "torch/op.h"

#include <stdio.h>
#include <string.h>

/* Parameters; all but the first ones of an operator begin with a comma. */
#define QUEUE   "int queue, int layer, "
#define PRODUCT "str line, SymInt g, SymInt m, SymInt n, SymInt k"
#define CAST    "str line, SymInt g, SymInt m, SymInt k"
#define MLP     "str line, SymInt g, SymInt m, SymInt hidden, SymInt ffn"
#define SIZES   ", Tensor? lengths, Tensor? ends"
#define STATE   ", Tensor? random, Tensor(x!)? scale, Tensor(y!)? history"
#define LIMITS  ", float limit, float slope, float shift"
#define W1_W2   ", Tensor? w1, Tensor? w2"
#define BIASES  ", Tensor? b1, Tensor? b2, Tensor? prob"
#define READ(name)                                                             \
    ", Tensor? " name ", Tensor? " name "_sf, Tensor? " name "_global"
#define WRITTEN(name, a, b, c)                                                 \
    ", Tensor(" a "!)? " name ", Tensor(" b "!)? " name "_sf"                  \
    ", Tensor(" c "!)? " name "_global"
#define MADE(name) "Tensor " name ", Tensor " name "_sf, Tensor " name "_global"

#define OPERANDS                                                               \
    PRODUCT ", Tensor a, Tensor? a_sf, Tensor? a_global"                       \
            ", Tensor b, Tensor? b_sf, Tensor? b_global" SIZES                 \
            ", Tensor? bias, Tensor? prob"
#define ROUTE "str line, SymInt g, SymInt m, SymInt topk"
#define MOVE                                                                   \
    "str line, SymInt m, SymInt topk, SymInt k, Tensor input, Tensor inverse"
#define INPUT CAST ", Tensor input" SIZES
#define MLP_FORWARD                                                            \
    MLP ", Tensor x" W1_W2 READ("w1_rowwise") READ("w2_rowwise")               \
        BIASES SIZES STATE LIMITS
#define MLP_BACKWARD                                                           \
    MLP ", Tensor dy, Tensor? x" W1_W2 READ("w1_columnwise")                   \
        READ("w2_columnwise") READ("w1_rowwise") READ("w2_rowwise") BIASES     \
        ", Tensor(a!) saved" SIZES STATE LIMITS
#define MLP_WGRAD                                                              \
    MLP ", Tensor? dy, Tensor? x, Tensor saved, Tensor pending" SIZES STATE
#define MOE                                                                    \
    "str line, SymInt g, SymInt m, SymInt topk, SymInt hidden, SymInt ffn"
#define MOE_FORWARD                                                            \
    MOE ", Tensor x, Tensor index" W1_W2 READ("w1_rowwise") READ("w2_rowwise") \
        BIASES ", Tensor? c" STATE LIMITS
#define MOE_BACKWARD                                                           \
    MOE ", Tensor dy, Tensor? x" W1_W2 READ("w1_columnwise")                   \
        READ("w2_columnwise") READ("w1_rowwise") READ("w2_rowwise") BIASES     \
        ", Tensor(a!) saved" STATE LIMITS
#define MOE_WGRAD MOE ", Tensor saved, Tensor pending" STATE

/* X(name, phase, parameters, results): operators whose names end in '_' write
   the caller's tensors, the others allocate their results. */
#define OPS(X)                                                                 \
    X(product, FORWARD, OPERANDS, "Tensor d")                                  \
    X(product_, FORWARD, OPERANDS ", Tensor(a!) d", "")                        \
    X(product_lora, FORWARD,                                                   \
      OPERANDS ", Tensor lora_a, Tensor lora_b, Tensor? lora_scale",           \
      "Tensor d, Tensor lora_t")                                               \
    X(defer_product, FORWARD, QUEUE OPERANDS ", Tensor(a!) d", "")             \
    X(quantize, FORWARD, INPUT STATE ", Tensor? prob",                         \
      MADE("rowwise") ", " MADE("columnwise") ", Tensor dbias")                \
    X(quantize_, FORWARD,                                                      \
      INPUT STATE ", Tensor? noop" WRITTEN("rowwise", "a", "b", "c")           \
          WRITTEN("columnwise", "d", "e", "f"),                                \
      "")                                                                      \
    X(dbias, FORWARD, INPUT ", Tensor? prob", "Tensor dbias")                  \
    X(activate, FORWARD, INPUT ", Tensor? prob" LIMITS, "Tensor rowwise")      \
    X(activate_backward, FORWARD, INPUT ", Tensor pre, Tensor? prob" LIMITS,   \
      "Tensor rowwise, Tensor dprob")                                          \
    X(rescale_, FORWARD, "str line, Tensor(a!) scale, Tensor(b!) history", "") \
    X(dequantize, FORWARD, CAST READ("rowwise") READ("columnwise") SIZES,      \
      "Tensor output")                                                         \
    X(mlp_forward, FORWARD, MLP_FORWARD, "Tensor y, Tensor saved")             \
    X(mlp_forward_, FORWARD, MLP_FORWARD ", Tensor(a!) y", "Tensor saved")     \
    X(mlp_backward, BACKWARD, MLP_BACKWARD,                                    \
      "Tensor dx, Tensor dprob, Tensor db1, Tensor db2, Tensor pending")       \
    X(mlp_backward_, BACKWARD, MLP_BACKWARD ", Tensor(b!) dx",                 \
      "Tensor dprob, Tensor db1, Tensor db2, Tensor pending")                  \
    X(mlp_wgrad, WGRAD, MLP_WGRAD, "Tensor dw1, Tensor dw2")                   \
    X(mlp_wgrad_, WGRAD, MLP_WGRAD ", Tensor(a!) dw1, Tensor(b!) dw2", "")     \
    X(defer_mlp, WGRAD, QUEUE MLP_WGRAD ", Tensor(a!) dw1, Tensor(b!) dw2",    \
      "")                                                                      \
    X(moe_forward, FORWARD, MOE_FORWARD, "Tensor y, Tensor saved")             \
    X(moe_forward_, FORWARD, MOE_FORWARD ", Tensor y_addresses",               \
      "Tensor saved")                                                          \
    X(moe_backward, BACKWARD, MOE_BACKWARD,                                    \
      "Tensor dx, Tensor dprob, Tensor db1, Tensor db2, Tensor pending")       \
    X(moe_backward_, BACKWARD, MOE_BACKWARD ", Tensor dx_addresses",           \
      "Tensor dprob, Tensor db1, Tensor db2, Tensor pending")                  \
    X(moe_wgrad, WGRAD, MOE_WGRAD, "Tensor dw1, Tensor dw2")                   \
    X(moe_wgrad_, WGRAD, MOE_WGRAD ", Tensor(a!) dw1, Tensor(b!) dw2", "")     \
    X(defer_moe, WGRAD, QUEUE MOE_WGRAD ", Tensor(a!) dw1, Tensor(b!) dw2",    \
      "")                                                                      \
    X(route, FORWARD, ROUTE ", Tensor index",                                  \
      "Tensor lengths, Tensor inverse")                                        \
    X(route_starts, FORWARD, ROUTE ", Tensor index",                           \
      "Tensor starts, Tensor inverse")                                         \
    X(permute, FORWARD, MOVE ", Tensor? prob", "Tensor output")                \
    X(permute_, FORWARD, MOVE ", Tensor? prob, Tensor(a!) output", "")         \
    X(permute_dprob, FORWARD, MOVE ", Tensor prob, Tensor rows",               \
      "Tensor dprob")                                                          \
    X(combine, FORWARD, MOVE ", Tensor? prob, Tensor? c", "Tensor output")     \
    X(combine_backward, FORWARD, MOVE ", Tensor prob, Tensor rows",            \
      "Tensor output, Tensor dprob")

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
    p->kind = !strcmp(type, "str")      ? QN_OP_LINE
              : !strcmp(type, "SymInt") ? QN_OP_KEY
              : !strcmp(type, "int")    ? QN_OP_NUMBER
              : !strcmp(type, "float")  ? QN_OP_SCALAR
              : strchr(type, '?')       ? QN_OP_OPTIONAL
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
#define ENUM(name, ...) OP_##name,
    OPS(ENUM)
#undef ENUM
        OPS_COUNT
};

static struct qn_op ops[OPS_COUNT];

/* torch calls a kernel without saying for which operator. */
#define KERNEL(name, ...)                                                      \
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
    int phase;
} rows[] = {
#define ROW(name, phase, parameters, results)                                  \
    {#name, #name "(" parameters ") -> (" results ")", kernel_##name,          \
     QUERN_PHASE_##phase},
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
        ops[i].phase = rows[i].phase;
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
