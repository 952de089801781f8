/* SPDX-License-Identifier: Apache-2.0 */
/* test_gradient.c: dgrad back through an activation: kernels of its sums, and
   refusals. Their launches are in tests/launches. */
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

#define PRODUCT(symbol, epilogue_, activation_, interleave_)                   \
    {                                                                          \
        TEST_KERNEL(symbol, "bf16", params),                                   \
            .op = QUERN_DGRAD, .ragged = QUERN_AXIS_M, .epilogue = epilogue_,  \
            .activation = activation_, .interleave = interleave_,              \
            .a = {.type = QUERN_BF16},                                         \
            .b = {.type = QUERN_BF16, .major = QUERN_MAJOR_MN},                \
            .d = {.type = QUERN_BF16}, .tile = {                               \
                128,                                                           \
                128,                                                           \
                64                                                             \
            }                                                                  \
    }
#define CAST(symbol, op_, params_)                                             \
    {                                                                          \
        TEST_KERNEL(symbol, "bf16", params_), .op = op_, .of = QN_DY,          \
                                              .input = QUERN_F32               \
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

#define LINE "dgrad bf16 g=3 m=40 n=72 k=32 "

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
    struct qn_problem p = test_problem(ctx, text);
    struct qn_plan *plan;

    product.recipe = "group"; /* of which the library has a sum */
    product.a.type = product.b.type = QUERN_E4M3;
    product.b.major = QUERN_MAJOR_K;
    test_expect(qn_plan(ctx, &p, &test_aot, &plan), QUERN_ENOKERNEL,
                "k_sum: not linked into this program");
    test_expect_choice(ctx, text, NULL, "back", QUERN_BACKEND_AOT, 132);
    assert_int_equal(test_count("nvrtc compile k_sum"), 1);
    qn_close(ctx);
}

/* No other kernel serves such a problem, and the message says what there is. */
TEST(others_do_not)
{
    struct quern_context *ctx = test_open_with(&registry);
    struct qn_problem p;
    struct qn_plan *plan;

    p = test_problem(ctx, LINE "activation=geglu");
    test_expect(qn_plan(ctx, &p, &test_aot, &plan), QUERN_ENOKERNEL,
                "an activation, whose gradient it makes");
    p = test_problem(ctx, LINE "activation=swiglu interleave=4");
    test_expect(qn_plan(ctx, &p, &test_aot, &plan), QUERN_ENOKERNEL, "");
    qn_close(ctx);
}

TEST(tunes_without_sums)
{
    struct quern_tune_result result;
    struct quern_context *ctx = test_open_with(&registry);
    struct qn_problem p;

    p = test_problem(ctx, LINE "activation=swiglu prob=1 dprob=1");
    test_expect(qn_tune(ctx, &p, NULL, &result), QUERN_EINVAL,
                "dprob=1: sums take launches of their own");
    p = test_problem(ctx, LINE "activation=swiglu dbias=add");
    test_expect(qn_tune(ctx, &p, NULL, &result), QUERN_EINVAL,
                "dbias: sums take launches of their own");
    qn_close(ctx);
}
