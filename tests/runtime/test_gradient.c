/* SPDX-License-Identifier: Apache-2.0 */
/*
** test_gradient.c: dgrad that goes back through an activation: which kernel
** serves it, which launches add up what it leaves, and where that is.
*/
#include "test.h"

#include "kernels.h"

#define P(name) QN_PARAM_##name

/* The first ones are what the fake driver keeps of each launch. */
static const unsigned char params[] = {
    P(partials),   P(row_partials), P(saved), P(d),
    P(first_dims), P(groups),       P(m),     P(n),
    P(k),          P(error)};
static const unsigned char sum_params[] = {P(partials), P(dbias), P(error),
                                           P(error),    P(k),     P(dbias_add)};
static const unsigned char row_params[] = {P(row_partials), P(dprob), P(error),
                                           P(error), P(k)};

#define COMMON(symbol, params_)                                                \
    .name = symbol, .spec = "kernels/test.lua:1", .template = "test.cu",       \
    .key = "key of " symbol, .recipe = "bf16", .arch = "sm_90a",               \
    .schedule = "", .addend = "", .threads = 128, .ctas = 1,                   \
    .params = params_, .nparams = sizeof params_, .cubin = "\177ELF",          \
    .cubin_bytes = 4
#define PRODUCT(symbol, epilogue_, activation_, interleave_)                   \
    {                                                                          \
        COMMON(symbol, params),                                                \
            .op = QUERN_DGRAD, .ragged = QUERN_AXIS_M, .epilogue = epilogue_,  \
            .activation = activation_, .interleave = interleave_,              \
            .a = {.type = QUERN_BF16},                                         \
            .b = {.type = QUERN_BF16, .major = QUERN_MAJOR_MN},                \
            .d = {.type = QUERN_BF16}, .tile = {128, 128, 64}, .cluster = {    \
                1,                                                             \
                1                                                              \
            }                                                                  \
    }
#define CAST(symbol, op_, params_)                                             \
    {                                                                          \
        COMMON(symbol, params_), .op = op_, .of = QUERN_DY, .input = QUERN_F32 \
    }

static const struct qn_kernel kernels[] = {
    PRODUCT("plain", QN_STORE, NULL, 0),
    PRODUCT("back", QN_GRADIENT, "swiglu", 0),
    PRODUCT("back8", QN_GRADIENT, "swiglu", 8),
    PRODUCT("square", QN_GRADIENT, "squared_relu", 0),
    CAST("sum", QN_SUM, sum_params),
    CAST("sum_rows", QN_SUM_ROWS, row_params),
};
static const struct quern_registry registry = {.hash = "gradient",
                                               .kernels = kernels,
                                               .nkernels = sizeof kernels /
                                                           sizeof *kernels};

enum { ROOM = 1 << 16 };

/* A run's launches, in order; each must be another one of `names`. */
static void launches(const char *text, const char *const *names)
{
    static _Alignas(256) char memory[8][ROOM];
    struct quern_description need;
    struct quern_args *args = &need.args;
    struct quern_context *ctx = test_open_with(&registry);
    struct quern_problem p;
    struct quern_plan *plan;
    const struct fake_launch *trail = test_cuda->trail;
    const uint64_t workspace = (uint64_t)(uintptr_t)memory[7];
    int i = 0;

    p = test_problem(ctx, text);
    test_expect(quern_describe(ctx, &p, &need), QUERN_OK, "");
    test_expect(quern_plan(ctx, &p, &test_aot, &plan), QUERN_OK, "");
    assert_in_range(need.workspace_bytes, 256, ROOM);
    args->a.data = memory[0];
    args->b.data = memory[1];
    args->d.data = memory[2];
    args->p.data = p.activation ? memory[3] : NULL;
    args->a.first_dims = memory[4];
    args->probability = p.probability ? (void *)memory[4] : NULL;
    args->dbias = p.dbias ? (void *)memory[5] : NULL;
    args->dprob = p.dprob ? (void *)memory[6] : NULL;
    args->workspace = memory[7];
    test_cuda->launches = 0;
    test_cuda->trailed = 4;
    test_expect(quern_run(plan, args, NULL), QUERN_OK, "");
    for (; names[i] && i < test_cuda->launches; i++)
        assert_string_equal(trail[i].kernel, names[i]);
    assert_null(names[i]);
    assert_int_equal(test_cuda->launches, i);
    if (p.activation)
        assert_int_equal(trail[0].params[2], (uintptr_t)memory[3]);
    if (p.dbias) { /* after the error record; then dprob's */
        assert_int_equal(trail[0].params[0], workspace + 256);
        assert_int_equal(trail[1].params[0], workspace + 256);
        assert_int_equal(trail[1].params[1], (uintptr_t)memory[5]);
    }
    if (p.dprob) {
        assert_int_equal(trail[i - 1].params[0], trail[0].params[1]);
        assert_int_equal(trail[i - 1].params[1], (uintptr_t)memory[6]);
        assert_int_equal(trail[0].params[1] +
                             (uint64_t)((p.n + 63) / 64 * p.m * 4),
                         workspace + need.workspace_bytes);
    }
    test_cuda->trailed = 0;
    quern_plan_free(plan);
    quern_close(ctx);
}

#define LAUNCHES(text, ...)                                                    \
    launches(text, (const char *const[]){__VA_ARGS__, NULL})
#define LINE "dgrad bf16 g=3 m=40 n=72 k=32 "

TEST(sums_have_launches)
{
    LAUNCHES(LINE, "plain");
    LAUNCHES(LINE "activation=swiglu", "back");
    LAUNCHES(LINE "activation=swiglu interleave=8 prob=1", "back8");
    LAUNCHES(LINE "activation=squared_relu interleave=8", "square");
    LAUNCHES(LINE "activation=swiglu dbias=1", "back", "sum");
    LAUNCHES(LINE "activation=swiglu prob=1 dprob=1", "back", "sum_rows");
    LAUNCHES(LINE "activation=squared_relu prob=1 dprob=1 dbias=add", "square",
             "sum", "sum_rows");
}

/* If the caller left the backend open, sums that were not linked with the
   product are compiled. */
TEST(sums_are_compiled)
{
    struct qn_kernel product = kernels[1];
    const struct quern_registry linked = {
        .hash = "product", .kernels = &product, .nkernels = 1};
    const char *const text = "dgrad group g=3 m=40 n=72 k=32 "
                             "activation=swiglu dbias=1";
    struct quern_context *ctx = test_open_with(&linked);
    struct quern_problem p = test_problem(ctx, text);
    struct quern_plan *plan;

    product.recipe = "group"; /* of which the library has a sum */
    product.a.type = product.b.type = QUERN_E4M3;
    product.b.major = QUERN_MAJOR_K;
    test_expect(quern_plan(ctx, &p, &test_aot, &plan), QUERN_ENOKERNEL,
                "k_sum: not linked into this program");
    test_expect_choice(ctx, text, NULL, "back", QUERN_BACKEND_AOT, 132);
    assert_int_equal(test_count("nvrtc compile k_sum"), 1);
    quern_close(ctx);
}

/* No other kernel serves such a problem, and the message says what there is. */
TEST(others_do_not)
{
    struct quern_context *ctx = test_open_with(&registry);
    struct quern_problem p;
    struct quern_plan *plan;

    p = test_problem(ctx, LINE "activation=geglu");
    test_expect(quern_plan(ctx, &p, &test_aot, &plan), QUERN_ENOKERNEL,
                "an activation, whose gradient it makes");
    p = test_problem(ctx, LINE "activation=swiglu interleave=4");
    test_expect(quern_plan(ctx, &p, &test_aot, &plan), QUERN_ENOKERNEL, "");
    quern_close(ctx);
}

TEST(tunes_without_sums)
{
    struct quern_tune_result result;
    struct quern_context *ctx = test_open_with(&registry);
    struct quern_problem p;

    p = test_problem(ctx, LINE "activation=swiglu prob=1 dprob=1");
    test_expect(quern_tune(ctx, &p, NULL, &result), QUERN_EINVAL,
                "dprob=1: sums take launches of their own");
    p = test_problem(ctx, LINE "activation=swiglu dbias=add");
    test_expect(quern_tune(ctx, &p, NULL, &result), QUERN_EINVAL,
                "dbias: sums take launches of their own");
    quern_close(ctx);
}
