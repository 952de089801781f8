/* SPDX-License-Identifier: Apache-2.0 */
/* test_requantize.c: products whose operands become FP8 before them, unless a
   flag on the device says that some value does not fit: which launches, what
   each is left out by, and where the workspace has what they make. */
#include "test.h"

#include "dequantize_scene.h"

/* -------------------------------------------------------------------- order */

/* FP8 as far as its flag is 0, then bf16 as far as the next one is. */
TEST(tries_fp8_first)
{
    struct fixture f = begin("fprop powers g=3 m=40 n=64 k=160 dequantize=fp8");
    const char *flags;
    int noop = 0;

    assert_string_equal(f.info.kernel, "narrow_fprop");
    f.args.noop = &noop;
    test_expect(qn_run(f.plan, &f.args, (void *)256), QUERN_OK, "");
    flags = param(0, BEGUN);
    in_scratch(&f, flags, 8);
    assert_ptr_equal(param(0, BEGUN_NOOP), &noop);
    assert_null(param(0, PLACE));
    for (int i = 1; i < 3; i++) {
        assert_ptr_equal(param(i, FLAGS), flags);
        assert_ptr_equal(param(i, SKIP), &noop);
    }
    assert_ptr_equal(param(1, CODED_ROW), f.args.a.data);
    assert_ptr_equal(param(1, CODED_SF), f.args.a.sf);
    assert_ptr_equal(param(1, TOKENS), f.args.a.first_dims);
    assert_ptr_equal(param(2, CODED_ROW), f.args.b.data);
    in_scratch(&f, param(1, CODES), 40 * 160);
    in_scratch(&f, param(1, SCALES), 40 * 2 * 4);
    in_scratch(&f, param(2, CODES), 3 * 64 * 160);
    in_scratch(&f, param(2, SCALES), 3 * 4 * 4);
    assert_ptr_equal(param(3, NARROW_A), param(1, CODES));
    assert_ptr_equal(param(3, NARROW_B), param(2, CODES));
    assert_ptr_equal(param(3, A_SF), param(1, SCALES));
    assert_ptr_equal(param(3, B_SF), param(2, SCALES));
    assert_ptr_equal(param(3, NARROW_D), f.args.d.data);
    assert_ptr_equal(param(3, OFF), flags);
    assert_ptr_equal(param(3, SIZED), f.args.a.first_dims);
    for (int i = 4; i < 6; i++)
        assert_ptr_equal(param(i, NOOP), flags + 4);
    assert_ptr_equal(param(6, D), f.args.d.data);
    for (int i = 0; i < 7; i++)
        assert_ptr_equal(test_cuda->trail[i].stream, (void *)256);
    LAUNCHED("powers_begin", "powers_x_again", "powers_w_again", "narrow_fprop",
             "powers_x", "powers_w", "fprop");
    end(&f);
}

/* Operands in FP8 blocks are multiplied directly; the fallback is the
   recipe's own kernel. */
TEST(reads_fp8_directly)
{
    struct fixture f = begin("fprop mixed8 g=3 m=40 n=64 k=160 dequantize=fp8");

    test_expect(qn_run(f.plan, &f.args, NULL), QUERN_OK, "");
    assert_ptr_equal(param(2, NARROW_A), f.args.a.data);
    assert_ptr_equal(param(2, A_SF), f.args.a.sf);
    assert_ptr_equal(param(2, NARROW_B), param(1, CODES));
    assert_ptr_equal(param(2, OFF), param(0, BEGUN));
    assert_ptr_equal(param(3, A), f.args.a.data);
    assert_ptr_equal(param(3, B), f.args.b.data);
    assert_ptr_equal(param(3, LENGTHS), f.args.a.first_dims);
    LAUNCHED("mixed8_begin", "mixed8_w_again", "narrow_fprop",
             "mixed8_mainloop");
    end(&f);
}

/* Next to tokens with a scale for each row weights become such rows. */
TEST(makes_rows_next_to_rows)
{
    struct fixture f = begin("fprop near8 g=3 m=40 n=64 k=160 dequantize=fp8");

    test_expect(qn_run(f.plan, &f.args, NULL), QUERN_OK, "");
    assert_ptr_equal(param(1, CODED_ROW), f.args.b.data);
    in_scratch(&f, param(1, CODES), 3 * 64 * 160);
    in_scratch(&f, param(1, SCALES), 3 * 64 * 4);
    assert_ptr_equal(param(2, NARROW_A), f.args.a.data);
    assert_ptr_equal(param(2, A_SF), f.args.a.sf);
    assert_ptr_equal(param(2, NARROW_B), param(1, CODES));
    assert_ptr_equal(param(2, B_SF), param(1, SCALES));
    assert_ptr_equal(param(2, OFF), param(0, BEGUN));
    assert_ptr_equal(param(3, B), f.args.b.data);
    LAUNCHED("near8_begin", "near8_w_rows", "rows_fprop", "near8_mainloop");
    end(&f);
}

/* One launch loads the sizes for all. */
TEST(brings_sizes_once)
{
    struct fixture f =
        begin("fprop powers g=3 m=40 n=64 k=96 sizes=host dequantize=fp8");
    const int64_t sizes[] = {7, 30, 3};

    f.args.a.first_dims = NULL;
    f.args.host_sizes = sizes;
    test_expect(qn_run(f.plan, &f.args, NULL), QUERN_OK, "");
    assert_ptr_equal(param(2, TOKENS), f.workspace + 256);
    assert_ptr_equal(param(4, SIZED), f.workspace + 256);
    assert_ptr_equal(param(7, LENGTHS), f.workspace + 256);
    LAUNCHED("k_sizes_powers", "powers_begin", "powers_x_again",
             "powers_w_again", "narrow_fprop", "powers_x", "powers_w", "fprop");
    end(&f);
}

/* -------------------------------------------------------------------- rules */

TEST(refuses)
{
    static const struct refusal rows[] = {
        {"fprop bf16 g=3 m=40 n=64 k=96",
         "dequantize=fp8: no operand has scales"},
        {"fprop blocks g=3 m=40 n=64 k=96", "use all of e4m3's exponents"},
        {"fprop levels g=3 m=40 n=64 k=96", "has four digits of its own"},
        {"fprop weights g=3 m=40 n=64 k=96", "have more digits than e4m3"},
        {"wgrad powers g=3 m=40 n=64 k=96 microbatches=2",
         "microbatches: merged products"},
        {"wgrad mixed8 g=3 m=40 n=64 k=96", "FP8 in blocks as they are"},
    };
    struct quern_context *ctx = test_open_with(&registry);
    struct qn_problem p;

    refuse_lines(ctx, rows, sizeof rows / sizeof *rows, "fp8");
    test_expect(qn_problem_parse(
                    ctx, "fprop powers g=1 m=1 n=8 k=8 dequantize=fp4", &p),
                QUERN_EINVAL, "auto, mainloop, pass, fp8, f16 is expected");
    p = test_problem(ctx, "fprop powers g=3 m=40 n=64 k=96 dequantize=fp8");
    test_expect(qn_tune(ctx, &p, NULL, &(struct quern_tune_result){0}),
                QUERN_EINVAL, "those of the product in FP8");
    qn_close(ctx);
}

/* ------------------------------------------------------------------- choice */

#define LARGE "fprop powers g=8 m=32768 n=4096 k=7168"
#define SMALL "fprop powers g=8 m=64 n=4096 k=7168"

/* Only who names FP8 gets its narrow sums, and the room for its codes. */
TEST(model_never_decides_for_fp8)
{
    static const struct decision rows[] = {
        {LARGE, NULL, "fprop", "dequantize=pass: "},
        {LARGE " dequantize=fp8", NULL, "narrow_fprop",
         "about 13 bits for 128 values"},
        {LARGE " dequantize=pass", NULL, "fprop", "operands become bf16"},
        {LARGE " dequantize=mainloop", NULL, "powers_mainloop",
         "> powers_mainloop"},
        {SMALL, NULL, "powers_mainloop", "dequantize=mainloop: pass "},
        {SMALL " dequantize=fp8", NULL, "narrow_fprop",
         "if some value does not fit"},
    };
    struct quern_context *ctx = test_open_with(&registry);

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        int narrow = !strcmp(rows[i].runs, "narrow_fprop");
        struct quern_plan_info info;
        char *why = decide(ctx, &rows[i], &info);

        assert_true(narrow == !!strstr(why, "> powers_w_again\n"));
        assert_true(narrow == !!strstr(why, "sums are those of FP8"));
        quern_free(why);
    }
    qn_close(ctx);
}

#define MANY "fprop near8 g=8 m=32768 n=4096 k=7168"

/* The mainloop has the same sums, so that the model may decide: also where all
   numbers of rows have one order of them. */
TEST(model_decides_for_rows)
{
    static const struct decision rows[] = {
        {MANY, NULL, "rows_fprop", "dequantize=fp8: fp8 "},
        {MANY, NULL, "rows_fprop", "w becomes e4m3 with a power of two"},
        {MANY " dequantize=mainloop", NULL, "near8_mainloop",
         "> near8_mainloop"},
        {MANY, "near8_mainloop", "near8_mainloop", "> near8_mainloop"},
        {"fprop near8 g=8 m=64 n=512 k=512", NULL, "near8_mainloop",
         "dequantize=mainloop: fp8 "},
    };
    const struct qn_plan_options options = {.backend = QUERN_BACKEND_AOT,
                                            .same_sums = 1};
    struct quern_context *ctx = test_open_with(&registry);
    struct qn_problem p = test_problem(ctx, MANY);
    struct quern_plan_info info;

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        quern_free(decide(ctx, &rows[i], &info));
    expect_runs(ctx, &p, &options, "rows_fprop", &info);
    qn_close(ctx);
}

/* Without a recipe of such rows there is only the mainloop. */
TEST(rows_need_a_recipe)
{
    struct quern_registry fewer = registry;
    struct quern_context *ctx;
    struct quern_plan_info info;
    struct qn_problem p;

    fewer.nrecipes--;
    ctx = test_open_with(&fewer);
    test_expect(qn_problem_parse(ctx, MANY " dequantize=fp8", &p), QUERN_EINVAL,
                "no recipe has e4m3 with a scale for each row of x and w");
    p = test_problem(ctx, MANY);
    expect_runs(ctx, &p, &test_aot, "near8_mainloop", &info);
    qn_close(ctx);
}

/* Only a problem that names FP8 misses its kernels. */
TEST(falls_back)
{
    fall_back("near8_w_rows", MANY, "near8_mainloop", QUERN_DEQUANTIZE_FP8,
              "no kernel encodes a copy again for recipe near8");
    fall_back("powers_x_again", LARGE, "fprop", QUERN_DEQUANTIZE_FP8,
              "no kernel encodes a copy again for recipe powers");
}

/* ---------------------------------------------------------------- failures */

TEST(fails_each_driver_call)
{
    fail_driver_calls("wgrad powers g=3 m=64 n=96 k=300 dequantize=fp8", 7);
}

TEST(fails_each_allocation)
{
    fail_allocations("fprop powers g=3 m=40 n=64 k=96 dequantize=fp8", 6);
}
