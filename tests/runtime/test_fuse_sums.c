/* SPDX-License-Identifier: Apache-2.0 */
/* test_fuse_sums.c: dgrad that quantizes dy and sums it up: by the cast before
   the product, or where none reads dy by launches for the sums only. */
#include "test.h"

#define P(name) QN_PARAM_##name

static const struct qn_recipe recipes[] = {
    {TEST_E4M3("blocks", QUERN_BF16),
     .scaling = {TEST_LINES, TEST_SQUARES, TEST_LINES}},
};

/* The trail's record of a launch. */
enum { P_ROW, P_SIZES, P_NOOP };
static const unsigned char trail_product[] = {
    P(row), P(first_dims), P(noop), P(b), P(b_sf), P(d), P(error), P(offsets)};
enum { IN, ROW, COLUMN, PARTIALS, DBIAS, SIZES, NOOP, RECORD };
static const unsigned char trail_cast[] = {P(in),       P(row),   P(column),
                                           P(partials), P(dbias), P(first_dims),
                                           P(noop),     P(error)};

#define PRODUCT(symbol, quantize_)                                             \
    {                                                                          \
        TEST_KERNEL(symbol, "blocks", trail_product),                          \
            .op = QUERN_DGRAD, .ragged = QUERN_AXIS_M,                         \
            .a = {.type = QUERN_E4M3}, .b = {.type = QUERN_E4M3},              \
            .d = {.type = QUERN_BF16}, .tile = {128, 128, 128},                \
            .quantize = quantize_                                              \
    }
#define CAST(symbol, recipe_, op_, input_)                                     \
    {                                                                          \
        TEST_KERNEL(symbol, recipe_, trail_cast), .op = op_, .of = QN_DY,      \
                                                  .input = input_              \
    }

static const struct qn_kernel kernels[] = {
    PRODUCT("pass", NULL),
    PRODUCT("mainloop", "mainloop"),
    CAST("cast", "blocks", QN_QUANTIZE, QUERN_BF16),
    CAST("cast_sum", "blocks", QN_SUM, QUERN_F32),
    CAST("plain", "bf16", QN_QUANTIZE, QUERN_BF16),
    CAST("plain_sum", "bf16", QN_SUM, QUERN_F32),
};
static const struct quern_registry registry = {.hash = "sums",
                                               .recipes = recipes,
                                               .nrecipes = 1,
                                               .kernels = kernels,
                                               .nkernels = sizeof kernels /
                                                           sizeof *kernels};

#define LINE "dgrad blocks g=3 m=40 n=64 k=136 dbias=1 quantize="

enum { ROOM = 1 << 16, ROOMS = 12, WORKSPACE = 1 << 18 };

#include "plan_scene.h"

static struct fixture begin(const char *text, const char *kernel)
{
    const struct qn_plan_options options = {.backend = QUERN_BACKEND_AOT,
                                            .kernel = kernel};
    struct fixture f = plan_with(&registry, text, &options);

    assert_int_equal(f.info.workspace_bytes, f.need.workspace_bytes);
    give(&f, &f.args.in);
    f.args.dbias = room(&f);
    f.args.a.first_dims = room(&f);
    return f;
}

#define RUN(f, ...)                                                            \
    do {                                                                       \
        test_cuda->launches = 0;                                               \
        test_expect(qn_run((f)->plan, &(f)->args, NULL), QUERN_OK, "");        \
        LAUNCHED(__VA_ARGS__);                                                 \
    } while (0)

/* Launches of sums only: dy is read, no copy is made, and the partial sums have
   a part of the workspace after the cast's. */
static void expect_sums(const struct fixture *f, const char *cast_end)
{
    assert_ptr_equal(param(0, IN), f->args.in.data);
    assert_null(param(0, ROW));
    assert_null(param(0, COLUMN));
    assert_ptr_equal(param(0, SIZES), f->args.a.first_dims);
    assert_ptr_equal(param(0, NOOP), f->args.noop);
    assert_true(param(0, RECORD) >= cast_end);
    assert_true(param(0, PARTIALS) > param(0, RECORD));
    assert_true(param(0, PARTIALS) +
                    (40 + 127 * 3) / 128 * 4 * 136 * sizeof(float) <=
                f->workspace + f->info.workspace_bytes);
    assert_ptr_equal(param(1, PARTIALS), param(0, PARTIALS));
    assert_ptr_equal(param(1, DBIAS), f->args.dbias);
}

/* A columnwise tensor is a cast, which reads dy anyway. */
TEST(sums_in_mainloop)
{
    struct fixture f = begin(LINE "mainloop", "mainloop");
    const char *record;
    int noop = 0;

    f.args.noop = &noop;
    RUN(&f, "plain", "plain_sum", "mainloop");
    expect_sums(&f, f.workspace + 256);
    assert_ptr_equal(param(2, P_NOOP), &noop);
    record = param(0, RECORD);
    f.args.a.shape[0] = f.args.d.shape[0] = f.args.in.shape[0] = 7;
    RUN(&f, "plain", "plain_sum", "mainloop"); /* the addresses stay */
    assert_ptr_equal(param(0, RECORD), record);
    f.args.a.shape[0] = f.args.d.shape[0] = f.args.in.shape[0] = 40;
    give(&f, &f.args.column);
    RUN(&f, "cast", "cast_sum", "mainloop");
    assert_ptr_equal(param(0, COLUMN), f.args.column.data);
    assert_null(param(0, ROW));
    assert_ptr_equal(param(1, DBIAS), f.args.dbias);
    end(&f);
}

TEST(casts_and_sums)
{
    struct fixture f = begin(LINE "auto", "pass");

    RUN(&f, "cast", "cast_sum", "pass");
    assert_ptr_equal(param(0, ROW), f.args.a.data);
    assert_ptr_equal(param(1, DBIAS), f.args.dbias);
    f.args.dbias = f.args.in.data;
    test_expect(qn_run(f.plan, &f.args, NULL), QUERN_EINVAL, "overlaps");
    end(&f);
}

/* The tensor of dbias, and the terms of its sum. */
TEST(refuses_sums)
{
    static const char *const texts[] = {
        "dgrad blocks g=3 m=40 n=64 k=136 dbias=1",
        "fprop blocks g=3 m=40 n=64 k=136 dbias=1 quantize=auto",
        "dgrad blocks g=3 m=40 n=64 k=136 prob=1 dprob=1 quantize=auto"};
    struct quern_context *ctx = test_open_with(&registry);
    struct qn_kernel left[sizeof kernels / sizeof *kernels];
    struct quern_registry less = test_without(&registry, "plain_sum", left);
    struct qn_problem p;
    struct qn_plan *plan;

    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        test_expect(qn_problem_parse(ctx, texts[i], &p), QUERN_EINVAL,
                    "or dgrad with quantize=");
    qn_close(ctx);
    ctx = test_open_with(&less);
    p = test_problem(ctx, LINE "mainloop");
    test_expect(qn_plan(ctx, &p, &test_aot, &plan), QUERN_ENOKERNEL,
                "in the sums of dy");
    assert_int_equal(test_count("nvrtc"), 0);
    qn_close(ctx);
}
