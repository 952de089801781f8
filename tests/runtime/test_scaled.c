/* SPDX-License-Identifier: Apache-2.0 */
/* test_scaled.c: products of quantized copies: what a caller must provide, a
   kernel's parameters, and refused contradictions. */
#include "test.h"

#include "base/context.h"
#include "device/cuda_api.h"
#include "product/plan.h"

#define P(name) QN_PARAM_##name

/* ------------------------------------------------------------ the registry */

#define FP32(span_, rows_, k_, order_, pad_rows_, pad_columns_)                \
    {                                                                          \
        .type = QUERN_F32, .span = span_, .rows = rows_, .k = k_,              \
        .order = order_, .pad_rows = pad_rows_, .pad_columns = pad_columns_    \
    }
#define TILES_OF(k_)                                                           \
    {                                                                          \
        .type = QUERN_E8M0, .span = QN_SPAN_BLOCK, .rows = 1, .k = k_,         \
        .order = QN_ORDER_TILES, .pad_rows = 128, .pad_columns = 4, .apart = 1 \
    }
#define TILES TILES_OF(32)
#define LONG  TILES_OF(128)
#define TWO_LEVELS                                                             \
    {                                                                          \
        .type = QUERN_E4M3, .span = QN_SPAN_BLOCK, .rows = 1, .k = 16,         \
        .order = QN_ORDER_ROWS, .pad_rows = 1, .pad_columns = 1, .global = 1   \
    }
#define MN      FP32(QN_SPAN_BLOCK, 1, 128, QN_ORDER_COLUMNS, 4, 1)
#define ROWS4   FP32(QN_SPAN_BLOCK, 128, 128, QN_ORDER_ROWS, 1, 4)
#define ROW     FP32(QN_SPAN_ROW, 0, 0, QN_ORDER_ROWS, 1, 1)
#define GROUP   FP32(QN_SPAN_GROUP, 0, 0, QN_ORDER_ROWS, 1, 1)
#define SQUARES FP32(QN_SPAN_BLOCK, 32, 32, QN_ORDER_COLUMNS, 4, 1)
#define LOOSE   FP32(QN_SPAN_BLOCK, 1, 128, QN_ORDER_COLUMNS, 1, 1)
#define NONE                                                                   \
    {                                                                          \
        .type = QUERN_TYPE_NONE                                                \
    }

static const struct qn_recipe recipes[] = {
    {TEST_E4M3("blocks", QUERN_BF16), .scaling = {MN, ROWS4, MN}},
    {TEST_E4M3("columns", QUERN_BF16), .scaling = {MN, MN, MN}},
    {TEST_SCALED("four", QUERN_E2M1, QUERN_E2M1, QUERN_E2M1, 1u << QUERN_BF16,
                 QUERN_BF16),
     .scaling = {TWO_LEVELS, TWO_LEVELS, TWO_LEVELS}},
    {TEST_E4M3("groups", QUERN_BF16), .scaling = {GROUP, GROUP, GROUP}},
    {TEST_E4M3("half", QUERN_BF16), .scaling = {MN, MN, NONE}},
    {TEST_E4M3("long", QUERN_BF16), .scaling = {LONG, LONG, LONG}},
    {TEST_E4M3("loose", QUERN_BF16), .scaling = {LOOSE, LOOSE, LOOSE}},
    {TEST_E4M3("rows", QUERN_BF16), .scaling = {ROW, ROW, ROW}},
    {TEST_E4M3("squares", QUERN_BF16), .scaling = {SQUARES, SQUARES, SQUARES}},
    {TEST_E4M3("tiles", QUERN_BF16), .scaling = {TILES, TILES, TILES}},
};

#define OF_SCALES                                                              \
    P(a_sf), P(b_sf), P(a_global), P(b_global), P(a_sf_stride),                \
        P(b_sf_stride), P(a_sf_group_stride), P(b_sf_group_stride),            \
        P(first_dims), P(groups), P(m), P(k)
static const unsigned char params[] = {P(a_map), P(b_map), P(a_sf_map),
                                       P(b_sf_map), OF_SCALES};
/* The same without maps of scales. */
static const unsigned char plain_params[] = {P(a), P(b), P(a_stride),
                                             P(b_stride), OF_SCALES};

#define KERNEL(recipe_, op_, ragged_, params_)                                 \
    {                                                                          \
        .name = "k_" recipe_ "_" #op_, .spec = "kernels/test.lua:1",           \
        .template_path = "test.cu", .key = "key", .recipe = recipe_,           \
        .arch = "sm_90a", .op = op_, .ragged = ragged_, .epilogue = QN_STORE,  \
        .a = {.type = QUERN_E4M3, .box = {128, 64}, .sf_box = {64, 1}},        \
        .b = {.type = QUERN_E4M3, .box = {128, 48}, .sf_box = {48, 2}},        \
        .d = {.type = QUERN_BF16}, .tile = {128, 128, 128}, .cluster = {1, 1}, \
        .schedule = "", .addend = "none", .threads = 128, .params = params_,   \
        .nparams = sizeof params_, .cubin = "\177ELF", .cubin_bytes = 4        \
    }
#define KERNELS(recipe, params)                                                \
    KERNEL(recipe, QUERN_FPROP, QUERN_AXIS_M, params),                         \
        KERNEL(recipe, QUERN_DGRAD, QUERN_AXIS_M, params),                     \
        KERNEL(recipe, QUERN_WGRAD, QUERN_AXIS_K, params)

static const struct qn_kernel kernels[] = {
    KERNELS("blocks", plain_params), KERNELS("columns", params),
    KERNELS("four", plain_params),   KERNELS("groups", plain_params),
    KERNELS("long", plain_params),   KERNELS("loose", params),
    KERNELS("rows", plain_params),   KERNELS("squares", plain_params),
    KERNELS("tiles", plain_params)};

static const struct quern_registry registry = {
    .hash = "scaled",
    .recipes = recipes,
    .nrecipes = sizeof recipes / sizeof recipes[0],
    .kernels = kernels,
    .nkernels = sizeof kernels / sizeof kernels[0]};

/* ---------------------------------------------------------------- describe */

/* Bytes of padded rows and of scales, by hand from the layouts' definitions. */
TEST(describes_copies)
{
    static const struct {
        const char *text;
        struct {
            int ndim;
            int64_t shape[3], stride;
            size_t bytes, sf, global;
        } a, b;
    } rows[] = {
        /* rows of 130 padded to 144; [2][100] and 4 x [2][4] scales */
        {"fprop blocks g=4 m=100 n=200 k=130",
         {2, {100, 130}, 144, 14400, 800, 0},
         {3, {4, 200, 130}, 144, 115200, 128, 0}},
        /* the columnwise tensor of w: features of x by those of y */
        {"dgrad blocks g=4 m=99 n=300 k=130",
         {2, {99, 130}, 144, 99 * 144, 800, 0},
         {3, {4, 300, 130}, 144, 172800, 4 * 3 * 4 * 4, 0}},
        /* (100 + 127 * 4) / 128 = 4 runs of tokens */
        {"wgrad blocks g=4 m=202 n=72 k=100",
         {2, {202, 512}, 0, 202 * 512, 4 * 204 * 4, 0},
         {2, {72, 512}, 0, 72 * 512, 4 * 72 * 4, 0}},
        /* two values in a byte, a scale for 16, one more for each group */
        {"fprop four g=4 m=10 n=8 k=33",
         {2, {10, 33}, 64, 320, 30, 16},
         {3, {4, 8, 33}, 64, 1024, 96, 16}},
        {"wgrad four g=2 m=10 n=8 k=3",
         {2, {10, 256}, 0, 1280, 160, 8},
         {2, {8, 256}, 0, 1024, 128, 8}},
        /* of rows, and of features of each group */
        {"fprop rows g=4 m=10 n=8 k=16",
         {2, {10, 16}, 0, 160, 40, 0},
         {3, {4, 8, 16}, 0, 512, 128, 0}},
        {"wgrad rows g=4 m=10 n=8 k=16",
         {2, {10, 512}, 0, 5120, 160, 0},
         {2, {8, 512}, 0, 4096, 128, 0}},
        {"dgrad groups g=4 m=10 n=8 k=16",
         {2, {10, 16}, 0, 160, 16, 0},
         {3, {4, 8, 16}, 0, 512, 16, 0}},
        /* 5 scales to 8; each group's rows to 128 */
        {"fprop tiles g=4 m=10 n=8 k=160",
         {2, {10, 160}, 0, 1600, 4 * 128 * 8, 0},
         {3, {4, 8, 160}, 0, 5120, 4 * 128 * 8, 0}},
        /* one scale for 128 tokens, to 4; each group's begin with its own */
        {"wgrad long g=4 m=8 n=200 k=160",
         {2, {8, 640}, 0, 5120, 128 * 5 * 4, 0},
         {2, {200, 640}, 0, 128000, 256 * 5 * 4, 0}},
        /* 4 runs of rows have 4 rows of scales each, for any m */
        {"fprop squares g=4 m=99 n=70 k=130",
         {2, {99, 130}, 144, 99 * 144, 16 * 5 * 4, 0},
         {3, {4, 70, 130}, 144, 4 * 70 * 144, 4 * 4 * 5 * 4, 0}},
    };
    struct quern_context *ctx = test_open_with(&registry);

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct qn_problem p = test_problem(ctx, rows[i].text);
        struct qn_description need;

        test_expect(qn_problem_describe(ctx, &p, &need), QUERN_OK, "");
#define SAME(x)                                                                \
    assert_int_equal(need.args.x.ndim, rows[i].x.ndim);                        \
    assert_memory_equal(need.args.x.shape, rows[i].x.shape,                    \
                        (size_t)rows[i].x.ndim * sizeof(int64_t));             \
    assert_int_equal(need.args.x.stride, rows[i].x.stride);                    \
    assert_int_equal(need.args.x.bytes, rows[i].x.bytes);                      \
    assert_int_equal(need.args.x.sf_bytes, rows[i].x.sf);                      \
    assert_int_equal(need.args.x.global_bytes, rows[i].x.global);              \
    assert_int_equal(need.args.x.alignment, 16)
        SAME(a);
        SAME(b);
#undef SAME
    }
    qn_close(ctx);
}

/* Copies are k-major for each product, unless told otherwise as for others. */
TEST(refuses_problems)
{
    static const struct {
        const char *text, *says;
    } rows[] = {
        {"dgrad blocks g=4 m=100 n=200 k=130 layout=nn",
         "layout=nn: dgrad reads quantized"},
        {"wgrad blocks g=4 m=100 n=200 k=130 layout=nt",
         "recipe blocks as layout=tn"},
        {"fprop rows g=4 m=100 n=200 k=130 ragged=n", "ragged=m is expected"},
        {"wgrad rows g=4 m=100 n=200 k=130 ragged=none", "ragged=k is"},
        {"fprop rows g=4 m=100 n=200 k=130 pointers=b",
         "pointers=b: quantized tensors have all groups in one buffer"},
        {"wgrad half g=4 m=100 n=200 k=130", "scales one of x and dy"},
    };
    struct quern_context *ctx = test_open_with(&registry);
    struct qn_problem p;

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        test_expect(qn_problem_parse(ctx, rows[i].text, &p), QUERN_EINVAL,
                    rows[i].says);
    p = test_problem(ctx, "dgrad blocks g=4 m=100 n=200 k=130");
    assert_int_equal(p.b_major, QUERN_MAJOR_K);
    p = test_problem(ctx, "wgrad blocks g=4 m=100 n=200 k=130");
    assert_int_equal(p.a_major, QUERN_MAJOR_K);
    /* unquantized operands are laid out as rowwise tensors and may have gaps */
    p = test_problem(ctx, "dgrad half g=4 m=100 n=200 k=130");
    assert_int_equal(p.b_major, QUERN_MAJOR_K);
    qn_close(ctx);
}

/* --------------------------------------------------------------------- run */

enum { ROOM = 1 << 18 };

struct fixture {
    struct quern_context *ctx;
    struct qn_plan *plan;
    struct qn_args args;
    const unsigned char *params;
    char *memory;
};

/* A part of the memory: 0..2 A, 3..5 B: values, scales, second scales. */
static void *place(const struct fixture *f, int i)
{
    return f->memory + i * ROOM;
}

static int size_of(int param)
{
    if (param == P(a_map) || param == P(b_map) || param == P(a_sf_map) ||
        param == P(b_sf_map))
        return 128;
    return param == P(groups) || param == P(m) || param == P(k) ? 4 : 8;
}

static struct fixture begin(const char *text, const unsigned char *list)
{
    const struct qn_plan_options options = {.backend = QUERN_BACKEND_AOT};
    struct fixture f = {.ctx = test_open_with(&registry), .params = list};
    struct qn_description need;
    struct qn_problem p = test_problem(f.ctx, text);
    struct qn_tensor *ab[] = {&f.args.a, &f.args.b};

    test_expect(qn_plan(f.ctx, &p, &options, &f.plan), QUERN_OK, "");
    test_expect(qn_problem_describe(f.ctx, &p, &need), QUERN_OK, "");
    for (int i = 0; i < 16; i++)
        test_cuda->param_sizes[i] = (size_t)size_of(list[i]);
    f.memory = aligned_alloc(64, 9 * ROOM);
    assert_non_null(f.memory);
    memset(f.memory, 0, 9 * ROOM);
    f.args = need.args;
    for (int i = 0; i < 2; i++) {
        ab[i]->data = place(&f, 3 * i);
        ab[i]->sf = place(&f, 3 * i + 1);
        ab[i]->global = ab[i]->global_bytes ? place(&f, 3 * i + 2) : NULL;
    }
    f.args.d.data = place(&f, 6);
    f.args.workspace = place(&f, 7);
    if (p.op == QUERN_WGRAD)
        f.args.a.last_dims = place(&f, 8);
    else
        f.args.a.first_dims = place(&f, 8);
    return f;
}

static void end(struct fixture *f)
{
    qn_plan_free(f->plan);
    qn_close(f->ctx);
    free(f->memory);
}

/* The launch's value of a parameter. */
static void *value_of(const struct fixture *f, int param)
{
    for (int i = 0; i < 16; i++)
        if (f->params[i] == param)
            return test_cuda->params[i];
    fail_msg("the kernel has no parameter %d", param);
    return NULL;
}

static long long number(const struct fixture *f, int param)
{
    long long value;

    memcpy(&value, value_of(f, param), sizeof value);
    return value;
}

TEST(passes_strides)
{
    static const struct {
        const char *text;
        long long a, a_group, b, b_group;
    } rows[] = {
        {"fprop blocks g=4 m=99 n=200 k=130", 100, 0, 4, 8},
        {"dgrad blocks g=4 m=99 n=300 k=130", 100, 0, 4, 12},
        {"wgrad blocks g=4 m=202 n=72 k=100", 204, 0, 72, 0},
        {"fprop four g=4 m=10 n=8 k=33", 3, 0, 3, 24},
        {"wgrad four g=2 m=10 n=8 k=3", 16, 0, 16, 0},
        {"fprop rows g=4 m=10 n=8 k=16", 1, 0, 1, 8},
        {"wgrad rows g=4 m=10 n=8 k=16", 1, 10, 1, 8},
        {"fprop groups g=4 m=10 n=8 k=16", 0, 1, 0, 1},
        {"fprop tiles g=4 m=10 n=8 k=160", 1024, 0, 1024, 1024},
        {"wgrad tiles g=4 m=10 n=8 k=160", 0, 0, 0, 0},
        {"fprop squares g=4 m=99 n=70 k=130", 16, 0, 4, 20},
    };

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct fixture f = begin(rows[i].text, plain_params);

        test_expect(qn_run(f.plan, &f.args, NULL), QUERN_OK, "");
        assert_int_equal(number(&f, P(a_sf_stride)), rows[i].a);
        assert_int_equal(number(&f, P(a_sf_group_stride)), rows[i].a_group);
        assert_int_equal(number(&f, P(b_sf_stride)), rows[i].b);
        assert_int_equal(number(&f, P(b_sf_group_stride)), rows[i].b_group);
        assert_ptr_equal((void *)number(&f, P(a_sf)), place(&f, 1));
        assert_ptr_equal((void *)number(&f, P(b_sf)), place(&f, 4));
        assert_ptr_equal((void *)number(&f, P(a_global)), f.args.a.global);
        assert_ptr_equal((void *)number(&f, P(b_global)), f.args.b.global);
        assert_int_equal(number(&f, P(a_stride)),
                         f.args.a.stride ? f.args.a.stride : f.args.a.shape[1]);
        end(&f);
    }
}

static struct fake_map map_of(const struct fixture *f, int param)
{
    struct fake_map map;

    memcpy(&map, value_of(f, param), sizeof map);
    return map;
}

/* [lines, rows]: the scales that one TMA copy loads are adjacent. */
TEST(maps_scales)
{
    struct fixture f = begin("fprop columns g=4 m=99 n=70 k=300", params);
    struct fake_map map;

    test_expect(qn_run(f.plan, &f.args, NULL), QUERN_OK, "");
    map = map_of(&f, P(a_sf_map));
    assert_ptr_equal((void *)map.address, f.args.a.sf);
    assert_int_equal(map.type, QN_CU_FLOAT32);
    assert_int_equal(map.swizzle, QN_CU_SWIZZLE_NONE);
    assert_int_equal(map.rank, 2);
    assert_int_equal(map.dims[0], 100);
    assert_int_equal(map.dims[1], 3);
    assert_int_equal(map.strides[0], 400);
    assert_int_equal(map.box[0], 64);
    assert_int_equal(map.box[1], 1);
    map = map_of(&f, P(b_sf_map));
    assert_ptr_equal((void *)map.address, f.args.b.sf);
    assert_int_equal(map.dims[0], 72);
    assert_int_equal(map.dims[1], 12); /* blocks of all groups */
    assert_int_equal(map.strides[0], 288);
    assert_int_equal(map.box[0], 48);
    assert_int_equal(map.box[1], 2);
    map = map_of(&f, P(a_map));
    assert_ptr_equal((void *)map.address, f.args.a.data);
    assert_int_equal(map.dims[0], 300);
    assert_int_equal(map.strides[0], 304);
    end(&f);
    f = begin("wgrad columns g=4 m=99 n=70 k=300", params);
    test_expect(qn_run(f.plan, &f.args, NULL), QUERN_OK, "");
    map = map_of(&f, P(a_sf_map));
    assert_int_equal(map.dims[0], 100);
    assert_int_equal(map.dims[1], 6); /* (300 + 127 * 4) / 128 */
    map = map_of(&f, P(b_map));
    assert_int_equal(map.rank, 2);
    assert_int_equal(map.dims[0], 768);
    assert_int_equal(map.dims[1], 70);
    end(&f);
}

TEST(refuses_maps)
{
    struct quern_context *ctx = test_open_with(&registry);
    const struct qn_plan_options options = {.backend = QUERN_BACKEND_AOT};
    struct qn_problem p;
    struct qn_plan *plan;

    p = test_problem(ctx, "fprop loose g=4 m=99 n=72 k=300");
    test_expect(qn_plan(ctx, &p, &options, &plan), QUERN_ENOKERNEL,
                "A has no tensor map: columns of scales must start at "
                "multiples of 16 bytes");
    p = test_problem(ctx, "fprop loose g=4 m=100 n=72 k=300");
    test_expect(qn_plan(ctx, &p, &options, &plan), QUERN_OK, "");
    qn_plan_free(plan);
    qn_close(ctx);
}

/* Scales are memory of their own. */
TEST(refuses_overlap)
{
    struct fixture f = begin("fprop four g=4 m=100 n=200 k=130", plain_params);
    void *const d = f.args.d.data;

    f.args.d.data = f.args.a.sf;
    test_expect(qn_run(f.plan, &f.args, NULL), QUERN_EINVAL, "d overlaps a.sf");
    f.args.d.data = f.args.b.global;
    test_expect(qn_run(f.plan, &f.args, NULL), QUERN_EINVAL,
                "d overlaps b.global");
    f.args.d.data = d;
    test_expect(qn_run(f.plan, &f.args, NULL), QUERN_OK, "");
    end(&f);
}

/* No rows, no scales: nothing to point at. */
TEST(takes_nothing)
{
    struct fixture f = begin("fprop columns g=4 m=0 n=72 k=300", params);

    f.args.a.data = f.args.a.sf = NULL;
    test_expect(qn_run(f.plan, &f.args, NULL), QUERN_OK, "");
    assert_int_equal(map_of(&f, P(a_sf_map)).dims[0], 4);
    end(&f);
}

/* ------------------------------------------------------------------- infer */

static struct quern_shape shape(int64_t first, int64_t second, int64_t third,
                                int sum)
{
    struct quern_shape s = {.type = QUERN_E4M3,
                            .ndim = third ? 3 : 2,
                            .shape = {first, second, third}};

    s.sum_begin = sum;
    s.sum_end = sum + 1;
    return s;
}

/* Copies as a front end has them: a columnwise tensor's columns bound the
   tokens. */
TEST(infers)
{
    struct quern_context *ctx = test_open_with(&registry);
    struct qn_contraction c = {.recipe = "blocks", .groups = 4};
    struct qn_problem p;

    c.a = shape(100, 130, 0, 1);
    c.a.first_dims = 1;
    c.b = shape(4, 200, 130, 2);
    test_expect(qn_infer(ctx, &c, &p), QUERN_OK, "");
    assert_int_equal(p.op, QUERN_FPROP);
    assert_int_equal(p.n, 200);
    c.a = shape(200, 512, 0, 1);
    c.b = shape(72, 512, 0, 1);
    c.a.last_dims = c.b.last_dims = 1;
    test_expect(qn_infer(ctx, &c, &p), QUERN_OK, "");
    assert_int_equal(p.op, QUERN_WGRAD);
    assert_int_equal((p.k + 127 * 4) / 128 * 128, 512);
    assert_int_equal((p.k + 1 + 127 * 4) / 128 * 128, 640);
    c.a.shape[1] = c.b.shape[1] = 500;
    test_expect(
        qn_infer(ctx, &c, &p), QUERN_EINVAL,
        "a sums 500 columns: a columnwise tensor of k tokens in 4 groups "
        "has (k + 127 * 4) / 128 * 128 of them");
    c.a.shape[1] = c.b.shape[1] = 128;
    test_expect(qn_infer(ctx, &c, &p), QUERN_EINVAL, "a sums 128 columns");
    qn_close(ctx);
}
