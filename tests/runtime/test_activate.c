/* SPDX-License-Identifier: Apache-2.0 */
/* test_activate.c: products with a bias and an activation: which kernel serves
   one, a launch's parameters, and refused arguments. */
#include "test.h"

#include "base/context.h"
#include "product/plan.h"

#define P(name) QN_PARAM_##name

static const unsigned char params[] = {P(a_map),
                                       P(b_map),
                                       P(d_map),
                                       P(d_ragged_map),
                                       P(p_map),
                                       P(alpha),
                                       P(bias),
                                       P(probability),
                                       P(saved),
                                       P(limit),
                                       P(slope),
                                       P(shift),
                                       P(first_dims),
                                       P(groups),
                                       P(m),
                                       P(n),
                                       P(k),
                                       P(error),
                                       P(row_sf),
                                       P(column),
                                       P(column_stride),
                                       P(column_sf)};

#define KERNEL_OF(recipe_, symbol, epilogue_, activation_, interleave_)        \
    {                                                                          \
        .name = symbol, .spec = "kernels/activate.lua:1",                      \
        .template_path = "activate.cu", .key = "key_of_" symbol,               \
        .recipe = recipe_, .arch = "sm_90a", .op = QUERN_FPROP,                \
        .ragged = QUERN_AXIS_M, .epilogue = epilogue_,                         \
        .activation = activation_, .interleave = interleave_,                  \
        .a = {.type = QUERN_BF16, .box = {64, 32}},                            \
        .b = {.type = QUERN_BF16, .box = {64, 48}},                            \
        .d = {.type = QUERN_BF16, .box = {64, 16}}, .tile = {128, 128, 64},    \
        .cluster = {1, 1}, .schedule = "", .addend = "none", .threads = 128,   \
        .params = params, .nparams = sizeof params, .cubin = "\177ELF",        \
        .cubin_bytes = 4                                                       \
    }

#define KERNEL(symbol, epilogue_, activation_, interleave_)                    \
    KERNEL_OF("bf16", symbol, epilogue_, activation_, interleave_)

#define BLOCKS(rows_, order_)                                                  \
    {                                                                          \
        .type = QUERN_F32, .span = QN_SPAN_BLOCK, .rows = rows_, .k = 128,     \
        .order = order_, .pad_rows = 4, .pad_columns = 1                       \
    }

static const struct qn_recipe recipes[] = {
    {TEST_RECIPE("block", "1", QUERN_E4M3), .scaled = 1, .scale = "",
     .scaling = {BLOCKS(1, QN_ORDER_COLUMNS), BLOCKS(128, QN_ORDER_ROWS),
                 BLOCKS(1, QN_ORDER_COLUMNS)}},
};

static const struct qn_kernel kernels[] = {
    KERNEL("store", QN_STORE, NULL, 0),
    KERNEL("alpha", QN_ALPHA, NULL, 0),
    KERNEL("scale", QN_SCALE, NULL, 0),
    KERNEL("bias", QN_ACTIVATE, "none", 0),
    KERNEL("swiglu", QN_ACTIVATE, "swiglu", 0),
    KERNEL("swiglu32", QN_ACTIVATE, "swiglu", 32),
    KERNEL("square", QN_ACTIVATE, "squared_relu", 0),
    KERNEL_OF("block", "block", QN_ACTIVATE, "swiglu", 0),
    KERNEL_OF("block", "copies", QN_COPIES, "swiglu", 0),
};
static const struct qn_rejected rejected[] = {
    {.name = "swiglu1",
     .spec = "kernels/activate.lua:1",
     .recipe = "bf16",
     .op = QUERN_FPROP,
     .ragged = QUERN_AXIS_M,
     .epilogue = QN_ACTIVATE,
     .d_type = QUERN_BF16,
     .activation = "swiglu",
     .interleave = 1,
     .reason = "both operands would not be one thread's"},
};
static const struct quern_registry registry = {.hash = "activate",
                                               .recipes = recipes,
                                               .nrecipes = 1,
                                               .kernels = kernels,
                                               .nkernels = sizeof kernels /
                                                           sizeof *kernels,
                                               .rejected = rejected,
                                               .nrejected = 1};

#define SWIGLU                                                                 \
    "fprop bf16 g=3 m=40 n=64 k=32 bias=1 activation=swiglu prob=1 saved=1"

#define BLOCK                                                                  \
    "fprop block g=1 m=40 n=256 k=128 activation=swiglu prob=1 saved=1"
#define COPIES BLOCK " copies=both"

enum { ROOM = 1 << 15, PLACES = 14 };

/* A plan, and arguments that are right. */
struct fixture {
    struct quern_context *ctx;
    struct qn_plan *plan;
    struct qn_description need;
    struct qn_args args;
    char *memory;
};

static struct fixture begin(const char *text)
{
    struct fixture f = {.plan = NULL};
    struct qn_problem p;

    f.ctx = test_open_with(&registry);
    p = test_problem(f.ctx, text);
    test_expect(qn_plan(f.ctx, &p, &test_aot, &f.plan), QUERN_OK, "");
    test_expect(qn_problem_describe(f.ctx, &p, &f.need), QUERN_OK, "");
    f.memory = aligned_alloc(256, PLACES * ROOM);
    assert_non_null(f.memory);
    memset(f.memory, 0, PLACES * ROOM);
    f.args = f.need.args;
    f.args.a.data = f.memory;
    f.args.b.data = f.memory + ROOM;
    f.args.d.data = f.memory + 2 * ROOM;
    if (p.saved)
        f.args.p.data = f.memory + 3 * ROOM;
    if (p.bias)
        f.args.bias = (float *)(void *)(f.memory + 4 * ROOM);
    if (p.probability)
        f.args.probability = (float *)(void *)(f.memory + 5 * ROOM);
    f.args.a.first_dims = f.memory + 6 * ROOM;
    f.args.workspace = f.memory + 7 * ROOM;
    if (f.need.args.a.sf_bytes) {
        f.args.a.sf = f.memory + 8 * ROOM;
        f.args.b.sf = f.memory + 9 * ROOM;
    }
    if (p.copies)
        f.args.d.sf = f.memory + 10 * ROOM;
    if (p.copies & QUERN_COLUMNWISE) {
        f.args.t.data = f.memory + 11 * ROOM;
        f.args.t.sf = f.memory + 12 * ROOM;
    }
    for (size_t i = 0; i < sizeof params; i++)
        test_cuda->param_sizes[i] =
            params[i] <= P(b_sf_map)                      ? 128
            : params[i] >= P(groups) && params[i] <= P(k) ? 4
            : params[i] == P(limit) || params[i] == P(slope) ||
                    params[i] == P(shift)
                ? 4
                : 8;
    return f;
}

static void end(struct fixture *f)
{
    qn_plan_free(f->plan);
    qn_close(f->ctx);
    free(f->memory);
}

/* The last launch's value of a parameter. */
static void value_of(int param, void *out, size_t size)
{
    size_t i = 0;

    while (params[i] != param)
        i++;
    memcpy(out, test_cuda->params[i], size);
}

static const void *pointer(int param)
{
    const void *value;

    value_of(param, &value, sizeof value);
    return value;
}

static struct fake_map map_of(int param)
{
    struct fake_map map;

    value_of(param, &map, sizeof map);
    return map;
}

/* Each problem has kernels of its own; alternating operands are others. */
TEST(chooses)
{
    static const struct {
        const char *text, *kernel;
    } rows[] = {
        {"fprop bf16 g=3 m=40 n=64 k=32", "store"},
        {"fprop bf16 g=3 m=40 n=64 k=32 alpha=any", "alpha"},
        {"fprop bf16 g=3 m=40 n=64 k=32 alpha=any beta=1", "scale"},
        {"fprop bf16 g=3 m=40 n=64 k=32 alpha=any beta=any", "scale"},
        {"fprop bf16 g=3 m=40 n=64 k=32 bias=1", "bias"},
        {"fprop bf16 g=3 m=40 n=64 k=32 bias=1 alpha=any", "bias"},
        {SWIGLU, "swiglu"},
        {"fprop bf16 g=3 m=40 n=64 k=32 activation=swiglu interleave=32",
         "swiglu32"},
        {"fprop bf16 g=3 m=40 n=64 k=32 activation=squared_relu interleave=5",
         "square"},
        {BLOCK, "block"},
        {BLOCK " copies=rowwise", "copies"},
        {COPIES, "copies"},
    };

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct fixture f = begin(rows[i].text);
        struct quern_plan_info info;

        qn_plan_info(f.plan, &info);
        assert_string_equal(info.kernel, rows[i].kernel);
        end(&f);
    }
}

/* No kernel: the points that are none tell why, those of others do not. */
TEST(explains)
{
    struct quern_context *ctx = test_open_with(&registry);
    struct qn_problem p;
    struct qn_plan *plan;
    char *why = NULL;

    p = test_problem(ctx, "fprop bf16 g=3 m=40 n=64 k=32 activation=swiglu "
                          "interleave=1");
    test_expect(qn_plan(ctx, &p, &test_aot, &plan), QUERN_ENOKERNEL,
                "d=bf16 and bias and activation");
    test_expect(qn_why(ctx, &p, &test_aot, NULL, &why), QUERN_OK, "");
    assert_non_null(strstr(why, "both operands would not be one thread's"));
    quern_free(why);
    p.interleave = 2;
    test_expect(qn_why(ctx, &p, &test_aot, NULL, &why), QUERN_OK, "");
    assert_null(strstr(why, "both operands"));
    quern_free(why);
    qn_close(ctx);
}

/* D is half as wide as P, and both are stored in boxes of D. */
TEST(describes)
{
    struct fixture f = begin(SWIGLU);

    assert_int_equal(f.need.args.d.shape[1], 32);
    assert_int_equal(f.need.args.d.bytes, 40 * 32 * 2);
    assert_int_equal(f.need.args.p.ndim, 2);
    assert_int_equal(f.need.args.p.shape[0], 40);
    assert_int_equal(f.need.args.p.shape[1], 64);
    assert_int_equal(f.need.args.p.type, QUERN_BF16);
    assert_true(f.need.args.limit == 7 && f.need.args.shift == 1);
    end(&f);
    f = begin("fprop bf16 g=3 m=40 n=64 k=32 activation=squared_relu");
    assert_int_equal(f.need.args.d.shape[1], 64);
    assert_int_equal(f.need.args.p.ndim, 0);
    end(&f);
}

TEST(launches)
{
    struct fixture f = begin(SWIGLU);
    struct fake_map d, p;
    float slope;

    f.args.slope = 3;
    test_expect(qn_run(f.plan, &f.args, NULL), QUERN_OK, "");
    assert_ptr_equal(pointer(P(bias)), f.args.bias);
    assert_ptr_equal(pointer(P(probability)), f.args.probability);
    assert_ptr_equal(pointer(P(saved)), f.args.p.data);
    value_of(P(slope), &slope, sizeof slope);
    assert_true(slope == 3);
    d = map_of(P(d_map));
    p = map_of(P(p_map));
    assert_int_equal(d.dims[0], 32);
    assert_int_equal(p.dims[0], 64);
    assert_int_equal(p.strides[0], 64 * 2);
    assert_int_equal(p.box[0], 64);
    assert_ptr_equal((void *)(uintptr_t)p.address, f.args.p.data);
    f.args.p.data = NULL; /* not wanted, with any stride */
    test_expect(qn_run(f.plan, &f.args, NULL), QUERN_OK, "");
    assert_null(pointer(P(saved)));
    f.args.p.stride = 7;
    test_expect(qn_run(f.plan, &f.args, NULL), QUERN_OK, "");
    assert_int_equal(map_of(P(p_map)).strides[0], 64 * 2);
    f.args.p.data = f.memory + 3 * ROOM;
    f.args.p.stride = 72; /* rows apart */
    f.args.p.bytes = 40 * 72 * 2;
    test_expect(qn_run(f.plan, &f.args, NULL), QUERN_OK, "");
    p = map_of(P(p_map));
    assert_int_equal(p.strides[0], 72 * 2);
    end(&f);
}

/* One run of the fixture with a change, which must be refused. */
#define BREAK(change, part)                                                    \
    TEST_BROKEN(f.args, good, change, qn_run(f.plan, &f.args, NULL), part)

TEST(refuses_copies)
{
    struct fixture f = begin(COPIES);
    const struct qn_args good = f.args;

    BREAK(f.args.t.data = f.args.d.data, "overlaps");
    BREAK(f.args.d.sf = f.args.a.sf, "overlaps");
    BREAK(f.args.t.sf = f.args.p.data, "overlaps");
    end(&f);
}

TEST(refuses)
{
    struct fixture f = begin(SWIGLU);
    const struct qn_args good = f.args;

    BREAK(f.args.p.stride = 60, "pre.stride is 60: 0 (packed) or 64 to");
    BREAK(f.args.p.data = f.args.d.data, "overlap");
    BREAK(f.args.p.data = f.args.a.data, "overlap");
    BREAK(f.args.p.data = (void *)(uintptr_t)f.args.bias, "overlap");
    BREAK(f.args.d.data = (void *)(uintptr_t)f.args.probability, "overlap");
    f.args = good;
    test_expect(qn_run(f.plan, &f.args, NULL), QUERN_OK, "");
    end(&f);
}

/* Which cuBLASLt has none of. */
TEST(refuses_cublaslt)
{
    const struct qn_plan_options options = {.backend = QUERN_BACKEND_CUBLASLT};
    struct fixture f = begin(SWIGLU);
    struct qn_problem p = test_problem(f.ctx, SWIGLU);
    struct qn_plan *plan;

    test_expect(qn_plan(f.ctx, &p, &options, &plan), QUERN_ENOKERNEL,
                "multiplies and adds, the problem says bias=");
    end(&f);
}
