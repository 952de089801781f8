/* SPDX-License-Identifier: Apache-2.0 */
/*
** c_bindings.c: the C side of two front ends. Neither knows a line's
** computation: a loop over the operands serves all lines.
**
** grouped_op   a PyTorch op: tensors by name; rows change from call to call
** jax_handler  a JAX handler (XLA FFI): inputs and results in the order of the
**              table, with the lengths that quern_describe gave at lowering
*/
#include "example.h"

enum { GROUPS = 2, ROWS = 6, N = 16, K = 8 };

struct tensor {
    const char *name;
    void *data;
    int type;
    int64_t rows, stride;
};

static const struct tensor *find(const struct tensor *t, const char *name)
{
    while (t->name && strcmp(t->name, name))
        t++;
    return t;
}

static int grouped_op(struct quern_context *ctx, const char *line,
                      const struct quern_plan_options *options, int64_t rows,
                      const struct tensor *given, struct CUstream_st *stream)
{
    struct quern_args args = QUERN_ARGS_INIT;
    const struct quern_operand *o;
    struct quern_plan *plan;
    int count, code = quern_plan_get(ctx, line, options, stream, &plan);

    if (code)
        return code;
    args.rows = rows;
    for (o = quern_plan_operands(plan, &count); count > 0; count--, o++) {
        const struct tensor *t = find(given, o->name);

        if (!t->name && !o->optional) /* the workspace, or a result */
            args.of[o->arg].data = zeros(quern_extent(&o->bytes, rows));
        if (!t->name)
            continue;
        if (t->type != o->type || t->rows != quern_extent(&o->shape[0], rows))
            return QUERN_EINVAL;
        args.of[o->arg].data = t->data;
        args.of[o->arg].stride = o->strided ? t->stride : 0;
    }
    return quern_run(plan, &args, stream);
}

/* XLA's instantiate stage made the plan, and closes it with the program. */
static int jax_handler(const struct quern_plan *plan, void *const *inputs,
                       void *const *results, struct CUstream_st *stream)
{
    struct quern_args args = QUERN_ARGS_INIT;
    const struct quern_operand *o;
    int count;

    for (o = quern_plan_operands(plan, &count); count > 0; count--, o++) {
        if (o->written)
            args.of[o->arg].data = *results++;
        else if (!o->optional || o->arg == QUERN_ARG_LENGTHS)
            args.of[o->arg].data = *inputs++;
        if (o->zero_bytes) /* cudaMemsetAsync on a GPU */
            memset(args.of[o->arg].data, 0, o->zero_bytes);
    }
    return quern_run(plan, &args, stream);
}

int main(void)
{
    static const char line[] = "fprop bf16 g=2 m=6 n=16 k=8 d=f32";
    static int32_t lengths[GROUPS] = {4, 2};
    static uint16_t x[ROWS * K], w[GROUPS * N * K];
    static float y[2][ROWS * N];
    const struct tensor given[] = {{"lengths", lengths, QUERN_I32, GROUPS, 1},
                                   {"a", x, QUERN_BF16, ROWS, K},
                                   {"b", w, QUERN_BF16, GROUPS, K},
                                   {"d", y[0], QUERN_F32, ROWS, N},
                                   {NULL, NULL, 0, 0, 0}};
    void *const inputs[] = {lengths, x, w};
    void *const results[] = {zeros(4096), y[1]};
    struct quern_plan_options options = QUERN_PLAN_OPTIONS_INIT;
    struct quern_context *ctx;
    struct quern_plan *plan;

    options.backend = QUERN_BACKEND_HOST;
    for (int i = 0; i < ROWS * K; i++)
        x[i] = to_bf16(draw());
    for (int i = 0; i < GROUPS * N * K; i++)
        w[i] = to_bf16(draw());
    must(quern_open(NULL, &ctx));
    must(grouped_op(ctx, line, &options, ROWS, given, NULL));
    must(quern_plan_create(ctx, line, &options, &plan));
    must(jax_handler(plan, inputs, results, NULL));
    printf("y[0][0] = %.3f of the op, %.3f of the handler\n", (double)y[0][0],
           (double)y[1][0]);
    quern_plan_destroy(plan);
    quern_close(ctx);
    return 0;
}
