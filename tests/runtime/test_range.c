/* SPDX-License-Identifier: Apache-2.0 */
/* test_range.c: products as f16 after range checks of their operands, and the
   fallback to bf16: the launches, the flags that skip them, and the flags'
   addresses. */
#include "test.h"

#include "dequantize_scene.h"
#include "base/context.h"
#include "choose/model.h"
#include "choose/select.h"

/* -------------------------------------------------------------------- order */

/* f16 as far as its flag is 0, then bf16 as far as the next one is. */
TEST(tries_f16_first)
{
    struct fixture f = begin("fprop close g=3 m=40 n=64 k=160 dequantize=f16");
    const char *flags;
    int noop = 0;

    assert_string_equal(f.info.kernel, "f16_fprop");
    f.args.noop = &noop;
    test_expect(qn_run(f.plan, &f.args, (void *)256), QUERN_OK, "");
    flags = param(0, SAID);
    in_scratch(&f, flags, 4 * 4);
    assert_ptr_equal(param(0, SEEN_A), f.args.a.data);
    assert_ptr_equal(param(0, SEEN_A_SF), f.args.a.sf);
    assert_ptr_equal(param(0, SEEN_B), f.args.b.data);
    assert_ptr_equal(param(0, SEEN_B_SF), f.args.b.sf);
    assert_ptr_equal(param(0, SEEN_SIZES), f.args.a.first_dims);
    assert_ptr_equal(param(0, SEEN_NOOP), &noop);
    assert_ptr_equal(param(0, ERROR), f.workspace);
    assert_ptr_equal(param(1, TRIED_A), f.args.a.data);
    assert_ptr_equal(param(1, TRIED_B), f.args.b.data);
    assert_ptr_equal(param(1, TRIED_D), f.args.d.data);
    assert_ptr_equal(param(1, TRIED_OFF), flags);
    assert_ptr_equal(param(1, BASES), flags + 8);
    assert_ptr_equal(param(1, TRIED_SIZES), f.args.a.first_dims);
    assert_ptr_equal(param(2, A), f.args.a.data);
    assert_ptr_equal(param(2, B), f.args.b.data);
    assert_ptr_equal(param(2, D), f.args.d.data);
    assert_ptr_equal(param(2, BEHIND), flags + 4);
    for (int i = 0; i < 3; i++)
        assert_ptr_equal(test_cuda->trail[i].stream, (void *)256);
    LAUNCHED("close_range", "f16_fprop", "close_fprop");
    end(&f);
}

/* One launch loads the sizes for all. */
TEST(brings_sizes_once)
{
    struct fixture f =
        begin("fprop close g=3 m=40 n=64 k=96 sizes=host dequantize=f16");
    const int64_t sizes[] = {7, 30, 3};

    f.args.a.first_dims = NULL;
    f.args.host_sizes = sizes;
    test_expect(qn_run(f.plan, &f.args, NULL), QUERN_OK, "");
    assert_ptr_equal(param(1, SEEN_SIZES), f.workspace + 256);
    assert_ptr_equal(param(2, TRIED_SIZES), f.workspace + 256);
    assert_ptr_equal(param(3, LENGTHS), f.workspace + 256);
    LAUNCHED("k_sizes_close", "close_range", "f16_fprop", "close_fprop");
    end(&f);
}

/* -------------------------------------------------------------------- rules */

TEST(refuses)
{
    static const struct refusal rows[] = {
        {"fprop bf16 g=3 m=40 n=64 k=96",
         "dequantize=f16: no operand has scales"},
        {"fprop powers g=3 m=40 n=64 k=96", "codes of e4m3 become f16"},
        {"fprop squares g=3 m=40 n=64 k=96", "is no power of two"},
        {"fprop weights g=3 m=40 n=64 k=96",
         "operands without scales are multiplied as"},
        {"wgrad close g=3 m=40 n=64 k=96", "as fast in bf16"},
        {"fprop coarse g=3 m=40 n=64 k=96", "scales of 32 values"},
        {"fprop close g=3 m=40 n=64 k=96 alpha=any", "only a plain store"},
        {"fprop close g=3 m=40 n=64 k=96 beta=1", "only a plain store"},
    };
    struct quern_context *ctx = test_open_with(&registry);
    struct qn_problem p;

    refuse_lines(ctx, rows, sizeof rows / sizeof *rows, "f16");
    p = test_problem(ctx, "fprop close g=3 m=40 n=64 k=96 dequantize=f16");
    test_expect(qn_tune(ctx, &p, NULL, &(struct quern_tune_result){0}),
                QUERN_EINVAL, "those of the product in f16");
    qn_close(ctx);
}

/* ------------------------------------------------------------------- choice */

#define LARGE "fprop close g=8 m=4096 n=4096 k=7168"
#define SMALL "fprop close g=8 m=8 n=64 k=64"

/* Tiles of 96 rows take fewer products where groups are short, and of either
   type less time than of bf16. */
TEST(rows_are_counted)
{
    struct qn_kernel kernel = {.dequantize = "swapped",
                               .becomes = "bf16",
                               .a.type = QUERN_E4M3,
                               .b.type = QUERN_E4M3,
                               .tile = {96, 256, 64}};
    const struct qn_recipe recipe = {.scaling = {[QN_W] = {.k = 32}}};
    const struct qn_demand demand = {.recipe = &recipe};
    double few, many, either;

    assert_true(qn_model_dequantize_rows(&kernel, 40) == 64);
    assert_true(qn_model_dequantize_rows(&kernel, 64) == 80);
    assert_true(qn_model_dequantize_rows(&kernel, 128) == 96);
    assert_true(qn_model_dequantize_whole(&kernel, 64));
    assert_false(qn_model_dequantize_whole(&kernel, 65));
    few = qn_model_dequantize_cycles(&demand, &kernel, 64, 64, 512);
    many = qn_model_dequantize_cycles(&demand, &kernel, 96, 64, 768);
    assert_true(many > 1.2 * few && many < 1.5 * few);
    kernel.becomes = "either";
    either = qn_model_dequantize_cycles(&demand, &kernel, 64, 64, 512);
    assert_true(either < few);
    kernel.tile[0] = 64;
    assert_true(qn_model_dequantize_rows(&kernel, 128) == 64);
    assert_false(qn_model_dequantize_whole(&kernel, 32));
}

/* Kernels for few tokens multiply half of their rows or all: a value is worth
   many tokens. */
TEST(few_tokens_cost_little)
{
    struct qn_kernel kernel = {.dequantize = "few",
                               .a.type = QUERN_BF16,
                               .b.type = QUERN_E2M1,
                               .tile = {16, 128, 256}};
    struct qn_recipe recipe = {.scaling = {[QN_W] = {.k = 32}}};
    const struct qn_demand demand = {.recipe = &recipe};
    double few, many;

    assert_true(qn_model_dequantize_rows(&kernel, 4) == 8);
    assert_true(qn_model_dequantize_rows(&kernel, 16) == 16);
    few = qn_model_dequantize_cycles(&demand, &kernel, 1, 64, 0);
    assert_true(few == qn_model_dequantize_cycles(&demand, &kernel, 8, 64, 0));
    many = qn_model_dequantize_cycles(&demand, &kernel, 16, 64, 0);
    assert_true(many > 1.1 * few && many < 1.3 * few);
    recipe.scaling[QN_W].k = 16;
    assert_true(qn_model_dequantize_cycles(&demand, &kernel, 8, 64, 0) > few);
}

TEST(model_decides)
{
    static const struct decision rows[] = {
        {LARGE, NULL, "f16_fprop", "dequantize=f16: f16 "},
        {LARGE " dequantize=mainloop", NULL, "close_fprop", "> close_fprop"},
        {SMALL, NULL, "close_fprop", "dequantize=mainloop: f16 "},
        {SMALL " dequantize=f16", NULL, "f16_fprop",
         "if some value does not fit"},
        {LARGE, "close_fprop", "close_fprop", "> close_fprop"},
        {LARGE " dequantize=f16", "f16_fprop", "f16_fprop", "> f16_fprop"},
        {"fprop powers g=8 m=32768 n=4096 k=7168", NULL, "fprop",
         "not as f16: codes of e4m3"},
    };
    struct quern_context *ctx = test_open_with(&registry);

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        int tried = !strcmp(rows[i].runs, "f16_fprop");
        struct quern_plan_info info;
        char *why = decide(ctx, &rows[i], &info);

        assert_true(tried == !!strstr(why, "> close_range\n"));
        assert_true(tried == !!strstr(why, "within 2^21 of each other"));
        quern_free(why);
    }
    qn_close(ctx);
}

/* A strategy that was not asked for is dropped. */
TEST(falls_back)
{
    fall_back("close_range", LARGE, "close_fprop", QUERN_DEQUANTIZE_F16,
              "no kernel checks whether f16 holds the values for recipe close");
    fall_back("f16_fprop", LARGE, "close_fprop", QUERN_DEQUANTIZE_F16,
              "in the product as f16");
}

/* ---------------------------------------------------------------- failures */

TEST(fails_each_driver_call)
{
    fail_driver_calls("fprop close g=3 m=64 n=96 k=300 dequantize=f16", 3);
}

TEST(fails_each_allocation)
{
    fail_allocations("fprop close g=3 m=40 n=64 k=96 dequantize=f16", 3);
}
