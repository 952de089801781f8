/* SPDX-License-Identifier: Apache-2.0 */
/*
** test_epilogue.c: epilogues that no kernel fuses: explanations, options and
** failures. Their launches are in tests/launches.
*/
#include "test.h"

#include "kernels.h"

#define P(name) QN_PARAM_##name

/* The fake driver's record of a launch. */
static const unsigned char params[] = {P(d), P(first_dims), P(m), P(n), P(k)};
static const unsigned char epilogue_params[] = {
    P(d), P(in), P(in_stride), P(saved), P(k), P(bias), P(partials)};
static const unsigned char sum_params[] = {P(dbias), P(partials), P(k)};
static const unsigned char zero_params[] = {P(d), P(d_stride), P(d_bytes), P(m),
                                            P(n)};

#define PRODUCT(symbol, op_, major_, d_, epilogue_, activation_)               \
    {                                                                          \
        TEST_KERNEL(symbol, "bf16", params),                                   \
            .op = op_, .ragged = QUERN_AXIS_M, .epilogue = epilogue_,          \
            .activation = activation_, .a = {.type = QUERN_BF16},              \
            .b = {.type = QUERN_BF16, .major = major_}, .d = {.type = d_},     \
            .tile = {                                                          \
                128,                                                           \
                128,                                                           \
                64                                                             \
            }                                                                  \
    }
#define CAST(symbol, op_, of_, input_, form_, params_)                         \
    {                                                                          \
        TEST_KERNEL(symbol, "bf16", params_), .op = op_, .of = of_,            \
                                              .input = input_, .form = form_   \
    }

static const struct qn_kernel kernels[] = {
    PRODUCT("forth", QUERN_FPROP, QUERN_MAJOR_K, QUERN_F32, QN_SCALE, NULL),
    PRODUCT("fused", QUERN_FPROP, QUERN_MAJOR_K, QUERN_BF16, QN_ACTIVATE,
            "swiglu"),
    PRODUCT("dh", QUERN_DGRAD, QUERN_MAJOR_MN, QUERN_F32, QN_STORE, NULL),
    CAST("finish", QN_EPILOGUE, QN_X, QUERN_BF16, QN_FORWARD, epilogue_params),
    CAST("back", QN_EPILOGUE, QN_DY, QUERN_BF16, QN_BACKWARD, epilogue_params),
    CAST("sum", QN_SUM, QN_DY, QUERN_F32, QN_PLAIN, sum_params),
    CAST("zeros", QN_OUTSIDE, QN_X, QUERN_F32, QN_PLAIN, zero_params),
};
static const struct quern_registry registry = {.hash = "epilogue",
                                               .kernels = kernels,
                                               .nkernels = sizeof kernels /
                                                           sizeof *kernels};

enum { ROOM = 1 << 16 };
static _Alignas(256) char memory[8][ROOM];

static void give(const struct qn_problem *p, struct qn_args *args)
{
    args->a.data = memory[0];
    args->b.data = memory[1];
    args->d.data = memory[2];
    args->p.data = p->op == QUERN_DGRAD || p->saved ? memory[3] : NULL;
    args->a.first_dims = memory[4];
    args->alpha = p->alpha ? (void *)memory[5] : NULL;
    args->bias = p->bias ? (void *)memory[5] : NULL;
    args->dbias = p->dbias ? (void *)memory[6] : NULL;
    args->workspace = memory[7];
}

#define FPROP "fprop bf16 g=3 m=40 n=64 k=32 "
#define DGRAD "dgrad bf16 g=3 m=40 n=64 k=32 "

TEST(explains)
{
    struct quern_context *ctx = test_open_with(&registry);

    test_expect_why(ctx, FPROP "bias=1", "no kernel fuses the bias with", 1);
    test_expect_why(ctx, FPROP "bias=1", "\n> forth", 1);
    test_expect_why(ctx, FPROP "bias=1", "\n> finish", 1);
    test_expect_why(ctx, FPROP "bias=1", "no kernel fits", 0);
    test_expect_why(ctx, FPROP "activation=swiglu", "finish", 0);
    test_expect_why(ctx, FPROP "outside=zero d=f32", "\n> zeros", 1);
    test_expect_why(ctx, FPROP "outside=zero d=f32", "cycles to write 0 MB", 1);
    qn_close(ctx);
}

/* A kernel that is named is the product's. Measurements are of one launch. */
TEST(keeps_to_options)
{
    const char *const line = FPROP "bias=1";
    struct qn_plan_options options = test_aot;
    struct quern_context *ctx = test_open_with(&registry);
    const struct qn_problem p = test_problem(ctx, line);
    struct quern_tune_result result;
    struct qn_plan *plan;

    options.kernel = "forth";
    test_expect_choice(ctx, line, &options, "forth", QUERN_BACKEND_AOT, 132);
    options.kernel = "fused";
    test_expect(qn_plan(ctx, &p, &options, &plan), QUERN_ENOKERNEL, "");
    assert_null(plan);
    test_expect(qn_tune(ctx, &p, NULL, &result), QUERN_ENOKERNEL, "");
    qn_close(ctx);
}

/* Every allocation, and every call of the driver, fails once. */
TEST(survives_failures)
{
    struct quern_context *ctx = test_open_with(&registry);
    const struct qn_problem p = test_problem(ctx, DGRAD "activation=geglu "
                                                        "dbias=1 outside=zero");
    struct qn_description need;
    struct qn_plan *plan = NULL;
    int code = QUERN_ENOMEM, n = 0, failures = 0;

    while (code == QUERN_ENOMEM) {
        test_fail_allocation(++n);
        code = qn_plan(ctx, &p, &test_aot, &plan);
        test_fail_allocation(0);
        assert_true(n < 1000);
    }
    assert_int_equal(code, QUERN_OK);
    assert_true(n > 4);
    test_expect(qn_problem_describe(ctx, &p, &need), QUERN_OK, "");
    give(&p, &need.args);
    test_cuda->calls = 0;
    test_expect(qn_run(plan, &need.args, NULL), QUERN_OK, "");
    for (int i = 1, calls = test_cuda->calls; i <= calls; i++) {
        test_cuda->calls = 0;
        test_cuda->fail_at = i;
        test_cuda->fail_code = 700;
        failures += qn_run(plan, &need.args, NULL) == QUERN_ECUDA;
        test_cuda->fail_at = 0;
    }
    assert_true(failures >= 4); /* each launch */
    qn_plan_free(plan);
    qn_close(ctx);
}
