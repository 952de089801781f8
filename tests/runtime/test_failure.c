/*
** test_failure.c: every driver call and every allocation fails once. What was
** taken is given back (the leak checker of the asan build sees the memory),
** and the next try succeeds.
*/
#include "test.h"

#define PROBLEM "fprop bf16 g=8 m=1000 n=512 k=256"

/* Everything that a program does; the first error ends it. */
static int use_all(const struct quern_open_options *options)
{
    struct quern_context *ctx;
    struct quern_problem p;
    struct quern_description need;
    struct quern_plan *plan = NULL;
    struct quern_args args;
    char *text = NULL;
    int code = quern_open(options, &ctx);

    if (code)
        return code;
    code = quern_problem_parse(ctx, PROBLEM, &p);
    if (!code)
        code = quern_describe(ctx, &p, &need);
    if (!code)
        code = quern_plan(ctx, &p, NULL, &plan);
    if (!code)
        code = quern_why(ctx, &p, NULL, &text);
    quern_free(text);
    if (!code) {
        static _Alignas(64) char memory[8 << 20];

        args = need.args;
        args.a.data = memory;
        args.b.data = memory + (1 << 20);
        args.d.data = memory + (5 << 20);
        args.a.first_dims = memory + (7 << 20);
        args.workspace = memory + (8 << 20) - 256;
        code = quern_run(plan, &args, NULL);
        if (!code)
            code = quern_check(plan, &args, NULL);
    }
    quern_plan_free(plan);
    quern_close(ctx);
    return code;
}

static void fails_each_driver_call(void **state)
{
    int last = 0;

    (void)state;
    test_cuda->fail_code = 999;
    for (int n = 1;; n++) {
        int code;

        test_cuda->calls = 0;
        test_cuda->fail_at = n;
        test_cuda->failed = NULL;
        code = use_all(NULL);
        assert_int_equal(test_cuda->libraries, 0);
        assert_int_equal(test_cuda->depth, 0);
        if (!test_cuda->failed) {
            assert_int_equal(code, QUERN_OK);
            break;
        }
        last = n;
        if (!strcmp(test_cuda->failed, "cuDevicePrimaryCtxRelease_v2") ||
            test_cuda->primaries) { /* at close, which has no result */
            assert_int_equal(code, QUERN_OK);
            test_cuda->primaries = 0;
            continue;
        }
        assert_int_equal(code, QUERN_ECUDA);
        test_expect(code, QUERN_ECUDA, test_cuda->failed);
        test_expect(code, QUERN_ECUDA, "the test's error (CUDA error 999)");
    }
    assert_true(last > 20);
}

static void fails_each_allocation(void **state)
{
    int last = 0;

    (void)state;
    for (int n = 1;; n++) {
        int code, made;

        test_fail_allocation(n);
        code = use_all(NULL);
        made = test_fail_allocation(0);
        assert_int_equal(test_cuda->libraries, 0);
        assert_int_equal(test_cuda->primaries, 0);
        assert_int_equal(test_cuda->depth, 0);
        if (made < n) {
            assert_int_equal(code, QUERN_OK);
            break;
        }
        last = n;
        /* the cache does without what it cannot read or keep */
        if (code != QUERN_OK)
            test_expect(code, QUERN_ENOMEM, "host memory ran out");
    }
    assert_true(last > 10);
}

/* The same with a cold cache each time: generator and compiler too. */
static void fails_each_allocation_cold(void **state)
{
    int last = 0;

    (void)state;
    for (int n = 1;; n++) {
        const struct quern_open_options cold = {.cache = ""};
        int code, made;

        test_fail_allocation(n);
        code = use_all(&cold);
        made = test_fail_allocation(0);
        assert_int_equal(test_cuda->libraries, 0);
        assert_int_equal(test_cuda->primaries, 0);
        if (made < n) {
            assert_int_equal(code, QUERN_OK);
            break;
        }
        last = n;
        test_expect(code, QUERN_ENOMEM, "host memory ran out");
    }
    assert_true(last > 10);
}

static void fails_without_a_compiler(void **state)
{
    (void)state;
    setenv("QUERN_NVRTC", "/nonexistent/libnvrtc.so", 1);
    test_expect(use_all(NULL), QUERN_EMISSING,
                "QUERN_NVRTC: /nonexistent/libnvrtc.so");
    setenv("QUERN_NVRTC", getenv("QUERN_CUDA"), 1);
    test_expect(use_all(NULL), QUERN_EMISSING, "libnvrtc has no nvrtcVersion");
}

static void fails_without_a_generator(void **state)
{
    (void)state;
    setenv("QUERN_GEN", "/nonexistent/libquern_gen.so", 1);
    test_expect(use_all(NULL), QUERN_EMISSING, "/nonexistent/libquern_gen.so");
    setenv("QUERN_GEN", getenv("QUERN_CUDA"), 1);
    test_expect(use_all(NULL), QUERN_EMISSING, "libquern_gen has no qg_open");
}

static void refuses_another_generator(void **state)
{
    (void)state;
    setenv("FAKE_GEN_KEY", "another", 1);
    test_expect(use_all(NULL), QUERN_ECOMPILE,
                "libquern_gen writes another kernel of this name");
    assert_int_equal(test_count("nvrtc compile"), 0);
}

static void reports_bad_specs(void **state)
{
    const char *folders[] = {"bad"};
    const struct quern_open_options options = {.specs = folders,
                                               .specs_count = 1};
    struct quern_context *ctx;

    (void)state;
    test_expect(quern_open(&options, &ctx), QUERN_ECOMPILE,
                "bad/recipes/x.lua:3: error: the test's");
    assert_null(ctx);
}

int test_failure_group(void)
{
    const struct CMUnitTest tests[] = {
        TEST(fails_each_driver_call),     TEST(fails_each_allocation),
        TEST(fails_each_allocation_cold), TEST(fails_without_a_compiler),
        TEST(fails_without_a_generator),  TEST(refuses_another_generator),
        TEST(reports_bad_specs),
    };

    return cmocka_run_group_tests_name("failure", tests, NULL, NULL);
}
