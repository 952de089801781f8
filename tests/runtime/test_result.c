/* SPDX-License-Identifier: Apache-2.0 */
/* test_result.c: copies of a product's result that a cast after the product
   makes: which launches, that each gets what the one before has made, and where
   the workspace has it. */
#include "test.h"

#include "kernels.h"

#define P(name) QN_PARAM_##name

enum { A, D, SAVED, LENGTHS, STARTS, SKIP, BIAS, RECORD };
static const unsigned char trail_product[] = {
    P(a),       P(d),    P(saved), P(first_dims),
    P(offsets), P(noop), P(bias),  P(error)};
enum { IN, ROW, COLUMN, SCALE, HISTORY, SIZES, NOOP, ERROR };
static const unsigned char trail_cast[] = {P(in),    P(row),     P(column),
                                           P(scale), P(history), P(first_dims),
                                           P(noop),  P(error)};

#define TENSOR                                                                 \
    {                                                                          \
        .type = QUERN_F32, .span = QN_SPAN_TENSOR, .history = 5                \
    }
#define LEVELS                                                                 \
    {                                                                          \
        .type = QUERN_E4M3, .span = QN_SPAN_BLOCK, .rows = 1, .k = 16,         \
        .pad_rows = 1, .pad_columns = 1, .global = 1, .stochastic = 1          \
    }
#define POWERS                                                                 \
    {                                                                          \
        .type = QUERN_E8M0, .span = QN_SPAN_BLOCK, .rows = 1, .k = 32,         \
        .pad_rows = 1, .pad_columns = 1                                        \
    }
static const struct qn_recipe recipes[] = {
    {TEST_E4M3("past", QUERN_BF16), .scaling = {TENSOR, TENSOR, TENSOR}},
    {TEST_E4M3("levels", QUERN_BF16), .scaling = {LEVELS, LEVELS, LEVELS}},
    {TEST_E4M3("powers", QUERN_BF16), .scaling = {POWERS, POWERS, POWERS}},
};

#define PRODUCT(symbol, recipe_, type_, op_, epilogue_, b_)                    \
    {                                                                          \
        TEST_KERNEL(symbol, recipe_, trail_product),                           \
            .op = op_, .ragged = QUERN_AXIS_M, .epilogue = epilogue_,          \
            .activation = "swiglu", .a = {.type = type_},                      \
            .b = {.type = type_, .major = QUERN_MAJOR_##b_},                   \
            .d = {.type = QUERN_BF16}, .tile = {                               \
                128,                                                           \
                128,                                                           \
                64                                                             \
            }                                                                  \
    }
#define CAST(symbol, recipe_, op_, of_, params_)                               \
    {                                                                          \
        TEST_KERNEL(symbol, recipe_, params_), .op = op_, .of = of_,           \
                                               .input = QUERN_BF16             \
    }
#define BRINGS(recipe_) TEST_SIZES("k_sizes_" recipe_, recipe_)

static const struct qn_kernel kernels[] = {
    PRODUCT("past_plain", "past", QUERN_E4M3, QUERN_FPROP, QN_STORE, K),
    PRODUCT("past_swiglu", "past", QUERN_E4M3, QUERN_FPROP, QN_ACTIVATE, K),
    PRODUCT("past_dgrad", "past", QUERN_E4M3, QUERN_DGRAD, QN_STORE, K),
    CAST("past_x", "past", QN_QUANTIZE, QN_X, trail_cast),
    CAST("past_dy", "past", QN_QUANTIZE, QN_DY, trail_cast),
    BRINGS("past"),
    PRODUCT("levels_plain", "levels", QUERN_E4M3, QUERN_FPROP, QN_STORE, K),
    CAST("levels_amax", "levels", QN_AMAX, QN_X, trail_cast),
    CAST("levels_x", "levels", QN_QUANTIZE, QN_X, trail_cast),
    PRODUCT("powers_plain", "powers", QUERN_E4M3, QUERN_FPROP, QN_STORE, K),
    CAST("powers_a", "powers", QN_DEQUANTIZE, QN_X, trail_cast),
    CAST("powers_b", "powers", QN_DEQUANTIZE, QN_W, trail_cast),
    CAST("powers_c", "powers", QN_DEQUANTIZE, QN_DY, trail_cast),
    CAST("powers_x", "powers", QN_QUANTIZE, QN_X, trail_cast),
    CAST("powers_dy", "powers", QN_QUANTIZE, QN_DY, trail_cast),
    BRINGS("powers"),
    BRINGS("bf16"),
    PRODUCT("wide_swiglu", "bf16", QUERN_BF16, QUERN_FPROP, QN_ACTIVATE, K),
    PRODUCT("wide_back", "bf16", QUERN_BF16, QUERN_DGRAD, QN_GRADIENT, MN),
};
static const struct quern_registry registry = {
    .hash = "result",
    .recipes = recipes,
    .nrecipes = sizeof recipes / sizeof *recipes,
    .kernels = kernels,
    .nkernels = sizeof kernels / sizeof *kernels};

#define PAST  "fprop past g=3 m=40 n=64 k=32"
#define WORDS " activation=swiglu saved=1 copies=both"

enum { ROOM = 1 << 16, ROOMS = 18, WORKSPACE = 1 << 19 };

#include "plan_scene.h"

static struct fixture begin(const char *text)
{
    struct fixture f = plan_with(&registry, text, &test_aot);
    const struct qn_problem p = test_problem(f.ctx, text);

    if (f.args.p.ndim)
        give(&f, &f.args.p);
    if (f.args.t.ndim)
        give(&f, &f.args.t);
    f.args.bias = p.bias ? room(&f) : NULL;
    f.args.scale = f.need.history ? room(&f) : NULL;
    f.args.history = f.need.history ? room(&f) : NULL;
    f.args.random = f.need.random ? room(&f) : NULL;
    f.args.a.first_dims = p.sizes ? NULL : room(&f);
    return f;
}

static void run(struct fixture *f)
{
    test_cuda->launches = 0;
    test_expect(qn_run(f->plan, &f->args, (void *)512), QUERN_OK, "");
    for (int i = 0; i < test_cuda->launches; i++)
        assert_ptr_equal(test_cuda->trail[i].stream, (void *)512);
}

/* `bytes` inside the workspace, after the record. */
static void in_scratch(const struct fixture *f, const void *at, size_t bytes)
{
    const char *const begin = at;

    assert_true(begin >= f->workspace + 256);
    assert_true(begin + bytes <= f->workspace + f->info.workspace_bytes);
}

/* ------------------------------------------------------------------- order */

TEST(casts_what_was_made)
{
    struct fixture f = begin(PAST WORDS);
    int flag = 0;

    assert_string_equal(f.info.kernel, "past_swiglu");
    assert_int_equal(f.need.history, 5);
    assert_int_equal(f.need.args.d.type, QUERN_E4M3);
    f.args.noop = &flag;
    run(&f);
    LAUNCHED("past_swiglu", "past_x");
    assert_ptr_equal(param(0, A), f.args.a.data);
    assert_ptr_equal(param(0, SAVED), f.args.p.data);
    assert_ptr_equal(param(0, LENGTHS), f.args.a.first_dims);
    assert_ptr_equal(param(0, SKIP), &flag);
    assert_ptr_equal(param(0, RECORD), f.workspace);
    in_scratch(&f, param(0, D), 40 * 32 * 2);
    assert_ptr_equal(param(1, IN), param(0, D));
    assert_ptr_equal(param(1, ROW), f.args.d.data);
    assert_ptr_equal(param(1, COLUMN), f.args.t.data);
    assert_ptr_equal(param(1, SCALE), f.args.scale);
    assert_ptr_equal(param(1, HISTORY), f.args.history);
    assert_ptr_equal(param(1, SIZES), f.args.a.first_dims);
    assert_ptr_equal(param(1, NOOP), &flag);
    in_scratch(&f, param(1, ERROR), 256); /* the product's is the caller's */
    f.args.t.data = NULL;                 /* not wanted */
    run(&f);
    assert_null(param(1, COLUMN));
    end(&f);
}

/* Fewer rows than planned: the addresses stay. */
TEST(casts_fewer_rows)
{
    struct fixture f = begin(PAST " copies=rowwise");
    const void *numbers, *record;

    run(&f);
    numbers = param(0, D);
    record = param(1, ERROR);
    f.args.a.shape[0] = f.args.d.shape[0] = 7;
    run(&f);
    LAUNCHED("past_plain", "past_x");
    assert_ptr_equal(param(0, D), numbers);
    assert_ptr_equal(param(1, IN), numbers);
    assert_ptr_equal(param(1, ERROR), record);
    end(&f);
}

/* The product loads them, for both; sizes may be those of D. */
TEST(casts_by_sizes)
{
    static const int64_t sizes[] = {20, 0, 20};
    struct fixture f = begin(PAST " copies=rowwise sizes=host");
    int offsets[4];

    f.args.host_sizes = sizes;
    run(&f);
    LAUNCHED("k_sizes_past", "past_plain", "past_x");
    assert_ptr_equal(param(1, LENGTHS), f.workspace + 256);
    assert_ptr_equal(param(2, SIZES), f.workspace + 256);
    assert_true((char *)param(2, ERROR) >= f.workspace + 256 + 3 * 4);
    end(&f);
    f = begin(PAST " copies=rowwise");
    f.args.d.first_dims = f.args.a.first_dims;
    f.args.d.offsets = offsets;
    f.args.a.first_dims = NULL;
    run(&f);
    assert_ptr_equal(param(0, LENGTHS), f.args.d.first_dims);
    assert_ptr_equal(param(0, STARTS), offsets);
    assert_ptr_equal(param(1, SIZES), f.args.d.first_dims);
    end(&f);
}

/* ------------------------------------------------------------------- rules */

#define BREAK(change, part)                                                    \
    TEST_BROKEN(f.args, good, change, qn_run(f.plan, &f.args, NULL), part)

TEST(refuses)
{
    struct fixture f = begin(PAST WORDS);
    struct qn_args good = f.args;

    BREAK(f.args.history = f.args.b.data, "overlaps");
    BREAK(f.args.scale = f.args.t.data, "overlaps");
    BREAK(f.args.t.data = f.args.workspace, "overlaps");
    f.args = good;
    f.args.t.sf = f.args.d.sf; /* one scale of one tensor */
    run(&f);
    end(&f);
    f = begin("fprop levels g=3 m=40 n=64 k=32 copies=both");
    good = f.args;
    BREAK(f.args.d.global = f.args.a.data, "overlaps");
    end(&f);
    f = begin(PAST);
    good = f.args;
    BREAK(f.args.scale = (float *)(void *)f.workspace, "overlaps");
    end(&f);
}

TEST(explains)
{
    struct fixture f = begin(PAST WORDS);
    struct qn_problem p = test_problem(f.ctx, PAST WORDS);
    struct quern_tune_result result;
    char *why;

    test_expect(qn_why(f.ctx, &p, &test_aot, NULL, &why), QUERN_OK, "");
    assert_non_null(strstr(why, "made by a cast after the product, "));
    assert_non_null(strstr(why, "largest magnitude for its history"));
    assert_non_null(strstr(why, "> past_swiglu"));
    assert_non_null(strstr(why, "quantize past of=x g=3 m=40 k=32 in=bf16 "
                                "copies=both"));
    assert_non_null(strstr(why, "> past_x"));
    quern_free(why);
    test_expect(qn_tune(f.ctx, &p, NULL, &result), QUERN_EINVAL,
                "copies: a cast of its own makes them");
    end(&f);
}

/* Each part's own error, and where it was. */
TEST(misses_kernels)
{
    static const struct {
        const char *without, *text, *says;
    } rows[] = {
        {"past_x", PAST " copies=rowwise",
         "in the cast of the product's result"},
        {"past_plain", PAST " copies=rowwise",
         "whose result a cast would quant"},
        {"wide_back",
         "dgrad powers g=3 m=40 n=64 k=32 activation=swiglu copies=rowwise",
         "whose result a cast would quant"},
    };

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct qn_kernel left[sizeof kernels / sizeof *kernels];
        struct quern_registry less =
            test_without(&registry, rows[i].without, left);
        struct quern_context *ctx = test_open_with(&less);
        struct qn_problem p = test_problem(ctx, rows[i].text);
        struct qn_plan *plan = NULL;

        test_expect(qn_plan(ctx, &p, &test_aot, &plan), QUERN_ENOKERNEL,
                    rows[i].says);
        assert_null(plan);
        qn_close(ctx);
    }
}

/* Every allocation of a plan fails once. */
TEST(survives_lack_of_memory)
{
    struct quern_context *ctx = test_open_with(&registry);
    struct qn_problem p = test_problem(ctx, PAST WORDS);
    struct qn_plan *plan;
    int code = QUERN_ENOMEM, n = 0;

    while (code == QUERN_ENOMEM) {
        test_fail_allocation(++n);
        code = qn_plan(ctx, &p, &test_aot, &plan);
        test_fail_allocation(0);
        assert_true(n < 1000);
    }
    assert_int_equal(code, QUERN_OK);
    assert_true(n > 4);
    qn_plan_free(plan);
    qn_close(ctx);
}
