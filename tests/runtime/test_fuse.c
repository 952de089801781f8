/* SPDX-License-Identifier: Apache-2.0 */
/* test_fuse.c: products that quantize A: which kernels serve one, the arguments
   of the launches, and which arguments are refused. */
#include "test.h"

#include "base/context.h"
#include "device/cuda_api.h"
#include "product/plan.h"

#define P(name) QN_PARAM_##name

static const struct qn_recipe recipes[] = {
    {TEST_E4M3("blocks", QUERN_BF16),
     .scaling = {TEST_LINES, TEST_SQUARES, TEST_LINES}},
    {TEST_E4M3("chance", QUERN_BF16), .scaling = {TEST_LINES,
                                                  TEST_SQUARES,
                                                  {.type = QUERN_F32,
                                                   .span = QN_SPAN_BLOCK,
                                                   .rows = 1,
                                                   .k = 128,
                                                   .order = QN_ORDER_COLUMNS,
                                                   .pad_rows = 4,
                                                   .pad_columns = 1,
                                                   .stochastic = 1}}},
    {TEST_E4M3("memory", QUERN_BF16), .scaling = {{.type = QUERN_F32,
                                                   .span = QN_SPAN_TENSOR,
                                                   .pad_rows = 1,
                                                   .pad_columns = 1,
                                                   .history = 16},
                                                  TEST_SQUARES,
                                                  TEST_LINES}},
    {TEST_SCALED("weights", QUERN_BF16, QUERN_E4M3, QUERN_BF16,
                 1u << QUERN_BF16, QUERN_BF16),
     .scaling = {{0}, TEST_SQUARES, {0}}},
};

/* ORDER: those with 8 bytes first, as the fake driver keeps them. */
static const unsigned char inline_params[] = {P(first_dims), P(noop),  P(b),
                                              P(b_sf),       P(d),     P(error),
                                              P(offsets),    P(in_map)};
static const unsigned char plain_params[] = {P(a),    P(a_sf),  P(first_dims),
                                             P(noop), P(b),     P(b_sf),
                                             P(d),    P(error), P(a_map)};
static const unsigned char before_params[] = {
    P(in),   P(row),       P(row_sf),     P(column),
    P(noop), P(column_sf), P(first_dims), P(in_stride)};
static const struct qn_requires whole[] = {
    {"k % 8 == 0", "rows are read 16 bytes at a time"}};

#define PRODUCT(symbol, recipe_, params_, ...)                                 \
    {                                                                          \
        .name = symbol, .spec = "kernels/test.lua:1",                          \
        .template_path = "test.cu", .key = "key_of_" symbol,                   \
        .recipe = recipe_, .arch = "sm_90a", .op = QUERN_FPROP,                \
        .ragged = QUERN_AXIS_M, .epilogue = QN_STORE,                          \
        .a = {.type = QUERN_E4M3,                                              \
              .box = {128, 64},                                                \
              .swizzle = 128,                                                  \
              .sf_box = {64, 1}},                                              \
        .b = {.type = QUERN_E4M3, .box = {128, 48}},                           \
        .d = {.type = QUERN_BF16}, .tile = {128, 128, 128}, .cluster = {1, 1}, \
        .schedule = "", .addend = "none", .threads = 128, .params = params_,   \
        .nparams = sizeof params_, .cubin = "\177ELF", .cubin_bytes = 4,       \
        __VA_ARGS__                                                            \
    }
static const struct qn_kernel kernels[] = {
    PRODUCT("plain", "blocks", plain_params, .quantize = NULL),
    PRODUCT("inline", "blocks", inline_params, .quantize = "mainloop",
            .rules = whole, .nrules = 1),
    {.name = "cast",
     .spec = "kernels/test.lua:1",
     .template_path = "cast.cu",
     .key = "key_of_cast",
     .recipe = "blocks",
     .arch = "sm_90a",
     .op = QN_QUANTIZE,
     .of = QN_X,
     .input = QUERN_BF16,
     .threads = 256,
     .ctas = 1,
     .params = before_params,
     .nparams = sizeof before_params,
     .cubin = "\177ELF",
     .cubin_bytes = 4},
};
static const struct qn_rejected rejected[] = {
    {.name = "no_inline",
     .spec = "kernels/test.lua:1",
     .recipe = "blocks",
     .op = QUERN_FPROP,
     .ragged = QUERN_AXIS_M,
     .d_type = QUERN_BF16,
     .quantize = "mainloop",
     .reason = "no room next to the product"},
};
static const struct quern_registry registry = {.hash = "fuse",
                                               .recipes = recipes,
                                               .nrecipes = 4,
                                               .kernels = kernels,
                                               .nkernels = 3,
                                               .rejected = rejected,
                                               .nrejected = 1};

#define SIDES  "fprop blocks g=3 m=40 n=4096 k=1032"
#define INLINE SIDES " quantize=mainloop"
#define SHORT  "fprop blocks g=3 m=40 n=4096 k=1030 quantize=mainloop"

enum { ROOM = 1 << 17, B_ROOM = 1 << 24, PLACES = 13 };

/* A plan, and arguments that are right. */
struct fixture {
    struct quern_context *ctx;
    struct qn_plan *plan;
    struct qn_args args;
    char *memory, *b;
};

static struct fixture begin(const char *text)
{
    struct fixture f = {.ctx = test_open_with(&registry)};
    struct qn_problem p = test_problem(f.ctx, text);
    struct qn_description need;
    struct quern_plan_info info;

    test_expect(qn_plan(f.ctx, &p, &test_aot, &f.plan), QUERN_OK, "");
    test_expect(qn_problem_describe(f.ctx, &p, &need), QUERN_OK, "");
    qn_plan_info(f.plan, &info);
    assert_int_equal(info.workspace_bytes, need.workspace_bytes);
    f.memory = aligned_alloc(256, PLACES * ROOM);
    f.b = aligned_alloc(256, B_ROOM);
    assert_non_null(f.memory);
    assert_non_null(f.b);
    memset(f.memory, 0, PLACES * ROOM);
    assert_true(need.args.b.bytes <= B_ROOM);
    assert_true(need.args.d.bytes <= 4 * ROOM);
    f.args = need.args;
    f.args.a.data = f.memory;
    f.args.a.sf = f.memory + ROOM / 2;
    f.args.b.data = f.b;
    f.args.b.sf = f.b + B_ROOM - need.args.b.sf_bytes / 16 * 16 - 256;
    f.args.d.data = f.memory + 5 * ROOM;
    if (p.quantize) {
        f.args.in.data = f.memory + ROOM;
        f.args.column.data = f.memory + 9 * ROOM;
        f.args.column.sf = f.memory + 4 * ROOM;
    }
    f.args.a.first_dims = f.memory + 4 * ROOM + ROOM / 2;
    f.args.workspace = f.memory + 4 * ROOM + ROOM / 4 * 3;
    test_cuda->trailed = 8;
    return f;
}

static void end(struct fixture *f)
{
    qn_plan_free(f->plan);
    qn_close(f->ctx);
    free(f->memory);
    free(f->b);
}

static const char *chosen(const struct fixture *f)
{
    struct quern_plan_info info;

    qn_plan_info(f->plan, &info);
    return info.kernel;
}

/* A kernel that quantizes serves problems that ask for that, and wins even if
   the model prefers another; with any the model chooses. */
TEST(chooses)
{
    static const struct {
        const char *text, *kernel;
    } rows[] = {
        {SIDES, "plain"},
        {SIDES " quantize=pass", "plain"},
        {SHORT, "plain"},
        {INLINE, "inline"},
        {"fprop blocks g=1 m=8192 n=64 k=4096", "plain"},
    };
    static const struct {
        const char *text, *kernel;
    } models[] = {
        {"fprop blocks g=1 m=67456 n=64 k=4096 quantize=auto", "inline"},
        {"fprop blocks g=1 m=8192 n=64 k=4096 quantize=auto", "plain"},
        {"fprop blocks g=1 m=8192 n=4096 k=4096 quantize=auto", "plain"},
        {"fprop blocks g=1 m=8192 n=4096 k=4096 quantize=mainloop", "inline"},
        {"fprop blocks g=1 m=8192 n=8192 k=4096 quantize=auto", "plain"},
    };
    struct quern_context *ctx = test_open_with(&registry);

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct qn_problem p = test_problem(ctx, rows[i].text);
        struct fixture f = {.ctx = ctx};

        test_expect(qn_plan(ctx, &p, &test_aot, &f.plan), QUERN_OK, "");
        assert_string_equal(chosen(&f), rows[i].kernel);
        qn_plan_free(f.plan);
    }
    for (size_t i = 0; i < sizeof models / sizeof models[0]; i++) {
        struct qn_problem p = test_problem(ctx, models[i].text);
        struct fixture f = {.ctx = ctx};

        test_expect(qn_plan(ctx, &p, &test_aot, &f.plan), QUERN_OK, "");
        assert_string_equal(chosen(&f), models[i].kernel);
        qn_plan_free(f.plan);
    }
    qn_close(ctx);
}

TEST(explains)
{
    struct quern_context *ctx = test_open_with(&registry);
    struct qn_problem p = test_problem(ctx, INLINE);
    char *why = NULL;

    test_expect(qn_why(ctx, &p, &test_aot, NULL, &why), QUERN_OK, "");
    assert_non_null(strstr(why, "> inline"));
    assert_non_null(strstr(why, "a is quantized in shared memory, next to"));
    assert_non_null(strstr(why, "cycles of a tile, 32 times for each row; a "
                                "separate launch for it would take "));
    assert_non_null(strstr(why, "no room next to the product"));
    quern_free(why);
    p = test_problem(ctx, SHORT);
    test_expect(qn_why(ctx, &p, &test_aot, NULL, &why), QUERN_OK, "");
    assert_non_null(strstr(why, "by a launch before the product's"));
    assert_non_null(strstr(why, "rows are read 16 bytes at a time: k % 8"));
    quern_free(why);
    p = test_problem(ctx, SIDES);
    test_expect(qn_why(ctx, &p, &test_aot, NULL, &why), QUERN_OK, "");
    assert_null(strstr(why, "quantized"));
    assert_null(strstr(why, "no room next to the product"));
    quern_free(why);
    qn_close(ctx);
}

/* T = (40 + 127 * 3) / 128 * 128 = 384; the cast has an error record of its
   own. */
TEST(describes)
{
    struct quern_context *ctx = test_open_with(&registry);
    struct qn_problem p = test_problem(ctx, INLINE);
    struct qn_description need;
    char text[256];

    test_expect(qn_problem_describe(ctx, &p, &need), QUERN_OK, "");
    assert_int_equal(need.args.in.type, QUERN_BF16);
    assert_int_equal(need.args.in.shape[0], 40);
    assert_int_equal(need.args.in.shape[1], 1032);
    assert_int_equal(need.args.in.alignment, 16);
    assert_int_equal(need.args.a.stride, 1040);
    assert_int_equal(need.args.column.shape[0], 1032);
    assert_int_equal(need.args.column.shape[1], 384);
    assert_int_equal(need.args.column.sf_bytes, 1032 * 3 * 4);
    assert_int_equal(need.workspace_bytes, 2 * 256);
    qn_problem_print(&p, text, sizeof text);
    assert_non_null(strstr(text, " quantize=mainloop"));
    p = test_problem(ctx, SIDES);
    test_expect(qn_problem_describe(ctx, &p, &need), QUERN_OK, "");
    assert_int_equal(need.args.in.ndim, 0);
    assert_int_equal(need.workspace_bytes, 256);
    qn_close(ctx);
}

/* The i-th parameter of a launch. */
static uint64_t value(int launch, int i)
{
    return test_cuda->trail[launch].params[i];
}

/* The address of the values that a launch reads. */
static struct fake_map map_of(int param)
{
    struct fake_map map;

    memcpy(&map, test_cuda->params[param], sizeof map);
    return map;
}

/* One launch, which reads values and writes D only; a columnwise tensor has
   a launch of its own, before it. */
TEST(quantizes_in_mainloop)
{
    struct fixture f = begin(INLINE);
    struct fake_map map;

    test_cuda->only = "inline";
    memset(test_cuda->param_sizes, 0, sizeof test_cuda->param_sizes);
    test_cuda->param_sizes[7] = 128;
    f.args.a.data = f.args.a.sf = NULL;
    f.args.column.data = NULL;
    test_fail_allocation(0);
    test_expect(qn_run(f.plan, &f.args, NULL), QUERN_OK, "");
    assert_int_equal(test_fail_allocation(0), 0);
    assert_int_equal(test_cuda->launches, 1);
    assert_string_equal(test_cuda->trail[0].kernel, "inline");
    map = map_of(7);
    assert_ptr_equal((void *)map.address, f.args.in.data);
    assert_int_equal(map.type, QN_CU_BFLOAT16);
    assert_int_equal(map.swizzle, QN_CU_SWIZZLE_128B);
    assert_int_equal(map.rank, 2);
    assert_int_equal(map.dims[0], 1032);
    assert_int_equal(map.dims[1], 40);
    assert_int_equal(map.strides[0], 2064);
    assert_int_equal(map.box[0], 64);
    assert_int_equal(map.box[1], 64);
    f.args.in.stride = 1048;
    f.args.in.bytes = (39 * 1048 + 1032) * 2;
    f.args.column.data = f.memory + 9 * ROOM;
    test_expect(qn_run(f.plan, &f.args, NULL), QUERN_OK, "");
    assert_int_equal(test_cuda->launches, 3);
    assert_string_equal(test_cuda->trail[1].kernel, "cast");
    assert_string_equal(test_cuda->trail[2].kernel, "inline");
    assert_int_equal(value(1, 0), (uintptr_t)f.args.in.data);
    assert_int_equal(value(1, 1), 0);
    assert_int_equal(value(1, 3), (uintptr_t)f.args.column.data);
    assert_int_equal(map_of(7).strides[0], 2096);
    end(&f);
}

#define BREAK(change, part)                                                    \
    TEST_BROKEN(f.args, good, change, qn_run(f.plan, &f.args, NULL), part)

/* Arguments of a run that quantizes A, by any kernel. */
static void refuses_numbers(struct fixture f, const char *kernel)
{
    const struct qn_args good = f.args;
    char rows[96];

    snprintf(rows, sizeof rows,
             "%s reads rows at multiples of 16 bytes, a multiple of 8", kernel);
    BREAK(f.args.in.data = f.memory + ROOM + 8, "input is 0x");
    BREAK((f.args.in.stride = 1036, f.args.in.bytes = ROOM), rows);
    BREAK(f.args.in.data = f.args.a.data, "overlap");
    BREAK(f.args.d.data = f.args.in.data, "overlap");
    BREAK(f.args.a.data = f.args.d.data, "overlap");
}

/* Room for A is checked if it is given. */
TEST(refuses_in_mainloop)
{
    struct fixture f = begin(INLINE);

    refuses_numbers(f, "inline");
    f.args.a.data = NULL;
    test_expect(qn_run(f.plan, &f.args, NULL), QUERN_OK, "");
    end(&f);
}

/* The table of such a plan says so. */
TEST(leaves_room_for_a_to_the_caller)
{
    static const char *const lines[] = {INLINE, SHORT};
    struct fixture f = begin(INLINE);
    struct quern_plan_options options = QUERN_PLAN_OPTIONS_INIT;

    options.backend = QUERN_BACKEND_AOT;
    for (int i = 0; i < 2; i++) { /* by one kernel, and by a cast before */
        const struct quern_operand *table;
        struct quern_plan *plan;
        int count, parts = 0;

        test_expect(quern_plan_create(f.ctx, lines[i], &options, &plan),
                    QUERN_OK, "");
        table = quern_plan_operands(plan, &count);
        for (int j = 0; j < count; j++)
            if (!strcmp(table[j].name, "a") || !strcmp(table[j].name, "a.sf")) {
                assert_int_equal(table[j].written, 1);
                assert_int_equal(table[j].optional, i == 0);
                parts++;
            }
        assert_int_equal(parts, 2);
        quern_plan_destroy(plan);
    }
    end(&f);
}

/* If no kernel quantizes: two launches with the same sizes and noop. */
TEST(casts_before)
{
    struct fixture f = begin(SHORT);
    int noop = 0;

    f.args.noop = &noop;
    test_expect(qn_run(f.plan, &f.args, NULL), QUERN_OK, "");
    assert_int_equal(test_cuda->launches, 2);
    assert_string_equal(test_cuda->trail[0].kernel, "cast");
    assert_string_equal(test_cuda->trail[1].kernel, "plain");
    assert_int_equal(value(0, 4), (uintptr_t)&noop);
    assert_int_equal(value(1, 3), (uintptr_t)&noop);
    end(&f);
}

/* Fewer rows than the plan's. */
TEST(fits)
{
    static const char *const texts[] = {INLINE, SHORT};

    for (int i = 0; i < 2; i++) {
        struct fixture f = begin(texts[i]);
        struct qn_problem p = test_problem(f.ctx, texts[i]);
        struct qn_description need;

        p.m = 9;
        test_expect(qn_problem_describe(f.ctx, &p, &need), QUERN_OK, "");
        f.args.a.shape[0] = 9;
        f.args.d.shape[0] = 9;
        f.args.in.shape[0] = 9;
        f.args.column.shape[1] = need.args.column.shape[1];
        test_expect(qn_run(f.plan, &f.args, NULL), QUERN_OK, "");
        end(&f);
    }
}

TEST(refuses)
{
    struct fixture f = begin(INLINE);
    const struct qn_args good = f.args;

    BREAK(f.args.column.data = f.args.a.data, "overlap");
    BREAK(f.args.column.data = f.args.in.data, "overlap");
    BREAK(f.args.column.data = f.args.d.data, "overlap");
    BREAK(f.args.column.sf = f.args.a.sf, "overlap");
    BREAK(f.args.a.sf = f.args.workspace, "overlap");
    BREAK(f.args.in.data = f.args.workspace, "overlap");
    f.args = good;
    test_expect(qn_run(f.plan, &f.args, NULL), QUERN_OK, "");
    end(&f);
}

/* Problems that no run could be of. */
TEST(refuses_problems)
{
    static const struct {
        const char *text, *part;
    } rows[] = {
        {"wgrad blocks g=3 m=64 n=64 k=40 quantize=mainloop",
         "quantize=mainloop: wgrad multiplies columnwise tensors"},
        {"fprop weights g=3 m=40 n=64 k=64 quantize=auto",
         "quantize=auto: recipe weights does not scale a"},
        {"fprop bf16 g=3 m=40 n=64 k=64 quantize=mainloop",
         "recipe bf16 does not scale a"},
        {"dgrad chance g=3 m=40 n=64 k=64 quantize=mainloop",
         "recipe chance needs a seed"},
        {"fprop memory g=3 m=40 n=64 k=64 quantize=mainloop",
         "recipe memory needs a history"},
        {SIDES " quantize=mainlop",
         "quantize=mainlop: pass, mainloop, auto is expected; did you "
         "mean "},
        {INLINE " quantize=auto", "quantize= is given twice"},
        {SIDES " quantize=streamed", "quantize=streamed was removed: write "
                                     "quantize=auto"},
    };
    const struct qn_plan_options lt = {.backend = QUERN_BACKEND_CUBLASLT};
    struct quern_context *ctx = test_open_with(&registry);
    struct quern_tune_result result;
    struct qn_problem p;
    struct qn_plan *plan;

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        test_expect(qn_problem_parse(ctx, rows[i].text, &p), QUERN_EINVAL,
                    rows[i].part);
    p = test_problem(ctx, INLINE);
    test_expect(qn_plan(ctx, &p, &lt, &plan), QUERN_ENOKERNEL,
                "the cublaslt backend quantizes nothing");
    test_expect(qn_tune(ctx, &p, NULL, &result), QUERN_EINVAL,
                "quantize=mainloop: the kernels to be measured");
    p.quantize = QUERN_QUANTIZE_AUTO + 1;
    test_expect(qn_plan(ctx, &p, &test_aot, &plan), QUERN_EINVAL,
                "quantize is 3: not one of the values");
    qn_close(ctx);
}
