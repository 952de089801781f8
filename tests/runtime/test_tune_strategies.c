/* SPDX-License-Identifier: Apache-2.0 */
/* test_tune_strategies.c: where a problem leaves open how scaled operands
   are dequantized, the tuner measures that, too, and plans
   follow it. */
#include "test.h"

#include "dequantize_kernels.h"

#include <unistd.h>

/* Sizes at which a description has room for each strategy, and the model
   takes the one that the test is not about. */
#define EITHER   "fprop blocks g=2 m=4096 n=2048 k=2048"
#define ANY_OF_4 "fprop powers g=2 m=4096 n=2048 k=2048"

static struct quern_context *open_with(const char *times)
{
    setenv("FAKE_CUDA_TIMES", times, 1);
    return test_open_with(&registry);
}

static struct quern_tune_result tune(struct quern_context *ctx,
                                     const char *text)
{
    struct qn_problem p = test_problem(ctx, text);
    struct quern_tune_result r;

    test_expect(qn_tune(ctx, &p, NULL, &r), QUERN_OK, "");
    quern_free(r.candidates);
    r.candidates = NULL;
    test_expect_balance();
    return r;
}

/* Its launches together are faster than the kernel; other processes know. */
TEST(dequantize_pass_wins)
{
    struct quern_context *ctx =
        open_with("blocks_mainloop=100,blocks_x=10,blocks_w=20,fprop=50");
    struct quern_tune_result r = tune(ctx, EITHER);

    assert_int_equal(r.dequantize, QUERN_DEQUANTIZE_PASS);
    assert_string_equal(r.kernel, "fprop");
    assert_true(r.certain && r.seconds > 79e-6 && r.seconds < 81e-6);
    test_expect_plan(ctx, EITHER, "fprop", 1);
    qn_close(ctx);
    ctx = open_with("");
    test_expect_plan(ctx, EITHER, "fprop", 1);
    test_expect_plan(ctx, EITHER " dequantize=mainloop", "blocks_mainloop", 0);
    test_expect_why(ctx, EITHER,
                    "dequantize=pass, as was measured; by the model", 1);
    test_expect_why(ctx, EITHER,
                    ", dequantize=pass, groups of 2048 to 3071 along m", 1);
    test_expect_why(ctx, EITHER, "\n> blocks_w\n", 1);
    qn_close(ctx);
}

TEST(the_kernel_wins)
{
    struct quern_context *ctx =
        open_with("blocks_mainloop=70,blocks_x=10,blocks_w=20,fprop=50");
    struct quern_tune_result r = tune(ctx, EITHER);

    assert_int_equal(r.dequantize, QUERN_DEQUANTIZE_MAINLOOP);
    assert_string_equal(r.kernel, "blocks_mainloop");
    test_expect_plan(ctx, EITHER, "blocks_mainloop", 1);
    test_expect_why(ctx, EITHER,
                    "dequantize=mainloop, as was measured; by the model", 1);
    qn_close(ctx);
}

/* The ratio is to the untuned choice, a strategy or a kernel. */
TEST(compares_with_the_model)
{
    static const struct {
        const char *times;
        int wins;
        double ratio;
    } rows[] = {{"powers_mainloop=100,powers_x=9,powers_w=9,fprop=42",
                 QUERN_DEQUANTIZE_PASS, 1.6},
                {"powers_mainloop=40,powers_x=9,powers_w=9,fprop=42",
                 QUERN_DEQUANTIZE_MAINLOOP, 1.5}};
    char model[64];

    for (int i = 0; i < 2; i++) {
        struct quern_context *ctx = open_with("");
        struct qn_plan *plan = test_plan(ctx, ANY_OF_4, NULL);
        struct quern_plan_info info;
        struct quern_tune_result r;

        qn_plan_info(plan, &info);
        snprintf(model, sizeof model, "%s", info.kernel);
        qn_plan_free(plan);
        setenv("FAKE_CUDA_TIMES", rows[i].times, 1);
        r = tune(ctx, ANY_OF_4);
        assert_string_equal(r.model, model);
        assert_int_equal(r.dequantize, rows[i].wins);
        if (strcmp(model, r.kernel))
            assert_true(r.ratio > rows[i].ratio);
        qn_close(ctx);
        unlink(r.file);
    }
}

/* A strategy that cannot run leaves the others. */
TEST(ways_fail)
{
    struct quern_context *ctx =
        open_with("powers_mainloop=100,powers_x=9,powers_w=9,fprop=30,"
                  "narrow_fprop=fail");
    struct quern_tune_result r = tune(ctx, ANY_OF_4);

    assert_int_equal(r.dequantize, QUERN_DEQUANTIZE_PASS);
    qn_close(ctx);
}

/* Measurements of dequantize=mainloop are its own, and serve no other plan. */
TEST(inside_is_apart)
{
    struct quern_context *ctx =
        open_with("blocks_mainloop=100,blocks_x=10,blocks_w=20,fprop=50");

    tune(ctx, EITHER " dequantize=mainloop");
    test_expect_plan(ctx, EITHER " dequantize=mainloop", "blocks_mainloop", 1);
    assert_int_equal(tune(ctx, EITHER).dequantize, QUERN_DEQUANTIZE_PASS);
    tune(ctx, EITHER " dequantize=mainloop");
    test_expect_plan(ctx, EITHER, "fprop", 1);
    test_expect_plan(ctx, EITHER " dequantize=mainloop", "blocks_mainloop", 1);
    test_expect_why(ctx, EITHER " dequantize=mainloop",
                    "tuned: the model's choice", 1);
    qn_close(ctx);
}

/* The same kernels but for one. */
static const struct quern_registry *without(const char *name)
{
    static struct qn_kernel left[sizeof kernels / sizeof *kernels];
    static struct quern_registry fewer;

    fewer = test_without(&registry, name, left);
    return &fewer;
}

/* If a winner has no kernels here, the model chooses. */
TEST(lost_strategies_leave_the_model)
{
    static const char *const lost[] = {"powers_x", "powers_w"};
    struct quern_context *ctx =
        open_with("powers_mainloop=100,powers_x=9,powers_w=9,fprop=30");
    struct quern_tune_result r = tune(ctx, ANY_OF_4);
    struct quern_plan_info info;
    struct qn_plan *plan;
    char kernel[64];

    assert_int_equal(r.dequantize, QUERN_DEQUANTIZE_PASS);
    qn_close(ctx);
    for (int i = 0; i < 2; i++) {
        setenv("QUERN_TUNE", "", 1);
        ctx = test_open_with(without(lost[i]));
        plan = test_plan(ctx, ANY_OF_4, NULL);
        qn_plan_info(plan, &info);
        snprintf(kernel, sizeof kernel, "%s", info.kernel);
        qn_plan_free(plan);
        qn_close(ctx);
        unsetenv("QUERN_TUNE");
        ctx = test_open_with(without(lost[i]));
        test_expect_plan(ctx, ANY_OF_4, kernel, 0);
        qn_close(ctx);
    }
}

/* Problems that name a strategy, or have only one, leave no line. */
TEST(only_what_is_open)
{
    struct quern_context *ctx =
        open_with("blocks_mainloop=100,blocks_x=1,blocks_w=1,fprop=5");

    assert_int_equal(tune(ctx, EITHER " dequantize=mainloop").dequantize,
                     QUERN_DEQUANTIZE_AUTO);
    assert_int_equal(
        tune(ctx, "fprop bf16 g=2 m=4096 n=2048 k=2048").dequantize,
        QUERN_DEQUANTIZE_AUTO);
    qn_close(ctx);
}

/* The first plan may measure, once: not its bf16 product, too. */
TEST(plans_measure_first)
{
    const struct qn_plan_options options = {.tune_ms = 10000};
    struct quern_context *ctx =
        open_with("blocks_mainloop=100,blocks_x=10,blocks_w=20,fprop=50");
    struct quern_plan_info info;
    struct qn_plan *plan = test_plan(ctx, EITHER, &options);

    qn_plan_info(plan, &info);
    assert_string_equal(info.kernel, "fprop");
    assert_int_equal(info.tuned, 1);
    qn_plan_free(plan);
    test_expect_plan(ctx, "fprop bf16 g=2 m=4096 n=2048 k=2048", "fprop", 0);
    qn_close(ctx);
}

/* A word that no library writes, and one that sums in fewer bits. */
TEST(files_may_say_anything)
{
    struct quern_context *ctx =
        open_with("powers_mainloop=100,powers_x=9,powers_w=9,fprop=30,"
                  "powers_x_again=1,powers_w_again=1,narrow_fprop=1");
    struct quern_tune_result r = tune(ctx, ANY_OF_4);
    char text[4096], *strategy;
    FILE *file = fopen(r.file, "r");
    size_t length;

    assert_int_equal(r.dequantize, QUERN_DEQUANTIZE_PASS);
    qn_close(ctx);
    length = fread(text, 1, sizeof text - 1, file);
    text[length] = 0;
    fclose(file);
    strategy = strstr(text, " dequantize=pass ");
    assert_non_null(strategy);
    for (int i = 0; i < 2; i++) {
        memcpy(strategy, i ? " dequantize=pess " : " dequantize=fp8  ", 17);
        file = fopen(r.file, "w");
        fputs(text, file);
        fclose(file);
        ctx = open_with("");
        test_expect_why(ctx, ANY_OF_4,
                        i ? "did you mean 'pass'?"
                          : "but FP8 tensor cores sum about 13 bits",
                        1);
        test_expect_plan(ctx, ANY_OF_4, "fprop", 0);
        qn_close(ctx);
    }
}

static int tune_once(void)
{
    struct quern_context *ctx = test_open_with(&registry);
    struct qn_problem p = test_problem(ctx, ANY_OF_4);
    struct quern_tune_result r;
    const int code = qn_tune(ctx, &p, NULL, &r);

    quern_free(r.candidates);
    qn_close(ctx);
    return code;
}

TEST(fails_each_driver_call)
{
    int n = 0;

    setenv("FAKE_CUDA_TIMES",
           "powers_mainloop=100,powers_x=9,powers_w=9,fprop=30,narrow_fprop=20",
           1);
    do {
        test_cuda->calls = 0;
        test_cuda->fail_code = 999;
        test_cuda->failed = NULL;
        test_cuda->fail_at = n += 7;
        tune_once();
        test_cuda->fail_at = 0;
        test_expect_balance();
        assert_int_equal(test_cuda->libraries, 0);
    } while (test_cuda->failed);
    assert_true(n > 100);
}
