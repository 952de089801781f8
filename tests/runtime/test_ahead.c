/* SPDX-License-Identifier: Apache-2.0 */
/* test_ahead.c: kernels of a plan are compiled side by side, once each. */
#include "test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "device/host.h"
#include "quantize/quantize_plan.h"

/* Three kernels: the largest values, the cast, and the sums of its bias. */
#define CAST "quantize group of=dy g=3 m=200 k=96 dbias=1"

static const struct qn_plan_options jit = {.backend = QUERN_BACKEND_JIT};

static int plan_cast(struct quern_context *ctx, struct qn_quantize_plan **plan)
{
    struct qn_quantization q;

    test_expect(qn_quantize_parse(ctx, CAST, &q), QUERN_OK, "");
    return qn_quantize_plan(ctx, &q, &jit, plan);
}

/* How many compilations had begun before the first one ended. */
static int count_begun(void)
{
    FILE *file = fopen(test_log, "r");
    char line[512];
    int begun = 0;

    assert_non_null(file);
    while (fgets(line, sizeof line, file) && strncmp(line, "nvrtc end", 9))
        begun += !strncmp(line, "nvrtc compile", 13);
    fclose(file);
    return begun;
}

/* The kernels that a plan of the cast compiles. */
static int count_compiled(int threads)
{
    struct quern_context *ctx = test_open();
    struct qn_quantize_plan *plan, *same;
    int count;

    test_system.no_threads = !threads;
    test_expect(plan_cast(ctx, &plan), QUERN_OK, "");
    count = test_count("nvrtc compile");
    test_expect(plan_cast(ctx, &same), QUERN_OK, "");
    assert_int_equal(test_count("nvrtc compile"), count);
    qn_quantize_plan_free(plan);
    qn_quantize_plan_free(same);
    quern_close(ctx);
    return count;
}

TEST(threads_compile_side_by_side)
{
    if (qn_host_cores() < 2)
        TEST_SKIP("two cores");
    setenv("FAKE_NVRTC_DELAY", "300", 1);
    assert_int_equal(count_compiled(1), 3);
    assert_true(count_begun() > 1);
    unsetenv("FAKE_NVRTC_DELAY");
}

TEST(compiles_without_threads)
{
    assert_int_equal(count_compiled(0), 3);
    assert_int_equal(count_begun(), 1);
}

/* The plan tells what a thread met, does not try again, and leaves nothing. */
TEST(tells_of_errors)
{
    struct quern_context *ctx = test_open();
    struct qn_quantize_plan *plan;

    setenv("FAKE_NVRTC_REFUSE", "sum", 1);
    test_expect(plan_cast(ctx, &plan), QUERN_ECOMPILE, "does not compile");
    assert_null(plan);
    assert_true(test_count("nvrtc compile") <= 3);
    unsetenv("FAKE_NVRTC_REFUSE");
    test_expect(plan_cast(ctx, &plan), QUERN_OK, "");
    qn_quantize_plan_free(plan);
    quern_close(ctx);
}

/* Whatever call of the driver fails, wherever: an error or a plan. */
TEST(threads_survive_failing_calls)
{
    for (int n = 1; n < 60; n++) {
        struct quern_context *ctx = test_open();
        struct qn_quantize_plan *plan;
        int code;

        test_cuda->calls = 0;
        test_cuda->fail_at = n;
        test_cuda->fail_code = 999;
        code = plan_cast(ctx, &plan);
        test_cuda->fail_at = 0;
        assert_true(code == QUERN_OK || code == QUERN_ECUDA);
        assert_int_equal(plan == NULL, code != QUERN_OK);
        if (code)
            test_expect(plan_cast(ctx, &plan), QUERN_OK, "");
        qn_quantize_plan_free(plan);
        quern_close(ctx);
    }
}
