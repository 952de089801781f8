/* SPDX-License-Identifier: Apache-2.0 */
/* test_reported.c: the model on GPUs of which others report figures: it comes
   near these, and orders kernels as they say. */
#include "test.h"

#include "base/context.h"
#include "choose/evidence.h"
#include "choose/model.h"
#include "choose/select.h"
#include "device/chip.h"
#include "device/driver.h"

#include <strings.h>

static const unsigned char plain_params[] = {HOST_PARAMS};

/* Native ones with tensor maps, and mma.sync. */
#define PRODUCT(arch_, recipe_, type_, k_, n_, schedule_, dequantize_,         \
                params_)                                                       \
    {                                                                          \
        .name = "k", .spec = "kernels/test.lua:1", .template_path = "test.cu", \
        .key = "key", .recipe = recipe_, .arch = arch_, .op = QUERN_FPROP,     \
        .ragged = QUERN_AXIS_M, .a = {.type = type_}, .b = {.type = type_},    \
        .d = {.type = QUERN_BF16}, .tile = {128, n_, k_}, .cluster = {1, 1},   \
        .stages = 4, .schedule = schedule_, .addend = "none",                  \
        .dequantize = dequantize_, .params = params_,                          \
        .nparams = sizeof params_                                              \
    }

static const struct qn_kernel native = PRODUCT(
    "sm_100f", "bf16", QUERN_BF16, 64, 256, "overlapped", "none", gpu_params);
static const struct qn_kernel native_codes = PRODUCT(
    "sm_100f", "group", QUERN_E4M3, 128, 256, "overlapped", "none", gpu_params);
static const struct qn_kernel plain =
    PRODUCT("sm_100f", "bf16", QUERN_BF16, 32, 128, "", NULL, plain_params);
static const struct qn_kernel codes =
    PRODUCT("sm_120a", "group", QUERN_E4M3, 128, 128, "", "none", plain_params);
static const struct qn_kernel unpacked =
    PRODUCT("sm_120a", "group", QUERN_E4M3, 64, 128, "", "", plain_params);

static double cycles_of(struct quern_context *ctx,
                        const struct qn_kernel *kernel, const char *chip,
                        const struct qn_problem *p)
{
    struct qn_demand demand = {.problem = p,
                               .recipe = qn_context_recipe(ctx, p->recipe),
                               .backend = QUERN_BACKEND_JIT};
    struct qn_device device;
    struct qn_figures f = {0};

    assert_int_equal(qn_chip_find(chip, &device), 1);
    demand.device = &device;
    demand.sms = device.sms;
    qn_model_estimate(&demand, kernel, &f);
    return f.cycles;
}

/* TFLOP/s at the chip's highest clock. */
static double rate_of(struct quern_context *ctx, const struct qn_kernel *kernel,
                      const char *chip, int mhz, const char *line)
{
    const struct qn_problem p = test_problem(ctx, line);

    return 2.0 * (double)p.m * (double)p.n * (double)p.k /
           cycles_of(ctx, kernel, chip, &p) * mhz / 1e6;
}

static void expect_near(double rate, double reported)
{
    if (!(rate > 0.75 * reported && rate < 1.25 * reported))
        fail_msg("%.0f TFLOP/s, reported are %.0f", rate, reported);
}

TEST(reported_rates)
{
    struct quern_context *ctx = test_open();

    expect_near(rate_of(ctx, &native, "B200", 1850,
                        "fprop bf16 g=1 m=8192 n=8192 k=8192"),
                1540);
    expect_near(rate_of(ctx, &native_codes, "B200", 1850,
                        "fprop group g=1 m=16384 n=4096 k=4096"),
                2545);
    expect_near(rate_of(ctx, &codes, "RTX PRO 6000", 2600,
                        "fprop group g=1 m=8192 n=8192 k=8192"),
                802);
    qn_close(ctx);
}

/* Native kernels come first, and codes as they are before unpacked ones. */
TEST(reported_order)
{
    struct quern_context *ctx = test_open();
    const char *line = "fprop bf16 g=8 m=8192 n=4096 k=4096",
               *scaled = "fprop group g=8 m=8192 n=4096 k=4096",
               *few = "fprop bf16 g=8 m=256 n=4096 k=4096";

    assert_true(rate_of(ctx, &native, "B200", 1850, line) >
                1.5 * rate_of(ctx, &plain, "B200", 1850, line));
    assert_true(rate_of(ctx, &codes, "RTX PRO 6000", 2600, scaled) >
                2 * rate_of(ctx, &unpacked, "RTX PRO 6000", 2600, scaled));
    /* mma.sync on 10.x is no figure of others: an H200's, as on one */
    assert_true(rate_of(ctx, &plain, "B200", 1980, few) >
                rate_of(ctx, &plain, "H200", 1980, few));
    qn_close(ctx);
}

/* Groups without rows cost nothing. */
TEST(reported_of_fewer_rows_than_groups)
{
    struct quern_context *ctx = test_open();
    const struct qn_problem many =
                                test_problem(ctx, "fprop bf16 g=64 m=3 n=4096 "
                                                  "k=4096"),
                            three = test_problem(ctx, "fprop bf16 g=3 m=3 "
                                                      "n=4096 k=4096");

    assert_true(cycles_of(ctx, &native, "B200", &many) ==
                cycles_of(ctx, &native, "B200", &three));
    qn_close(ctx);
}

/* No rows at all, and few of them, where memory has a lower rate. */
TEST(reported_of_few_rows)
{
    struct quern_context *ctx = test_open();
    const char *lines[] = {"fprop bf16 g=8 m=0 n=4096 k=4096",
                           "fprop group g=8 m=0 n=4096 k=4096"};
    const struct qn_kernel *kernels[] = {&native, &codes};
    const char *chips[] = {"B200", "RTX PRO 6000"};

    for (int i = 0; i < 2; i++) {
        const struct qn_problem p = test_problem(ctx, lines[i]);

        assert_true(cycles_of(ctx, kernels[i], chips[i], &p) < 1e6);
    }
    assert_true(rate_of(ctx, &native, "B200", 1850,
                        "fprop bf16 g=64 m=8192 n=4096 k=4096") <
                0.7 * rate_of(ctx, &native, "B200", 1850,
                              "fprop bf16 g=32 m=8192 n=4096 k=4096"));
    qn_close(ctx);
}

TEST(reported_for)
{
    assert_null(qn_model_reported(9));
    assert_null(qn_model_reported(8));
    assert_non_null(qn_model_reported(10));
    assert_non_null(qn_model_reported(12));
    assert_int_equal(qn_evidence_measured(90), 1);
    assert_int_equal(qn_evidence_measured(100), 0);
}
