/* SPDX-License-Identifier: Apache-2.0 */
/* test_run.c: a launch's parameters, and refused arguments. */
#include "test.h"

#define PROBLEM "fprop bf16 g=8 m=1000 n=512 k=256"

static void expect_map(int param, const struct fake_map *expected)
{
    struct fake_map map;

    memcpy(&map, test_cuda->params[param], sizeof map);
    assert_int_equal(map.address, expected->address);
    assert_int_equal(map.rank, expected->rank);
    assert_int_equal(map.type, expected->type);
    assert_memory_equal(map.dims, expected->dims, sizeof map.dims);
    assert_memory_equal(map.strides, expected->strides, sizeof map.strides);
    assert_memory_equal(map.box, expected->box, sizeof map.box);
    for (int i = 0; i < map.rank; i++)
        assert_int_equal(map.element_strides[i], 1);
    assert_int_equal(map.interleave, 0);
    assert_int_equal(map.swizzle, 3);   /* 128 bytes */
    assert_int_equal(map.promotion, 3); /* 256 bytes */
    assert_int_equal(map.fill, 0);      /* zeros */
}

static int int_param(int i)
{
    int value;

    memcpy(&value, test_cuda->params[i], sizeof value);
    return value;
}

static void *pointer_param(int i)
{
    void *value;

    memcpy(&value, test_cuda->params[i], sizeof value);
    return value;
}

/* Sizes of gpu_params' values. */
static void keep_params(void)
{
    static const size_t sizes[] = {128, 128, 128, 128, 8, 8, 4, 4, 4, 4, 4, 8};

    memcpy(test_cuda->param_sizes, sizes, sizeof sizes);
}

#define BF16_MAP 9

static struct fake_map plain_map(const void *data, int rank, uint64_t d0,
                                 uint64_t d1, uint64_t pitch, uint32_t b0,
                                 uint32_t b1)
{
    return (struct fake_map){.address = (uintptr_t)data,
                             .rank = (uint8_t)rank,
                             .type = BF16_MAP,
                             .dims = {d0, d1, rank > 2 ? 8 : 0},
                             .strides = {pitch, rank > 2 ? d1 * pitch : 0},
                             .box = {b0, b1, rank > 2}};
}

static struct fake_map ragged_map(const void *data, uint64_t d0, uint64_t pitch,
                                  uint32_t b0, uint32_t b1)
{
    return (struct fake_map){
        .address = (uintptr_t)data,
        .rank = 4,
        .type = BF16_MAP,
        .dims = {d0, 1u << 30, 0x7fffffff, 0x7fffffff},
        .strides = {pitch, ((uint64_t)1 << 34) - pitch, pitch},
        .box = {b0, b1, 1, 1}};
}

TEST(passes_parameters)
{
    const struct qn_plan_options options = {.kernel = "k_large"};
    struct quern_context *ctx = test_open();
    struct qn_plan *plan = test_plan(ctx, PROBLEM, &options);
    struct qn_args args = test_args(ctx, PROBLEM);
    struct fake_map map;
    int stream;

    keep_params();
    test_cuda->encodes = 0;
    test_expect(qn_run(plan, &args, &stream), QUERN_OK, "");
    assert_int_equal(test_cuda->launches, 1);
    assert_int_equal(test_cuda->encodes, 0);
    assert_int_equal(test_cuda->replaces, 4);
    assert_ptr_equal(test_cuda->launch.stream, &stream);
    assert_int_equal(test_cuda->launch.grid[0], 132);
    assert_int_equal(test_cuda->launch.grid[1], 1);
    assert_int_equal(test_cuda->launch.block[0], 384);
    assert_int_equal(test_cuda->launch.block[2], 1);
    assert_int_equal(test_cuda->launch.shared_bytes, 200000);
    assert_int_equal(test_cuda->launch.nattributes, 0);
    assert_ptr_equal(test_cuda->launch_context, &test_cuda->primaries);
    map = plain_map(args.a.data, 2, 256, 1000, 512, 64, 128);
    expect_map(0, &map);
    map = plain_map(args.b.data, 3, 256, 512, 512, 64, 256);
    expect_map(1, &map);
    map = plain_map(args.d.data, 2, 512, 1000, 1024, 64, 16);
    expect_map(2, &map);
    map = ragged_map(args.d.data, 512, 1024, 64, 16);
    expect_map(3, &map);
    assert_ptr_equal(pointer_param(4), args.a.first_dims);
    assert_null(pointer_param(5));
    assert_int_equal(int_param(6), 4);
    assert_int_equal(int_param(7), 8);
    assert_int_equal(int_param(8), 1000);
    assert_int_equal(int_param(9), 512);
    assert_int_equal(int_param(10), 256);
    assert_ptr_equal(pointer_param(11), args.workspace);
    qn_plan_free(plan);
    test_args_free(&args);
    qn_close(ctx);
}

/* Rows with gaps take a map of their own; the plan's stays as it was. */
TEST(encodes_for_strides)
{
    const struct qn_plan_options options = {.kernel = "k_large"};
    struct quern_context *ctx = test_open();
    struct qn_plan *plan = test_plan(ctx, PROBLEM, &options);
    struct qn_args args = test_args(ctx, PROBLEM);
    struct qn_args wide = args;
    struct fake_map map;

    keep_params();
    wide.d.stride = 600;
    wide.d.bytes = 2 * (999 * 600 + 512);
    wide.d.data = aligned_alloc(64, 1200064);
    test_cuda->encodes = 0;
    test_expect(qn_run(plan, &wide, NULL), QUERN_OK, "");
    assert_int_equal(test_cuda->encodes, 2);
    map = plain_map(wide.d.data, 2, 512, 1000, 1200, 64, 16);
    expect_map(2, &map);
    map = ragged_map(wide.d.data, 512, 1200, 64, 16);
    expect_map(3, &map);
    test_expect(qn_run(plan, &args, NULL), QUERN_OK, "");
    assert_int_equal(test_cuda->encodes, 2);
    map = ragged_map(args.d.data, 512, 1024, 64, 16);
    expect_map(3, &map);
    free(wide.d.data);
    qn_plan_free(plan);
    test_args_free(&args);
    qn_close(ctx);
}

/* No token at all: sizes are still checked on the device. */
TEST(runs_without_rows)
{
    const char *text = "fprop bf16 g=8 m=0 n=512 k=256";
    const struct qn_plan_options options = {.kernel = "k_large"};
    struct quern_context *ctx = test_open();
    struct qn_plan *plan = test_plan(ctx, text, &options);
    struct qn_args args = test_args(ctx, text);
    struct qn_args empty = args;
    struct fake_map map = plain_map(args.workspace, 2, 256, 1, 512, 64, 128);

    keep_params();
    empty.a.data = empty.d.data = NULL;
    test_expect(qn_run(plan, &empty, NULL), QUERN_OK, "");
    assert_int_equal(test_cuda->launches, 1);
    expect_map(0, &map);
    assert_int_equal(int_param(8), 0);
    qn_plan_free(plan);
    test_args_free(&args);
    qn_close(ctx);
}

TEST(refuses_bad_arguments)
{
    const struct qn_plan_options options = {.kernel = "k_large"};
    struct quern_context *ctx = test_open();
    struct qn_plan *plan = test_plan(ctx, PROBLEM, &options);
    struct qn_args good = test_args(ctx, PROBLEM);
    struct qn_args args;
    char *a = good.a.data;

#define BREAK(change, part)                                                    \
    TEST_BROKEN(args, good, change, qn_run(plan, &args, NULL), part)
    BREAK(args.a.stride = 255, "a.stride is 255: 0 (packed) or 256");
    BREAK(args.a.stride = -1, "a.stride is -1");
    BREAK(args.a.stride = 260, "must start at multiples of 16 bytes");
    BREAK(args.a.stride = INT64_MAX, "a.stride is 9223372036854775807");
    BREAK(args.a.data = args.d.data, "d overlaps a"); /* d is the longer one */
    BREAK(args.d.data = (char *)args.b.data + 1024, "d overlaps b");
    BREAK(args.workspace = args.d.data, "workspace overlaps d");
    BREAK(args.workspace = a, "workspace overlaps a");
#undef BREAK
    assert_int_equal(test_cuda->launches, 0);
    qn_plan_free(plan);
    test_args_free(&good);
    qn_close(ctx);
}

/* A run may come from a thread with another context, or with none. */
TEST(runs_in_the_plans_context)
{
    struct quern_context *ctx = test_open();
    struct qn_args args = test_args(ctx, PROBLEM);
    struct qn_plan *plan;
    int mine, other;

    test_cuda->current = &mine;
    plan = test_plan(ctx, PROBLEM, NULL);
    test_cuda->current = &other;
    test_expect(qn_run(plan, &args, NULL), QUERN_OK, "");
    assert_ptr_equal(test_cuda->launch_context, &mine);
    assert_int_equal(test_cuda->depth, 0);
    test_cuda->current = NULL;
    test_expect(qn_run(plan, &args, NULL), QUERN_OK, "");
    assert_ptr_equal(test_cuda->launch_context, &mine);
    assert_int_equal(test_cuda->depth, 0);
    qn_plan_free(plan);
    test_args_free(&args);
    qn_close(ctx);
}

/* Captures are the caller's business: a run does not check. */
TEST(runs_allocate_nothing)
{
    struct quern_context *ctx = test_open();
    struct qn_plan *plan = test_plan(ctx, PROBLEM, NULL);
    struct qn_args args = test_args(ctx, PROBLEM);

    test_cuda->capture_status = QN_CU_CAPTURE_ACTIVE;
    test_cuda->calls = 0;
    test_fail_allocation(0);
    test_expect(qn_run(plan, &args, NULL), QUERN_OK, "");
    assert_int_equal(test_fail_allocation(0), 0);
    /* context, push, four addresses, launch, pop */
    assert_in_range(test_cuda->calls, 1, 8);
    qn_plan_free(plan);
    test_args_free(&args);
    qn_close(ctx);
}
