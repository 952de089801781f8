/* SPDX-License-Identifier: Apache-2.0 */
/* test_args.c: every form of operands and factors: a kernel's parameters, and
   refused contradictions. */
#include "test.h"

#include "base/context.h"
#include "choose/tensormap.h"
#include "device/driver.h"
#include "problem/geometry.h"
#include "product/plan.h"

/* Kernels of this file only, linked with code. */
#define P(name) QN_PARAM_##name

static const unsigned char wgrad_params[] = {P(a_map),
                                             P(a_ragged_map),
                                             P(b_map),
                                             P(b_ragged_map),
                                             P(d_map),
                                             P(d_pointer_map),
                                             P(c),
                                             P(d),
                                             P(c_pointers),
                                             P(d_pointers),
                                             P(c_stride),
                                             P(d_stride),
                                             P(c_group_stride),
                                             P(d_group_stride),
                                             P(alpha),
                                             P(beta),
                                             P(scalar_step),
                                             P(first_dims),
                                             P(offsets),
                                             P(sizes_bytes),
                                             P(ragged),
                                             P(a_major),
                                             P(b_major),
                                             P(groups),
                                             P(m),
                                             P(n),
                                             P(k),
                                             P(error)};

static const unsigned char plain_params[] = {P(a),
                                             P(b),
                                             P(d),
                                             P(a_pointers),
                                             P(b_pointers),
                                             P(a_stride),
                                             P(b_stride),
                                             P(d_stride),
                                             P(a_group_stride),
                                             P(b_group_stride),
                                             P(d_group_stride),
                                             P(first_dims),
                                             P(offsets),
                                             P(sizes_bytes),
                                             P(ragged),
                                             P(groups),
                                             P(m),
                                             P(n),
                                             P(k),
                                             P(error)};

static const unsigned char none_params[] = {P(a_map), P(b_map), P(d_map),
                                            P(groups)};

#define KERNEL(symbol, op_, ragged_, epilogue_, a_, b_, params_)               \
    {                                                                          \
        .name = symbol, .spec = "kernels/args.lua:1",                          \
        .template_path = "args.cu", .key = "key_of_" symbol, .recipe = "bf16", \
        .arch = "sm_90a", .op = op_, .ragged = ragged_, .epilogue = epilogue_, \
        .a = {.type = QUERN_BF16, .major = a_, .box = {64, 32}},               \
        .b = {.type = QUERN_BF16, .major = b_, .box = {64, 48}},               \
        .d = {.type = QUERN_F32, .box = {32, 16}}, .tile = {128, 128, 64},     \
        .cluster = {1, 1}, .schedule = "", .addend = "read", .threads = 128,   \
        .params = params_, .nparams = sizeof params_, .cubin = "\177ELF",      \
        .cubin_bytes = 4                                                       \
    }
#define WGRAD(symbol, epilogue)                                                \
    KERNEL(symbol, QUERN_WGRAD, QUERN_AXIS_K, epilogue, QUERN_MAJOR_MN,        \
           QUERN_MAJOR_MN, wgrad_params)

static const struct qn_kernel kernels[] = {
    WGRAD("w_store", QN_STORE),
    WGRAD("w_add", QN_ADD),
    WGRAD("w_scale", QN_SCALE),
    KERNEL("f_n", QUERN_FPROP, QUERN_AXIS_N, QN_STORE, QUERN_MAJOR_K,
           QUERN_MAJOR_MN, plain_params),
    KERNEL("f_none", QUERN_FPROP, QUERN_AXIS_NONE, QN_STORE, QUERN_MAJOR_K,
           QUERN_MAJOR_K, none_params),
};
static const struct quern_registry registry = {
    .hash = "args", .kernels = kernels, .nkernels = 5};

/* A fixture: a plan for a problem, and correct arguments. */
struct fixture {
    struct quern_context *ctx;
    struct qn_plan *plan;
    struct qn_args args;
    const struct qn_kernel *kernel;
    void *memory;
};

enum { ROOM = 1 << 16 }; /* bytes for each operand */

/* The address of operand `i` of a fixture; 4 is the workspace, 5 arrays. */
static void *place(const struct fixture *f, int i)
{
    return (char *)f->memory + i * ROOM;
}

/* How many bytes of a parameter a launch copies. */
static size_t size_of(int param)
{
    if (param <= P(b_sf_map))
        return 128;
    return param == P(scalar_step) || param == P(sizes_bytes) ||
                   (param >= P(ragged) && param <= P(k))
               ? 4
               : 8;
}

static void find_kernel(struct fixture *f)
{
    struct quern_plan_info info;

    qn_plan_info(f->plan, &info);
    for (int i = 0; i < registry.nkernels; i++)
        if (!strcmp(kernels[i].name, info.kernel))
            f->kernel = &kernels[i];
    assert_non_null(f->kernel);
    for (int i = 0; i < f->kernel->nparams; i++)
        test_cuda->param_sizes[i] = size_of(f->kernel->params[i]);
}

/* The kernel that AOT finds for the problem, or the one that is named. */
static struct fixture begin(const char *text, const char *kernel)
{
    const struct qn_plan_options options = {.backend = QUERN_BACKEND_AOT,
                                            .kernel = kernel};
    struct qn_description need;
    struct qn_problem problem;
    struct fixture f = {.kernel = NULL};

    f.ctx = test_open_with(&registry);
    problem = test_problem(f.ctx, text);
    test_expect(qn_plan(f.ctx, &problem, &options, &f.plan), QUERN_OK, "");
    test_expect(qn_problem_describe(f.ctx, &problem, &need), QUERN_OK, "");
    find_kernel(&f);
    f.memory = aligned_alloc(64, 6 * ROOM);
    assert_non_null(f.memory);
    memset(f.memory, 0, 6 * ROOM);
    f.args = need.args;
    f.args.a.data = place(&f, 0);
    f.args.b.data = place(&f, 1);
    f.args.d.data = place(&f, 3);
    if (problem.beta == QUERN_BETA_ANY)
        f.args.c.data = place(&f, 2);
    f.args.workspace = place(&f, 4);
    f.args.alpha = problem.alpha ? place(&f, 5) : NULL;
    f.args.beta = problem.beta == QUERN_BETA_ANY ? place(&f, 5) : NULL;
    if (problem.ragged == QUERN_AXIS_K)
        f.args.a.first_dims = place(&f, 5);
    if (problem.ragged == QUERN_AXIS_N)
        f.args.b.last_dims = place(&f, 5);
    return f;
}

static void end(struct fixture *f)
{
    qn_plan_free(f->plan);
    qn_close(f->ctx);
    free(f->memory);
}

/* The launch's value of a parameter; zeros if the kernel has none. */
static void value_of(const struct fixture *f, int param, void *out)
{
    memset(out, 0, size_of(param));
    for (int i = 0; i < f->kernel->nparams; i++)
        if (f->kernel->params[i] == param)
            memcpy(out, test_cuda->params[i], size_of(param));
}

static void *pointer(const struct fixture *f, int param)
{
    void *value;

    value_of(f, param, &value);
    return value;
}

static long long number(const struct fixture *f, int param)
{
    long long value = 0;
    int narrow;

    if (size_of(param) == 8) {
        value_of(f, param, &value);
        return value;
    }
    value_of(f, param, &narrow);
    return narrow;
}

static struct fake_map map_of(const struct fixture *f, int param)
{
    unsigned char bytes[128];
    struct fake_map map;

    value_of(f, param, bytes);
    memcpy(&map, bytes, sizeof map);
    return map;
}

static void run(struct fixture *f)
{
    test_expect(qn_run(f->plan, &f->args, NULL), QUERN_OK, "");
}

#define WGRAD_TEXT "wgrad bf16 g=3 m=64 n=24 k=100 d=f32"

/* Stored, added, scaled: the plainest kernel that does it. */
TEST(chooses_by_epilogue)
{
    static const struct {
        const char *text, *kernel;
    } rows[] = {{WGRAD_TEXT, "w_store"},
                {WGRAD_TEXT " beta=1", "w_add"},
                {WGRAD_TEXT " beta=any", "w_scale"},
                {WGRAD_TEXT " alpha=any", "w_scale"},
                {WGRAD_TEXT " alpha=any beta=1", "w_scale"},
                {WGRAD_TEXT " alpha=1 beta=0", "w_store"}};
    struct fixture f;

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        f = begin(rows[i].text, NULL);
        assert_string_equal(f.kernel->name, rows[i].kernel);
        end(&f);
    }
}

TEST(says_what_it_has)
{
    struct qn_problem p;
    struct qn_plan *plan;
    struct quern_context *ctx = test_open_with(&registry);

    p = test_problem(ctx, "wgrad bf16 g=3 m=64 n=24 k=100 d=bf16");
    test_expect(qn_plan(ctx, &p, NULL, &plan), QUERN_ENOKERNEL,
                "there are kernels for d=f32 and beta=1");
    p = test_problem(ctx, "fprop bf16 g=3 m=64 n=24 k=100 d=f32 ragged=none "
                          "beta=any");
    test_expect(qn_plan(ctx, &p, NULL, &plan), QUERN_ENOKERNEL,
                "there are kernels for d=f32 and beta=0");
    p = test_problem(ctx, "fprop bf16 g=3 m=64 n=24 k=104 d=f32 ragged=none "
                          "pointers=b");
    test_expect(qn_plan(ctx, &p, NULL, &plan), QUERN_ENOKERNEL,
                "f_none: takes b in one buffer, the problem says pointers=b");
    p = test_problem(ctx, "fprop bf16 g=3 m=64 n=24 k=104 d=f32 ragged=none "
                          "align=8");
    test_expect(qn_plan(ctx, &p, NULL, &plan), QUERN_ENOKERNEL,
                "f_none: TMA needs rows at multiples of 16 bytes, the problem "
                "promises align=8");
    qn_close(ctx);
}

/* A kernel that scales does all the rest with nulls. */
TEST(scales_with_nulls)
{
    struct fixture f = begin(WGRAD_TEXT, "w_scale");

    run(&f);
    assert_null(pointer(&f, P(alpha)));
    assert_null(pointer(&f, P(beta)));
    assert_null(pointer(&f, P(c)));
    assert_null(pointer(&f, P(c_pointers)));
    end(&f);
    f = begin(WGRAD_TEXT " beta=1", "w_scale");
    f.args.d.group_stride = 2048;
    f.args.d.stride = 32;
    f.args.d.bytes = ROOM;
    run(&f);
    assert_null(pointer(&f, P(beta)));
    assert_ptr_equal(pointer(&f, P(c)), f.args.d.data);
    assert_int_equal(number(&f, P(c_stride)), 32);
    assert_int_equal(number(&f, P(c_group_stride)), 2048);
    f.args.d.group_stride = 0;
    f.args.d.data = NULL;
    f.args.d.pointers = place(&f, 5);
    run(&f);
    assert_null(pointer(&f, P(c)));
    assert_ptr_equal(pointer(&f, P(c_pointers)), f.args.d.pointers);
    end(&f);
}

TEST(passes_factors)
{
    struct fixture f = begin(WGRAD_TEXT " alpha=any beta=any", NULL);

    f.args.c.stride = 28;
    f.args.c.bytes = ROOM;
    run(&f);
    assert_ptr_equal(pointer(&f, P(alpha)), f.args.alpha);
    assert_ptr_equal(pointer(&f, P(beta)), f.args.beta);
    assert_ptr_equal(pointer(&f, P(c)), f.args.c.data);
    assert_int_equal(number(&f, P(c_stride)), 28);
    assert_int_equal(number(&f, P(c_group_stride)), 28 * 64);
    assert_int_equal(number(&f, P(d_stride)), 24);
    assert_int_equal(number(&f, P(scalar_step)), 0);
    f.args.scalars = 1;
    run(&f);
    assert_int_equal(number(&f, P(scalar_step)), 0);
    f.args.scalars = 3;
    run(&f);
    assert_int_equal(number(&f, P(scalar_step)), 1);
    f.args.c = f.args.d; /* D itself */
    run(&f);
    assert_ptr_equal(pointer(&f, P(c)), f.args.d.data);
    end(&f);
}

/* A kernel that stores 64 columns of 16 bits at a time stores 128 codes, of
   half a byte, too. */
TEST(maps_of_codes)
{
    static const struct {
        int type, box, swizzle;
    } codes[] = {{QUERN_BF16, 64, QN_CU_SWIZZLE_128B},
                 {QUERN_E4M3, 128, QN_CU_SWIZZLE_128B},
                 {QUERN_E2M1, 64, QN_CU_SWIZZLE_64B}};
    const struct qn_operand d = {
        .type = QUERN_BF16, .box = {64, 16}, .swizzle = 128};

    for (size_t i = 0; i < sizeof codes / sizeof *codes; i++) {
        const struct qn_geometry g = {.role = QN_ROLE_D,
                                      .type = codes[i].type,
                                      .groups = 1,
                                      .rows = 300,
                                      .columns = 256,
                                      .pitch = 256};
        struct qn_map map;
        char why[100];

        assert_true(qn_tensormap_build(&g, &d, QN_MAP_PLAIN, 0, 0, &map, why,
                                       sizeof why));
        assert_int_equal(map.box[0], codes[i].box);
        assert_int_equal(map.box[1], 16);
        assert_int_equal(map.swizzle, codes[i].swizzle);
        assert_int_equal(map.dims[0], codes[i].type == QUERN_E2M1 ? 128 : 256);
    }
}

/* Ragged maps of A and B, one for the addresses of D. */
TEST(maps_ragged_k)
{
    struct fixture f = begin(WGRAD_TEXT, NULL);
    struct fake_map map;

    f.args.b.stride = 32;
    f.args.b.bytes = ROOM;
    f.args.d.data = NULL;
    f.args.d.pointers = place(&f, 5);
    f.args.d.stride = 40;
    run(&f);
    map = map_of(&f, P(a_ragged_map));
    assert_ptr_equal((void *)map.address, f.args.a.data);
    assert_int_equal(map.rank, 4);
    assert_int_equal(map.dims[0], 64);
    assert_int_equal(map.dims[1], 1 << 30);
    assert_int_equal(map.strides[0], 128);
    assert_int_equal(map.strides[1], ((uint64_t)1 << 34) - 128);
    assert_int_equal(map.strides[2], 128);
    assert_int_equal(map.box[1], 32);
    map = map_of(&f, P(b_ragged_map));
    assert_int_equal(map.dims[0], 24);
    assert_int_equal(map.strides[0], 64);
    assert_int_equal(map.box[1], 48);
    map = map_of(&f, P(b_map));
    assert_int_equal(map.rank, 2);
    assert_int_equal(map.dims[1], 100);
    map = map_of(&f, P(d_pointer_map));
    assert_ptr_equal((void *)map.address, f.args.workspace);
    assert_int_equal(map.rank, 4);
    assert_int_equal(map.dims[0], 24);
    assert_int_equal(map.dims[1], 64);
    assert_int_equal(map.dims[2], (uint64_t)1 << 31);
    assert_int_equal(map.dims[3], (uint64_t)1 << 29);
    assert_int_equal(map.strides[0], 160);
    assert_int_equal(map.strides[1], 16);
    assert_int_equal(map.strides[2], (uint64_t)1 << 35);
    assert_int_equal(map.box[1], 16);
    assert_int_equal(map.box[2], 1);
    assert_ptr_equal(pointer(&f, P(d_pointers)), f.args.d.pointers);
    assert_null(pointer(&f, P(d)));
    assert_ptr_equal(pointer(&f, P(first_dims)), f.args.a.first_dims);
    assert_int_equal(number(&f, P(ragged)), QUERN_AXIS_K);
    assert_int_equal(number(&f, P(a_major)), 1);
    assert_int_equal(number(&f, P(k)), 100);
    end(&f);
}

/* Matrices with room between them, or row by row in turns. */
TEST(maps_group_strides)
{
    struct fixture f =
        begin("fprop bf16 g=3 m=16 n=24 k=64 d=f32 ragged=none", NULL);
    struct fake_map map;

    run(&f);
    map = map_of(&f, P(b_map));
    assert_int_equal(map.rank, 3);
    assert_int_equal(map.dims[1], 24);
    assert_int_equal(map.dims[2], 3);
    assert_int_equal(map.strides[1], 24 * 128);
    f.args.b.group_stride = 2048;
    f.args.b.bytes = ROOM;
    f.args.a.group_stride = 64;
    f.args.a.stride = 3 * 64;
    run(&f);
    map = map_of(&f, P(b_map));
    assert_int_equal(map.strides[0], 128);
    assert_int_equal(map.strides[1], 4096);
    map = map_of(&f, P(a_map));
    assert_int_equal(map.strides[0], 384);
    assert_int_equal(map.strides[1], 128);
    assert_int_equal(map.dims[1], 16);
    end(&f);
}

/* Columns in groups: the sizes come from B, or from D, in last_dims. */
TEST(passes_ragged_n)
{
    struct fixture f =
        begin("fprop bf16 g=3 m=16 n=100 k=24 d=f32 ragged=n layout=nn", NULL);

    f.args.d.last_dims = f.args.b.last_dims;
    f.args.b.offsets = f.args.d.offsets = place(&f, 5);
    f.args.b.sizes_type = QUERN_I64;
    f.args.a.data = NULL;
    f.args.a.pointers = place(&f, 5);
    run(&f);
    assert_ptr_equal(pointer(&f, P(first_dims)), f.args.b.last_dims);
    assert_ptr_equal(pointer(&f, P(offsets)), f.args.b.offsets);
    assert_int_equal(number(&f, P(sizes_bytes)), 8);
    assert_ptr_equal(pointer(&f, P(a_pointers)), f.args.a.pointers);
    assert_int_equal(number(&f, P(a_group_stride)), 16 * 24);
    assert_int_equal(number(&f, P(b_group_stride)), 0);
    assert_int_equal(number(&f, P(b_stride)), 100);
    assert_int_equal(number(&f, P(d_stride)), 100);
    f.args.b.last_dims = f.args.b.offsets = NULL;
    f.args.d.sizes_type = QUERN_I32;
    run(&f);
    assert_ptr_equal(pointer(&f, P(first_dims)), f.args.d.last_dims);
    assert_int_equal(number(&f, P(sizes_bytes)), 4);
    end(&f);
}

/* --------------------------------------------------------------- refusals */

/* Each line changes arguments that are right. */
#define BREAK(change, part)                                                    \
    TEST_BROKEN(args, f.args, change, qn_run(f.plan, &args, NULL), part)

TEST(refuses_group_strides)
{
    struct fixture f = begin(WGRAD_TEXT, NULL);
    struct qn_args args;

    BREAK(args.d.group_stride = 1532, "matrices of 64 x 24 overlap");
    BREAK(args.d.group_stride = -1536, "matrices of 64 x 24 overlap");
    BREAK(args.d.group_stride = 20, "matrices of 64 x 24 overlap");
    BREAK((args.d.group_stride = 24, args.d.stride = 68),
          "matrices of 64 x 24 overlap");
    BREAK(args.d.group_stride = 1538, "d.group_stride is 1538 elements of f32: "
                                      "matrices must start at multiples");
    BREAK(args.d.group_stride = INT64_MAX / 2, "must start at multiples");
    assert_int_equal(test_cuda->launches, 0);
    end(&f);
}

TEST(refuses_scalars)
{
    struct fixture f = begin(WGRAD_TEXT " alpha=any beta=any", NULL);
    struct qn_args args;

    BREAK(args.scalars = 2, "scalars is 2: 0 or 1 (one for all groups) or 3");
    BREAK(args.scalars = -1, "scalars is -1");
    BREAK(args.c.stride = 20, "c.stride is 20");
    end(&f);
}

/* C is D, or it is not. */
TEST(refuses_overlap)
{
    struct fixture f = begin(WGRAD_TEXT " beta=any", NULL);
    struct qn_args args;

    BREAK((args.c = args.d, args.c.data = (char *)args.d.data + 96),
          "c overlaps d: C must be D itself");
    BREAK((args.c = args.d, args.c.stride = 28, args.c.bytes = ROOM),
          "c overlaps d");
    BREAK((args.c = args.d, args.c.group_stride = 1600, args.c.bytes = ROOM),
          "c overlaps d");
    BREAK((args.c = args.d, args.c.data = NULL, args.d.data = NULL,
           args.c.pointers = args.d.pointers = place(&f, 5),
           args.c.stride = 28),
          "c.pointers overlaps d.pointers");
    BREAK(args.workspace = args.c.data, "workspace overlaps c");
    BREAK(args.d.data = args.a.data, "d overlaps a");
    args = f.args;
    args.c = args.d;
    args.c.stride = 24; /* as packed rows have it */
    test_expect(qn_run(f.plan, &args, NULL), QUERN_OK, "");
    args.c.data = args.a.data; /* both are only read */
    test_expect(qn_run(f.plan, &args, NULL), QUERN_OK, "");
    end(&f);
}
