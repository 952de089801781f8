/* SPDX-License-Identifier: Apache-2.0 */
/*
** c_product.c: a grouped product in C or C++, and the operands of its plan.
**
**   cc c_product.c $(pkg-config --cflags --libs quern)
**
** Runs on the host, in host memory. On a GPU the options are left out, the
** addresses are device memory, and the run is queued on a stream.
*/
#include "example.h"

enum { GROUPS = 3, ROWS = 7, N = 16, K = 8 };

static int32_t lengths[GROUPS] = {4, 0, 3};
static uint16_t x[ROWS * K], w[GROUPS * N * K];
static float y[ROWS * N];

/* Sums of whole numbers are exact, so the results are equal to the bit. */
static int count_equal(void)
{
    int row = 0, equal = 0;

    for (int g = 0; g < GROUPS; g++)
        for (int i = 0; i < lengths[g]; i++, row++)
            for (int j = 0; j < N; j++) {
                float sum = 0;
                for (int k = 0; k < K; k++)
                    sum += from_bf16(x[row * K + k]) *
                           from_bf16(w[(g * N + j) * K + k]);
                equal += sum == y[row * N + j];
            }
    return equal;
}

static void print_operands(const struct quern_plan *plan)
{
    int count;
    const struct quern_operand *o = quern_plan_operands(plan, &count);

    for (; count > 0; count--, o++)
        printf("%-9s %s%s%s %5lld bytes\n", o->name, o->read ? "r" : "-",
               o->written ? "w" : "-", o->optional ? " if given" : "         ",
               (long long)quern_extent(&o->bytes, ROWS));
}

int main(void)
{
    struct quern_plan_options options = QUERN_PLAN_OPTIONS_INIT;
    struct quern_args args = QUERN_ARGS_INIT;
    struct quern_plan_info info;
    struct quern_context *ctx;
    struct quern_plan *plan;

    for (int i = 0; i < ROWS * K; i++)
        x[i] = to_bf16((float)(i * 7 % 9 - 4));
    for (int i = 0; i < GROUPS * N * K; i++)
        w[i] = to_bf16((float)(i * 5 % 9 - 4));
    options.backend = QUERN_BACKEND_HOST;
    must(quern_open(NULL, &ctx));
    must(quern_plan_create(ctx, "fprop bf16 g=3 m=7 n=16 k=8 d=f32", &options,
                           &plan));
    print_operands(plan);
    must(quern_plan_info(plan, &info));
    args.of[QUERN_ARG_A].data = x;
    args.of[QUERN_ARG_B].data = w;
    args.of[QUERN_ARG_D].data = y;
    args.of[QUERN_ARG_LENGTHS].data = lengths;
    args.of[QUERN_ARG_WORKSPACE].data = zeros((int64_t)info.workspace_bytes);
    must(quern_run(plan, &args, NULL));
    must(quern_check(plan, &args, NULL));
    printf("%d of %d results are equal to the sums\n", count_equal(), ROWS * N);
    quern_plan_destroy(plan);
    quern_close(ctx);
    return 0;
}
