/* SPDX-License-Identifier: Apache-2.0 */
/*
** product.c: a program as a user writes it, in what C99 and C++ have in common.
**
**   quern build --arch sm_80,sm_90a,sm_120a -o kernels
**   cc $(pkg-config --cflags quern) -Ikernels product.c
**      kernels/libquern_kernels.a $(pkg-config --libs quern)
**
** Multiplies on the host and compares with its own sums; then plans with the
** linked kernels only and prints the one that the GPU gets, "none" without a
** GPU. Status 0 if all of it works.
*/
#include <quern.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "quern_kernels.h"

enum { GROUPS = 3, ROWS = 7, N = 16, K = 8 };

static const int32_t sizes[GROUPS] = {4, 0, 3};

static uint16_t x[ROWS * K], w[GROUPS * N * K];
static float y[ROWS * N];

static int fail(const struct quern_context *ctx, const char *what, int code)
{
    fprintf(stderr, "%s: %s: %s\n", what, quern_strerror(code),
            quern_errmsg(ctx));
    return 1;
}

/* A whole number of -4 to 4, which bf16 holds; and as a float. */
static uint16_t draw(int i)
{
    const float value = (float)(i * 7 % 9 - 4);
    uint32_t bits;

    memcpy(&bits, &value, sizeof bits);
    return (uint16_t)(bits >> 16);
}

static float number(uint16_t bf16)
{
    const uint32_t bits = (uint32_t)bf16 << 16;
    float value;

    memcpy(&value, &bits, sizeof value);
    return value;
}

/* Sums of whole values are exact, so the results are equal to the bit. */
static int compare(void)
{
    int row = 0, wrong = 0;

    for (int g = 0; g < GROUPS; g++)
        for (int i = 0; i < sizes[g]; i++, row++)
            for (int j = 0; j < N; j++) {
                float sum = 0;
                for (int k = 0; k < K; k++)
                    sum +=
                        number(x[row * K + k]) * number(w[(g * N + j) * K + k]);
                wrong += sum != y[row * N + j];
            }
    if (wrong)
        fprintf(stderr, "%d of %d results are wrong\n", wrong, ROWS * N);
    return wrong != 0;
}

static int run_host(struct quern_context *ctx)
{
    struct quern_plan_options options;
    struct quern_description need;
    struct quern_problem problem;
    struct quern_plan *plan = NULL;
    int code, failed;

    memset(&options, 0, sizeof options);
    options.backend = QUERN_BACKEND_HOST;
    code =
        quern_problem_parse(ctx, "fprop bf16 g=3 m=7 n=16 k=8 d=f32", &problem);
    if (!code)
        code = quern_describe(ctx, &problem, &need);
    if (!code && (need.args.a.shape[1] != K || need.args.d.type != QUERN_F32))
        return fail(ctx, "quern_describe", QUERN_OK);
    if (!code)
        code = quern_plan(ctx, &problem, &options, &plan);
    if (code)
        return fail(ctx, "quern_plan, host", code);
    need.args.a.data = x;
    need.args.a.first_dims = sizes;
    need.args.b.data = w;
    need.args.d.data = y;
    need.args.workspace = calloc(1, need.workspace_bytes);
    code = quern_run(plan, &need.args, NULL);
    if (!code)
        code = quern_check(plan, &need.args, NULL);
    failed = code ? fail(ctx, "quern_run", code) : compare();
    free(need.args.workspace);
    quern_plan_free(plan);
    return failed;
}

static int plan_linked(struct quern_context *ctx)
{
    struct quern_plan_options options;
    struct quern_plan_info info;
    struct quern_problem problem;
    struct quern_plan *plan = NULL;
    int code;

    memset(&options, 0, sizeof options);
    options.backend = QUERN_BACKEND_AOT;
    code = quern_problem_parse(ctx, "fprop bf16 g=8 m=4096 n=2048 k=7168",
                               &problem);
    if (!code)
        code = quern_plan(ctx, &problem, &options, &plan);
    if (code == QUERN_ENODEVICE) {
        puts("none");
        return 0;
    }
    if (code)
        return fail(ctx, "quern_plan, aot", code);
    quern_plan_info(plan, &info);
    puts(info.kernel);
    quern_plan_free(plan);
    return 0;
}

int main(void)
{
    struct quern_open_options open;
    struct quern_context *ctx;
    int code, failed;

    for (int i = 0; i < ROWS * K; i++)
        x[i] = draw(i);
    for (int i = 0; i < GROUPS * N * K; i++)
        w[i] = draw(i + 5);
    memset(&open, 0, sizeof open);
    open.registry = &quern_kernels;
    code = quern_open(&open, &ctx);
    if (code)
        return fail(NULL, "quern_open", code);
    failed = run_host(ctx) || plan_linked(ctx);
    quern_close(ctx);
    return failed;
}
