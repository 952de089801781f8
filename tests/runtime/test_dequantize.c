/* SPDX-License-Identifier: Apache-2.0 */
/* test_dequantize.c: products whose operands become bf16 before them: which
   launches, in what order, that each gets what the one before has made, and
   where the workspace has it. */
#include "test.h"

#include "dequantize_scene.h"

/* -------------------------------------------------------------------- order */

TEST(dequantizes_then_multiplies)
{
    struct fixture f = begin("fprop blocks g=3 m=40 n=64 k=96 dequantize=pass");
    int flag = 0;

    assert_string_equal(f.info.kernel, "fprop");
    f.args.noop = &flag;
    test_expect(qn_run(f.plan, &f.args, (void *)256), QUERN_OK, "");
    assert_ptr_equal(param(0, ROW), f.args.a.data);
    assert_ptr_equal(param(0, ROW_SF), f.args.a.sf);
    assert_ptr_equal(param(0, FIRST_DIMS), f.args.a.first_dims);
    assert_int_equal((int)(uintptr_t)param(0, ALIGN), 0);
    assert_ptr_equal(param(1, ROW), f.args.b.data);
    assert_null(param(1, FIRST_DIMS));
    in_scratch(&f, param(0, OUT), 40 * 96 * 2);
    in_scratch(&f, param(1, OUT), 3 * 64 * 96 * 2);
    assert_ptr_equal(param(2, A), param(0, OUT));
    assert_ptr_equal(param(2, B), param(1, OUT));
    assert_ptr_equal(param(2, D), f.args.d.data);
    assert_ptr_equal(param(2, LENGTHS), f.args.a.first_dims);
    assert_null(param(2, ALPHA));
    for (int i = 0; i < 3; i++)
        assert_ptr_equal(test_cuda->trail[i].stream, (void *)256);
    for (int i = 0; i < 2; i++) {
        assert_ptr_equal(param(i, NOOP), &flag);
        assert_ptr_equal(param(i, ERROR), f.workspace);
    }
    assert_ptr_equal(param(2, RECORD), f.workspace);
    LAUNCHED("blocks_x", "blocks_w", "fprop");
    end(&f);
}

/* bf16 operands are read directly. */
TEST(reads_bf16_directly)
{
    struct fixture f =
        begin("fprop weights g=3 m=40 n=64 k=96 dequantize=pass");
    struct fixture g =
        begin("dgrad weights g=3 m=40 n=64 k=96 dequantize=pass");

    test_expect(qn_run(f.plan, &f.args, NULL), QUERN_OK, "");
    assert_ptr_equal(param(1, A), f.args.a.data);
    assert_ptr_equal(param(1, B), param(0, OUT));
    assert_ptr_equal(param(1, LENGTHS), f.args.a.first_dims);
    LAUNCHED("weights_w", "fprop");
    test_expect(qn_run(g.plan, &g.args, NULL), QUERN_OK, "");
    LAUNCHED("weights_w", "dgrad");
    end(&f);
    end(&g);
}

/* One small launch brings them, and all the others read them there. */
TEST(takes_host_sizes)
{
    static const int64_t good[] = {20, 0, 20}, bad[] = {20, -1, 0};
    struct fixture f =
        begin("fprop blocks g=3 m=40 n=64 k=96 sizes=host dequantize=pass");

    f.args.a.first_dims = NULL;
    f.args.host_sizes = bad;
    test_expect(qn_run(f.plan, &f.args, NULL), QUERN_EINVAL,
                "host_sizes[1] is -1");
    assert_int_equal(test_cuda->launches, 0);
    f.args.host_sizes = good;
    test_expect(qn_run(f.plan, &f.args, NULL), QUERN_OK, "");
    in_scratch(&f, param(1, FIRST_DIMS), 3 * 4);
    assert_int_equal(((const int32_t *)param(1, FIRST_DIMS))[2], 20);
    assert_ptr_equal(param(3, LENGTHS), param(1, FIRST_DIMS));
    assert_true((char *)param(1, OUT) > (char *)param(1, FIRST_DIMS));
    LAUNCHED("k_sizes_blocks", "blocks_x", "blocks_w", "fprop");
    end(&f);
}

/* Fewer rows than planned are closer together, in copies and in what they
   become. */
TEST(fits_fewer_rows)
{
    struct fixture f =
        begin("wgrad blocks g=3 m=64 n=96 k=1000 dequantize=pass");
    struct qn_problem p =
        test_problem(f.ctx, "wgrad blocks g=3 m=64 n=96 k=300 dequantize=pass");
    struct qn_description need;
    const void *most, *less;

    test_expect(qn_run(f.plan, &f.args, NULL), QUERN_OK, "");
    most = param(2, OUT);
    test_expect(qn_problem_describe(f.ctx, &p, &need), QUERN_OK, "");
    memcpy(f.args.a.shape, need.args.a.shape, sizeof f.args.a.shape);
    memcpy(f.args.b.shape, need.args.b.shape, sizeof f.args.b.shape);
    test_cuda->launches = 0;
    test_expect(qn_run(f.plan, &f.args, NULL), QUERN_OK, "");
    less = param(2, OUT);
    assert_int_equal((const char *)most - (const char *)less,
                     (10 - 5) * 128 * 64 * 2);
    LAUNCHED("blocks_factors", "blocks_dy", "blocks_x", "wgrad");
    end(&f);
}

/* ------------------------------------------------------------------- rules */

TEST(refuses)
{
    static const struct refusal rows[] = {
        {"fprop bf16 g=3 m=40 n=64 k=96", "no operand has scales"},
        {"fprop sums g=3 m=40 n=64 k=128", "factors of sums, not of values"},
        {"fprop halves g=3 m=40 n=64 k=96", "no recipe of f16 writes such a D"},
        {"fprop blocks g=3 m=40 n=64 k=96 d=f16", "writes such a D"},
        {"wgrad blocks g=3 m=40 n=64 k=96 microbatches=2",
         "microbatches: merged products"},
        {"wgrad blocks g=1000 m=8 n=8 k=1073700000", "would pass 2^30 tokens"},
    };
    struct quern_context *ctx = test_open_with(&registry);
    struct qn_problem p;
    char text[160];

    refuse_lines(ctx, rows, sizeof rows / sizeof *rows, "pass");
    test_expect(qn_problem_parse(
                    ctx, "fprop blocks g=1 m=1 n=8 k=8 dequantize=pas", &p),
                QUERN_EINVAL, "did you mean 'pass'?");
    p = test_problem(ctx, "fprop blocks g=1 m=1 n=8 k=8");
    p.dequantize = 5;
    test_expect(qn_problem_print(&p, text, sizeof text) > 0, 1, "");
    test_expect(qn_problem_describe(ctx, &p, &(struct qn_description){0}),
                QUERN_EINVAL, "dequantize is 5: not one of the values");
    qn_close(ctx);
}

/* Options, and missing kernels. */
TEST(refuses_options)
{
    const struct qn_plan_options loop = {.backend = QUERN_BACKEND_CUBLASLT};
    const struct qn_plan_options inside = {.backend = QUERN_BACKEND_AOT,
                                           .kernel = "blocks_mainloop"};
    const struct qn_plan_options named = {.backend = QUERN_BACKEND_AOT,
                                          .kernel = "fprop_scale"};
    struct quern_context *ctx = test_open_with(&registry);
    struct qn_problem p =
        test_problem(ctx, "fprop blocks g=3 m=40 n=64 k=96 dequantize=pass");
    struct quern_tune_result result;
    struct quern_plan_info info;
    struct qn_plan *plan;

    test_expect(qn_plan(ctx, &p, &loop, &plan), QUERN_EINVAL,
                "the cublaslt backend multiplies copies as they are");
    test_expect(qn_plan(ctx, &p, &inside, &plan), QUERN_ENOKERNEL,
                "in the product");
    assert_null(plan);
    test_expect(qn_plan(ctx, &p, &named, &plan), QUERN_OK, "");
    qn_plan_info(plan, &info);
    assert_string_equal(info.kernel, "fprop_scale");
    qn_plan_free(plan);
    test_expect(qn_tune(ctx, &p, NULL, &result), QUERN_EINVAL,
                "dequantize=pass: the kernels to be measured");
    p = test_problem(ctx, "fprop weights g=3 m=40 n=64 k=96 sizes=host "
                          "dequantize=pass");
    test_expect(qn_plan(ctx, &p, &test_aot, &plan), QUERN_ENOKERNEL,
                "no kernel loads sizes from the host for recipe weights");
    qn_close(ctx);
}

/* Arguments are those of the problem, and are named so. */
TEST(refuses_overlap)
{
    struct fixture f = begin("fprop levels g=3 m=40 n=64 k=96 dequantize=pass");
    struct qn_args a = f.args;

    a.d.data = f.workspace + f.info.workspace_bytes - 16;
    test_expect(qn_run(f.plan, &a, NULL), QUERN_EINVAL, "workspace");
    assert_int_equal(test_cuda->launches, 0);
    end(&f);
}

/* ------------------------------------------------------------------ choice */

#define LARGE "fprop blocks g=8 m=32768 n=4096 k=7168"
#define SMALL "fprop blocks g=8 m=64 n=4096 k=7168"

/* Many rows for each weight: worth it. Naming a kernel is a choice. */
TEST(model_decides)
{
    static const struct decision rows[] = {
        {LARGE, NULL, "fprop", "dequantize=pass: pass "},
        {LARGE " dequantize=mainloop", NULL, "blocks_mainloop",
         "> blocks_mainloop"},
        {LARGE, "blocks_mainloop", "blocks_mainloop", "> blocks_mainloop"},
        {SMALL, NULL, "blocks_mainloop", "> blocks_mainloop"},
        {SMALL " dequantize=pass", NULL, "fprop", "as the problem says"},
    };
    struct quern_context *ctx = test_open_with(&registry);

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        int ahead = !strcmp(rows[i].runs, "fprop");
        struct quern_plan_info info;
        char *why = decide(ctx, &rows[i], &info);

        assert_true(ahead == (info.workspace_bytes > 256));
        assert_true(ahead == !!strstr(why, "> blocks_w\n"));
        quern_free(why);
    }
    qn_close(ctx);
}

/* A strategy that was not asked for is dropped if its kernels are not
   linked. */
TEST(falls_back)
{
    assert_int_equal(fall_back("blocks_x", LARGE, "blocks_mainloop",
                               QUERN_DEQUANTIZE_PASS,
                               "in the dequantize pass of A"),
                     256);
}

/* ---------------------------------------------------------------- failures */

TEST(fails_each_driver_call)
{
    fail_driver_calls("wgrad levels g=3 m=64 n=96 k=300 dequantize=pass", 4);
}

/* The same of a plan, which has four modules and leaves none. */
TEST(plans_fail_cleanly)
{
    int n = 0, code;

    do {
        struct quern_context *ctx = test_open_with(&registry);
        struct qn_problem p = test_problem(
            ctx, "fprop levels g=3 m=40 n=64 k=96 dequantize=pass");
        struct qn_plan *plan;

        test_cuda->calls = 0;
        test_cuda->fail_code = 999;
        test_cuda->failed = NULL;
        test_cuda->fail_at = ++n;
        code = qn_plan(ctx, &p, &test_aot, &plan);
        test_cuda->fail_at = 0;
        assert_true(!plan == !!code);
        assert_int_equal(test_cuda->depth, 0);
        qn_plan_free(plan);
        qn_close(ctx);
        assert_int_equal(test_cuda->libraries, 0);
    } while (test_cuda->failed);
    assert_true(n > 12);
}

/* A program with linked kernels only takes what these can do, though the
   model would dequantize by a pass that needs a compiler. */
TEST(takes_what_is_linked)
{
    struct qn_kernel some[sizeof kernels / sizeof *kernels];
    struct quern_registry linked = registry;
    struct quern_context *ctx;
    struct qn_problem p;
    struct qn_plan *plan;

    memcpy(some, kernels, sizeof kernels);
    for (size_t i = 0; i < sizeof some / sizeof *some; i++)
        if (strcmp(some[i].name, "blocks_mainloop"))
            some[i].cubin = NULL;
    linked.kernels = some;
    setenv("QUERN_NVRTC", "/nonexistent", 1);
    ctx = test_open_with(&linked);
    test_expect_choice(ctx, LARGE, NULL, "blocks_mainloop", QUERN_BACKEND_AOT,
                       132);
    p = test_problem(ctx, LARGE " dequantize=pass");
    test_expect(qn_plan(ctx, &p, NULL, &plan), QUERN_EMISSING,
                "QUERN_NVRTC: /nonexistent");
    qn_close(ctx);
}

TEST(fails_each_allocation)
{
    fail_allocations("fprop levels g=3 m=40 n=64 k=96 dequantize=pass", 4);
}
