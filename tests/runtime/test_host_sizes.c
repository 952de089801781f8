/* SPDX-License-Identifier: Apache-2.0 */
/*
** test_host_sizes.c: groups' sizes that the host knows: how they travel, what
** is refused, and what a graph may keep.
**
** The fake driver executes the kernel that brings them, so that the workspace
** has what the product after it would read.
*/
#include "base/context.h"
#include "choose/values.h"
#include "device/cuda_api.h"
#include "product/plan.h"
#include "quantize/quantize_plan.h"
#include "test.h"

#define PROBLEM "fprop bf16 g=8 m=1000 n=512 k=256"
#define HOST    PROBLEM " sizes=host"
#define FIXED   PROBLEM " sizes=fixed"

static const int64_t lengths[8] = {100, 0, 1, 127, 0, 500, 272, 0};

static int32_t *place_of(const struct qn_args *args)
{
    return (int32_t *)(void *)((char *)args->workspace + 256);
}

static void expect_sizes(const int32_t *place, const int64_t *sizes, int count)
{
    for (int i = 0; i < count; i++)
        assert_int_equal(place[i], sizes ? sizes[i] : 0);
}

/* The arguments for sizes on the host. */
static struct qn_args host_args(struct quern_context *ctx, const char *text)
{
    struct qn_args args = test_args(ctx, text);

    free((void *)(uintptr_t)args.a.first_dims);
    args.a.first_dims = NULL;
    args.host_sizes = lengths;
    return args;
}

/* One of the linked kernels has no sizes: it is compiled if the caller lets
   the library choose. */
TEST(compile_with_linked_kernels)
{
    static struct qn_kernel kernels[] = {
        GPU_KERNEL("k_linked", "sm_90a", 128, 128, 1, 1, 1000)};
    const struct quern_registry linked = {
        .hash = "linked", .kernels = kernels, .nkernels = 1};
    struct quern_context *ctx;
    struct qn_problem p;
    struct qn_plan *plan;

    kernels[0].cubin = "\177ELF of linked";
    setenv("QUERN_CACHE", "", 1);
    ctx = test_open_with(&linked);
    p = test_problem(ctx, HOST);
    test_expect_choice(ctx, HOST, NULL, "k_linked", QUERN_BACKEND_AOT, 132);
    assert_int_equal(test_count("nvrtc compile k_sizes"), 1);
    test_expect(qn_plan(ctx, &p, &test_aot, &plan), QUERN_ENOKERNEL,
                "k_sizes: not linked into this program");
    qn_close(ctx);
    setenv("QUERN_NVRTC", "/nonexistent", 1);
    ctx = test_open_with(&linked);
    test_expect(qn_plan(ctx, &p, NULL, &plan), QUERN_EMISSING,
                "for k_sizes, which is not linked into this program");
    qn_close(ctx);
}

/* One small launch before the product's, and nothing else. */
TEST(travel_as_parameters)
{
    const struct qn_plan_options options = {.kernel = "k_large"};
    struct quern_context *ctx = test_open();
    struct qn_plan *plan = test_plan(ctx, HOST, &options);
    struct qn_args args = host_args(ctx, HOST);
    int stream;

    test_cuda->copies = 0;
    test_fail_allocation(0);
    test_expect(qn_run(plan, &args, &stream), QUERN_OK, "");
    assert_int_equal(test_fail_allocation(0), 0);
    assert_int_equal(test_cuda->launches, 2);
    assert_int_equal(test_cuda->copies, 0);
    assert_string_equal(test_cuda->trail[0].kernel, "k_sizes");
    assert_string_equal(test_cuda->trail[1].kernel, "k_large");
    assert_ptr_equal(test_cuda->trail[0].stream, &stream);
    assert_ptr_equal(test_cuda->trail[1].stream, &stream);
    expect_sizes(place_of(&args), lengths, 8);
    qn_plan_free(plan);
    test_args_free(&args);
    qn_close(ctx);
}

/* The product's sizes: int32, after the error record. */
TEST(are_read_from_the_workspace)
{
    const struct qn_plan_options options = {.kernel = "k_large"};
    struct quern_context *ctx = test_open();
    struct qn_plan *plan = test_plan(ctx, HOST, &options);
    struct qn_args args = host_args(ctx, HOST), device = args;
    void *seen;
    int bytes;

    test_cuda->param_sizes[4] = test_cuda->param_sizes[5] = 8;
    test_cuda->param_sizes[6] = 4;
    test_cuda->only = "k_large";
    test_expect(qn_run(plan, &args, NULL), QUERN_OK, "");
    memcpy(&seen, test_cuda->params[4], sizeof seen);
    memcpy(&bytes, test_cuda->params[6], sizeof bytes);
    assert_ptr_equal(seen, place_of(&args));
    assert_int_equal(bytes, 4);
    memcpy(&seen, test_cuda->params[5], sizeof seen);
    assert_null(seen);
    /* the same plan takes sizes on the device, with one launch */
    device.host_sizes = NULL;
    device.a.first_dims = lengths;
    device.a.sizes_type = QUERN_I64;
    test_cuda->launches = 0;
    test_expect(qn_run(plan, &device, NULL), QUERN_OK, "");
    assert_int_equal(test_cuda->launches, 1);
    memcpy(&seen, test_cuda->params[4], sizeof seen);
    assert_ptr_equal(seen, lengths);
    qn_plan_free(plan);
    test_args_free(&args);
    qn_close(ctx);
}

/* 512 sizes a launch. */
TEST(many_travel_in_turns)
{
    static const char text[] =
        "fprop bf16 g=1024 m=3000 n=512 k=256 sizes=host";
    static int64_t many[1024];
    struct quern_context *ctx = test_open();
    struct qn_plan *plan = test_plan(ctx, text, NULL);
    struct qn_args args = host_args(ctx, text);

    for (int i = 0; i < 1024; i++)
        many[i] = i % 7 % 5;
    args.host_sizes = many;
    test_expect(qn_run(plan, &args, NULL), QUERN_OK, "");
    assert_int_equal(test_cuda->launches, 3);
    expect_sizes(place_of(&args), many, 1024);
    qn_plan_free(plan);
    test_args_free(&args);
    qn_close(ctx);
}

/* The host reads them where they are. */
TEST(the_host_reads_them)
{
    const struct qn_plan_options options = {.backend = QUERN_BACKEND_HOST};
    struct quern_context *ctx = test_open();
    struct qn_plan *plan = test_plan(ctx, HOST, &options);
    struct qn_args args = host_args(ctx, HOST);

    test_expect(qn_run(plan, &args, NULL), QUERN_OK, "");
    assert_ptr_equal(test_host.first_dims, lengths);
    assert_null(test_host.offsets);
    assert_int_equal(test_host.sizes_bytes, 8);
    qn_plan_free(plan);
    test_args_free(&args);
    qn_close(ctx);
}

/* Nothing is launched where the host can see the invalid ones. */
TEST(refuses_bad_sizes_at_once)
{
    struct quern_context *ctx = test_open();
    struct qn_plan *plan = test_plan(ctx, HOST, NULL);
    struct qn_plan *device = test_plan(ctx, PROBLEM, NULL);
    struct qn_args good = host_args(ctx, HOST), args = good;
    int64_t bad[8] = {0};

    args.host_sizes = bad;
#define BAD_SIZE(group, size, part)                                            \
    memcpy(bad, lengths, sizeof bad);                                          \
    bad[group] = size;                                                         \
    test_expect(qn_run(plan, &args, NULL), QUERN_EINVAL, part)
    BAD_SIZE(3, -1, "host_sizes[3] is -1: a group's size must not be negative");
    BAD_SIZE(7, 1, "host_sizes[7] is 1: the groups pass m=1000");
    BAD_SIZE(0, 1001, "host_sizes[0] is 1001: the groups pass m=1000");
    BAD_SIZE(1, INT64_MAX,
             "host_sizes[1] is 9223372036854775807: the groups pass");
#undef BAD_SIZE
#define BREAK(plan_, change, part)                                             \
    TEST_BROKEN(args, good, change, qn_run(plan_, &args, NULL), part)
    BREAK(device, args.host_sizes = lengths, "the problem says sizes=device");
    BREAK(plan, args.host_sizes = args.d.data, "d overlaps host_sizes");
    /* fewer rows than the plan's are a bound, too */
    BREAK(plan, args.a.shape[0] = args.d.shape[0] = 999,
          "host_sizes[6] is 272: the groups pass m=999");
#undef BREAK
    assert_int_equal(test_cuda->launches, 0);
    qn_plan_free(plan);
    qn_plan_free(device);
    test_args_free(&good);
    qn_close(ctx);
}

TEST(graphs_keep_what_is_fixed)
{
    struct quern_context *ctx = test_open();
    struct qn_plan *plan = test_plan(ctx, HOST, NULL);
    struct qn_plan *fixed = test_plan(ctx, FIXED, NULL);
    struct qn_args args = host_args(ctx, HOST);

    test_cuda->capture_status = QN_CU_CAPTURE_ACTIVE;
    test_expect(qn_run(plan, &args, NULL), QUERN_ECAPTURE,
                "the stream captures a graph: host_sizes would be frozen into "
                "the graph; sizes=fixed in the problem");
    assert_int_equal(test_cuda->launches, 0);
    test_expect(qn_run(fixed, &args, NULL), QUERN_OK, "");
    assert_int_equal(test_cuda->launches, 2);
    /* sizes on the device are any graph's */
    args.a.first_dims = calloc(8, 4);
    args.host_sizes = NULL;
    test_expect(qn_run(plan, &args, NULL), QUERN_OK, "");
    test_cuda->capture_status = QN_CU_CAPTURE_NONE;
    qn_plan_free(plan);
    qn_plan_free(fixed);
    test_args_free(&args);
    qn_close(ctx);
}

/* A plan for sizes on the device has no room for others, nor their kernel. */
TEST(others_pay_nothing)
{
    struct quern_context *ctx = test_open();
    struct qn_problem p = test_problem(ctx, PROBLEM);
    struct qn_problem host = test_problem(ctx, HOST);
    struct qn_description need;
    struct qn_plan *plan;
    char line[256], *why;

    test_expect(qn_problem_describe(ctx, &p, &need), QUERN_OK, "");
    assert_int_equal(need.workspace_bytes, 256);
    plan = test_plan(ctx, PROBLEM, NULL);
    assert_int_equal(test_count("nvrtc compile k_sizes"), 0);
    qn_plan_free(plan);
    test_expect(qn_problem_describe(ctx, &host, &need), QUERN_OK, "");
    assert_int_equal(need.workspace_bytes, 512);
    plan = test_plan(ctx, HOST, NULL);
    assert_int_equal(test_count("nvrtc compile k_sizes"), 1);
    qn_plan_free(plan);
    qn_problem_print(&host, line, sizeof line);
    assert_string_equal(line, "fprop bf16 g=8 m=1000 n=512 k=256 d=bf16 "
                              "sizes=host");
    test_expect(qn_why(ctx, &host, NULL, NULL, &why), QUERN_OK, "");
    assert_non_null(strstr(why, "sizes from the host come with a launch of "
                                "their own, which no graph captures"));
    quern_free(why);
    qn_close(ctx);
}

TEST(refuses_bad_problems)
{
    struct quern_context *ctx = test_open();
    struct qn_description need;
    struct qn_problem p;

    test_expect(qn_problem_parse(ctx, PROBLEM " sizes=hots", &p), QUERN_EINVAL,
                "sizes=hots: device, host or fixed is expected");
    test_expect(qn_problem_parse(ctx, PROBLEM " ragged=none sizes=host", &p),
                QUERN_EINVAL, "sizes=host: no axis is ragged");
    p = test_problem(ctx, HOST);
    p.sizes = 3;
    test_expect(qn_problem_describe(ctx, &p, &need), QUERN_EINVAL,
                "sizes is 3: not one of the values");
    qn_close(ctx);
}

/* ------------------------------------------------------------------- casts */

#define CAST "quantize group of=dy g=3 m=200 k=96"

/* One launch before the others, whose sizes are where it put them. */
TEST(casts_take_them)
{
    static const int64_t good[3] = {130, 0, 70}, bad[3] = {130, 0, 71};
    static const char *const lines[] = {CAST " sizes=host",
                                        CAST " sizes=fixed"};
    _Alignas(256) static char memory[4][1 << 16];
    struct quern_context *ctx = test_open();

    for (int i = 0; i < 2; i++) {
        struct qn_quantize_description need;
        struct qn_quantize_args *args = &need.args;
        struct qn_quantize_plan *plan;
        struct qn_quantization q;
        char line[128];
        int32_t *place;

        test_expect(qn_quantize_parse(ctx, lines[i], &q), QUERN_OK, "");
        qn_quantize_print(&q, line, sizeof line);
        assert_non_null(strstr(line, i ? " sizes=fixed" : " sizes=host"));
        test_expect(qn_quantize_needs(ctx, &q, &need), QUERN_OK, "");
        test_expect(qn_quantize_plan(ctx, &q, NULL, &plan), QUERN_OK, "");
        args->in.data = memory[0];
        args->row.data = memory[1];
        args->row.sf = memory[2];
        args->column.data = NULL;
        args->workspace = memset(memory[3], 0, need.workspace_bytes);
        args->host_sizes = bad;
        test_expect(qn_quantize_run(plan, args, NULL), QUERN_EINVAL,
                    "host_sizes[2] is 71: the groups pass m=200");
        args->host_sizes = good;
        test_cuda->launches = 0;
        test_cuda->capture_status = QN_CU_CAPTURE_ACTIVE;
        test_expect(qn_quantize_run(plan, args, NULL),
                    i ? QUERN_OK : QUERN_ECAPTURE, i ? "" : "frozen");
        assert_int_equal(test_cuda->launches, i ? 3 : 0);
        test_cuda->capture_status = QN_CU_CAPTURE_NONE;
        test_cuda->launches = 0;
        test_cuda->only = "k_cast";
        test_cuda->param_sizes[9] = sizeof place;
        test_expect(qn_quantize_run(plan, args, NULL), QUERN_OK, "");
        assert_int_equal(test_cuda->launches, 3);
        assert_string_equal(test_cuda->trail[0].kernel, "k_sizes_group");
        assert_string_equal(test_cuda->trail[2].kernel, "k_cast");
        memcpy(&place, test_cuda->params[9], sizeof place);
        assert_true((char *)place >= memory[3] + 256 &&
                    (char *)(place + 3) <= memory[3] + need.workspace_bytes);
        expect_sizes(place, good, 3);
        qn_quantize_plan_free(plan);
    }
    test_cuda->param_sizes[9] = 0;
    qn_close(ctx);
}

TEST(casts_without_sizes_refuse_them)
{
    struct quern_context *ctx = test_open();
    struct qn_quantization q;

    test_expect(qn_quantize_parse(ctx, CAST " sizes=hot", &q), QUERN_EINVAL,
                "sizes=hot: device, host or fixed is expected");
    test_expect(qn_quantize_parse(
                    ctx, "quantize group of=w g=3 m=8 k=96 sizes=host", &q),
                QUERN_EINVAL, "sizes=host: no axis is ragged");
    qn_close(ctx);
}

/* ---------------------------------------------------------- merged products */

static const unsigned char params[] = {QN_PARAM_microbatch_count,
                                       QN_PARAM_microbatches, QN_PARAM_d_map,
                                       QN_PARAM_error};
#define MADE(symbol)                                                           \
    .name = symbol, .spec = "kernels/queue.lua:1",                             \
    .template_path = "queue.cu", .key = "key_of_" symbol, .recipe = "bf16",    \
    .cluster = {1, 1}, .schedule = "", .threads = 128
#define LINKED(symbol)                                                         \
    MADE(symbol), .arch = "sm_90a", .cubin = "cubin of " symbol ".cu",         \
                  .cubin_bytes = 24

static int host_calls; /* products that the host was given */

static void host_parts(void *const *values, int worker, int workers)
{
    (void)workers;
    if (!worker)
        host_calls += *(const int *)values[0];
}

static const struct qn_kernel kernels[] = {
    {LINKED("w_parts"), .op = QUERN_WGRAD, .ragged = QUERN_AXIS_K,
     .epilogue = QN_ADD,
     .a = {.type = QUERN_BF16, .major = QUERN_MAJOR_MN, .box = {64, 32}},
     .b = {.type = QUERN_BF16, .major = QUERN_MAJOR_MN, .box = {64, 32}},
     .d = {.type = QUERN_F32, .box = {32, 16}}, .tile = {128, 128, 64},
     .addend = "reduce", .microbatches = 8, .params = params,
     .nparams = sizeof params},
    {MADE("w_parts_host"), .arch = "host", .op = QUERN_WGRAD,
     .ragged = QUERN_AXIS_K, .epilogue = QN_ADD,
     .a = {.type = QUERN_BF16, .major = QUERN_MAJOR_MN},
     .b = {.type = QUERN_BF16, .major = QUERN_MAJOR_MN},
     .d = {.type = QUERN_F32}, .tile = {128, 128, 64}, .addend = "",
     .microbatches = 8, .params = params, .nparams = 1, .host = host_parts},
    {LINKED("k_sizes_linked"), .op = QN_SIZES, .input = QUERN_F32, .addend = "",
     .params = size_params, .nparams = sizeof size_params},
};
static const struct quern_registry registry = {
    .hash = "sizes", .kernels = kernels, .nkernels = 3};

/* Each product's own, side by side in the workspace of the first. */
TEST(merged_products_have_their_own)
{
    static const char text[] = "wgrad bf16 g=8 m=128 n=64 k=1000 d=f32 beta=1 "
                               "microbatches=3 sizes=host";
    static const int64_t other[8] = {1, 2, 3, 4, 5, 6, 7, 8};
    struct qn_microbatch microbatches[3];
    struct quern_context *ctx;
    struct quern_queue *queue;
    struct qn_plan *plan;
    struct qn_args args, device;
    int32_t *place;

    ctx = test_open_with(&registry);
    plan = test_plan(ctx, text, NULL);
    args = host_args(ctx, text);
    place = place_of(&args);
    device = args;
    device.host_sizes = NULL;
    device.a.first_dims = other;
    device.a.sizes_type = QUERN_I64;
    test_expect(quern_queue_create(ctx, 3, &queue), QUERN_OK, "");
    test_expect(qn_queue_put(queue, plan, &args, 0), QUERN_OK, "");
    test_expect(qn_queue_put(queue, plan, &device, 0), QUERN_OK, "");
    args.host_sizes = other;
    test_expect(qn_queue_put(queue, plan, &args, 0), QUERN_OK, "");
    memset(place, 0xff, 24 * sizeof *place);
    test_cuda->only = "w_parts";
    test_cuda->param_sizes[1] = sizeof microbatches;
    test_expect(quern_queue_flush(queue, 0, 0, NULL), QUERN_OK, "");
    assert_int_equal(test_cuda->launches, 2);
    expect_sizes(place, lengths, 8);
    expect_sizes(place + 8, NULL, 8);
    expect_sizes(place + 16, other, 8);
    memcpy(microbatches, test_cuda->params[1], sizeof microbatches);
    assert_ptr_equal(microbatches[0].first_dims, place);
    assert_ptr_equal(microbatches[1].first_dims, other);
    assert_int_equal(microbatches[1].sizes_bytes, 8);
    assert_ptr_equal(microbatches[2].first_dims, place + 16);
    assert_int_equal(microbatches[2].sizes_bytes, 4);
    quern_queue_destroy(queue);
    qn_plan_free(plan);
    test_args_free(&args);
    qn_close(ctx);
}

/* Sizes of the host's kernels cannot be set by a launch, nor the reverse. */
TEST(backends_do_not_merge)
{
    static const char text[] =
        "wgrad bf16 g=8 m=128 n=64 k=1000 d=f32 beta=1 microbatches=4";
    static const struct qn_plan_options host = {.backend = QUERN_BACKEND_HOST};
    struct quern_context *ctx = test_open_with(&registry);
    struct qn_plan *plans[] = {test_plan(ctx, text, NULL),
                               test_plan(ctx, text, &host)};
    struct qn_args args = test_args(ctx, text);
    struct quern_queue *queue;

    test_expect(quern_queue_create(ctx, 4, &queue), QUERN_OK, "");
    for (int first = 0; first < 2; first++) {
        host_calls = test_cuda->launches = 0;
        for (int i = 0; i < 4; i++)
            test_expect(
                qn_queue_put(queue, plans[i < 2 ? first : !first], &args, 0),
                QUERN_OK, "");
        test_expect(quern_queue_flush(queue, 0, 0, NULL), QUERN_OK, "");
        assert_int_equal(test_cuda->launches, 1);
        assert_int_equal(host_calls, 2);
    }
    quern_queue_destroy(queue);
    qn_plan_free(plans[0]);
    qn_plan_free(plans[1]);
    test_args_free(&args);
    qn_close(ctx);
}
