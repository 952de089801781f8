/* SPDX-License-Identifier: Apache-2.0 */
/*
** test_queue.c: the wgrad queue: refusals, and the order of launches.
**
** Host kernels of the tests note their last call only, so the order shows in
** single flushes. Values are the host tests' (tests/host/queue.c).
*/
#include "test.h"

#include <pthread.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

#define PROBLEM     "wgrad mixed g=3 m=16 n=24 k=100 beta=1"
#define FIRST       "wgrad mixed g=3 m=16 n=24 k=100"
#define PROBLEM_ANY "wgrad mixed g=3 m=16 n=24 k=100 beta=any"
#define NARROWER    "wgrad mixed g=3 m=16 n=16 k=100 beta=1"

static const struct qn_plan_options host = {.backend = QUERN_BACKEND_HOST};

/* A queue of four with plans that overwrite, accumulate, and differ. */
struct bench {
    struct quern_context *ctx;
    struct qn_plan *first, *plan, *narrower;
    struct qn_args args, other, narrow;
    struct quern_queue *queue;
};

/* Room after D, so that the tests decide the overlaps. */
static struct qn_args roomy_args(struct quern_context *ctx, const char *text)
{
    struct qn_args args = test_args(ctx, text);

    free(args.d.data);
    args.d.data = aligned_alloc(64, 16384);
    assert_non_null(args.d.data);
    return args;
}

static struct bench set_up(void)
{
    struct bench b = {.ctx = test_open()};

    b.first = test_plan(b.ctx, FIRST, &host);
    b.plan = test_plan(b.ctx, PROBLEM, &host);
    b.narrower = test_plan(b.ctx, NARROWER, &host);
    b.args = roomy_args(b.ctx, PROBLEM);
    b.other = roomy_args(b.ctx, PROBLEM);
    b.narrow = roomy_args(b.ctx, NARROWER);
    test_expect(quern_queue_create(b.ctx, 4, &b.queue), QUERN_OK, "");
    return b;
}

static void tear_down(struct bench *b)
{
    quern_queue_destroy(b->queue);
    qn_plan_free(b->first);
    qn_plan_free(b->plan);
    qn_plan_free(b->narrower);
    test_args_free(&b->args);
    test_args_free(&b->other);
    test_args_free(&b->narrow);
    qn_close(b->ctx);
}

TEST(refuses_bad_queues)
{
    struct quern_context *ctx = test_open();
    struct quern_queue *queue;

    test_expect(quern_queue_create(NULL, 1, &queue), QUERN_EINVAL,
                "ctx is NULL");
    test_expect(quern_queue_create(ctx, 1, NULL), QUERN_EINVAL,
                "queue is NULL");
    test_expect(quern_queue_create(ctx, 0, &queue), QUERN_EINVAL,
                "capacity is 0: 1 to 65536");
    assert_null(queue);
    test_expect(quern_queue_create(ctx, 65537, &queue), QUERN_EINVAL,
                "capacity is");
    for (int i = 1; i <= 2; i++) {
        test_fail_allocation(i);
        test_expect(quern_queue_create(ctx, 4, &queue), QUERN_ENOMEM, "");
        assert_null(queue);
    }
    quern_queue_destroy(NULL);
    assert_int_equal(quern_queue_count(NULL, 0), 0);
    qn_close(ctx);
}

/* Nothing is launched before the flush, and nothing allocated at all. */
TEST(launches_when_flushed)
{
    struct bench b = set_up();
    int before = test_host.calls;

    test_fail_allocation(0);
    test_expect(qn_queue_put(b.queue, b.plan, &b.args, 4), QUERN_OK, "");
    test_expect(qn_queue_put(b.queue, b.plan, &b.other, 7), QUERN_OK, "");
    assert_int_equal(test_host.calls, before);
    assert_int_equal(quern_queue_count(b.queue, 4), 1);
    assert_int_equal(quern_queue_count(b.queue, QUERN_ALL_LAYERS), 2);
    test_expect(quern_queue_flush(b.queue, 7, 0, NULL), QUERN_OK, "");
    assert_int_equal(test_host.calls, before + 1);
    assert_ptr_equal(test_host.d, b.other.d.data);
    assert_int_equal(quern_queue_count(b.queue, 7), 0);
    test_expect(quern_queue_flush(b.queue, QUERN_ALL_LAYERS, 0, NULL), QUERN_OK,
                "");
    assert_int_equal(test_host.calls, before + 2);
    assert_ptr_equal(test_host.d, b.args.d.data);
    assert_int_equal(test_fail_allocation(0), 0);
    tear_down(&b);
}

/* The oldest first, in any layer or in one. */
TEST(flushes_some)
{
    struct bench b = set_up();

    for (int i = 0; i < 3; i++)
        test_expect(
            qn_queue_put(b.queue, b.plan, i == 1 ? &b.other : &b.args, i / 2),
            QUERN_OK, "");
    test_expect(quern_queue_flush(b.queue, QUERN_ALL_LAYERS, 1, NULL), QUERN_OK,
                "");
    assert_ptr_equal(test_host.d, b.args.d.data);
    test_expect(quern_queue_flush(b.queue, 1, 5, NULL), QUERN_OK, "");
    assert_ptr_equal(test_host.d, b.args.d.data);
    assert_int_equal(quern_queue_count(b.queue, QUERN_ALL_LAYERS), 1);
    test_expect(quern_queue_flush(b.queue, 0, 1, NULL), QUERN_OK, "");
    assert_ptr_equal(test_host.d, b.other.d.data);
    /* all of nothing is nothing; a layer flushed twice is a mistake */
    test_expect(quern_queue_flush(b.queue, QUERN_ALL_LAYERS, 0, NULL), QUERN_OK,
                "");
    test_expect(quern_queue_flush(b.queue, 0, 0, NULL), QUERN_EINVAL,
                "layer 0 has no pending work: it was flushed already");
    tear_down(&b);
}

TEST(refuses_bad_calls)
{
    struct bench b = set_up();
    struct qn_plan *fprop =
        test_plan(b.ctx, "fprop bf16 g=8 m=1000 n=512 k=256", &host);
    struct qn_args args = b.args;

    test_expect(qn_queue_put(b.queue, b.plan, &args, -1), QUERN_EINVAL,
                "layer is -1");
    test_expect(qn_queue_put(b.queue, fprop, &args, 0), QUERN_EINVAL,
                "plan: its op is fprop");
    test_expect(quern_queue_flush(NULL, 0, 0, NULL), QUERN_EINVAL,
                "queue is NULL");
    test_expect(quern_queue_flush(b.queue, -2, 0, NULL), QUERN_EINVAL,
                "layer is -2");
    test_expect(quern_queue_flush(b.queue, 0, -1, NULL), QUERN_EINVAL,
                "most is -1");
    assert_int_equal(quern_queue_count(b.queue, QUERN_ALL_LAYERS), 0);
    qn_plan_free(fprop);
    tear_down(&b);
}

TEST(is_full)
{
    struct bench b = set_up();

    for (int i = 0; i < 4; i++)
        test_expect(qn_queue_put(b.queue, b.plan, &b.args, 0), QUERN_OK, "");
    test_expect(qn_queue_put(b.queue, b.plan, &b.args, 0), QUERN_EFULL,
                "queue: it is full with 4 products");
    assert_int_equal(quern_queue_count(b.queue, 0), 4);
    test_expect(quern_queue_drop(b.queue, 1), QUERN_EINVAL,
                "layer 1 has no pending");
    test_expect(quern_queue_drop(b.queue, 0), QUERN_OK, "");
    assert_int_equal(quern_queue_count(b.queue, 0), 0);
    test_expect(quern_queue_drop(b.queue, QUERN_ALL_LAYERS), QUERN_OK, "");
    test_expect(qn_queue_put(b.queue, b.plan, &b.args, 0), QUERN_OK, "");
    tear_down(&b);
}

/* How two products use each other's tensors. */
TEST(refuses_conflicts)
{
    struct bench b = set_up();
    struct qn_args args = b.other;
    struct qn_plan *any;
    const float one = 1;

    test_expect(qn_queue_put(b.queue, b.first, &b.args, 0), QUERN_OK, "");
    test_expect(qn_queue_put(b.queue, b.first, &b.args, 0), QUERN_EINVAL,
                "would overwrite");
    test_expect(qn_queue_put(b.queue, b.plan, &b.args, 0), QUERN_OK, "");
    args = b.narrow;
    args.d.data = b.args.d.data;
    test_expect(qn_queue_put(b.queue, b.narrower, &args, 0), QUERN_EINVAL,
                "d.shape is [3, 16, 16]: pending products for these matrices "
                "have [3, 16, 24]");
    args = b.other;
    args.d.data = b.args.d.data;
    args.d.stride = 28;
    args.d.bytes += 4 * 4 * 48;
    test_expect(qn_queue_put(b.queue, b.plan, &args, 0), QUERN_EINVAL,
                "d.stride or d.group_stride differs");
    args = b.other;
    args.d.data = (char *)b.args.d.data + 64;
    test_expect(qn_queue_put(b.queue, b.plan, &args, 5), QUERN_EINVAL,
                "d overlaps d of a product that waits for layer 0");
    args = b.other;
    args.a.data = (char *)b.args.d.data + 8192;
    test_expect(qn_queue_put(b.queue, b.plan, &args, 5), QUERN_OK, "");
    args = b.narrow;
    args.d.data = (char *)b.args.d.data + 8192;
    test_expect(qn_queue_put(b.queue, b.narrower, &args, 6), QUERN_EINVAL,
                "d overlaps a of a product that waits for layer 5");
    test_expect(quern_queue_drop(b.queue, 5), QUERN_OK, "");
    args = b.other;
    args.b.data = b.args.d.data;
    test_expect(qn_queue_put(b.queue, b.plan, &args, 5), QUERN_EINVAL,
                "b overlaps d of a product that waits for layer 0");
    any = test_plan(b.ctx, PROBLEM_ANY, &host);
    args = b.other;
    args.d.data = (char *)b.args.d.data + 8192;
    args.beta = &one;
    args.c = args.d;
    args.c.data = b.args.d.data;
    test_expect(qn_queue_put(b.queue, any, &args, 5), QUERN_EINVAL,
                "c overlaps d of a product that waits for layer 0");
    qn_plan_free(any);
    /* read-only operands may be shared */
    args = b.other;
    args.a.data = b.args.a.data;
    test_expect(qn_queue_put(b.queue, b.plan, &args, 5), QUERN_OK, "");
    tear_down(&b);
}

/* Two that wait are one launch, which a child must not make either. */
TEST(child_flushes_nothing)
{
    struct bench b = set_up();
    pid_t child;
    int status;

    for (int i = 0; i < 2; i++)
        test_expect(qn_queue_put(b.queue, b.plan, &b.args, 0), QUERN_OK, "");
    fflush(NULL);
    child = fork();
    if (child == 0)
        _exit(quern_queue_flush(b.queue, 0, 0, NULL) != QUERN_EINVAL ||
              !strstr(quern_errmsg(), "was made before fork()"));
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    tear_down(&b);
}

/* Microbatches of fewer tokens than the plan's. */
TEST(takes_fewer_tokens)
{
    struct bench b = set_up();
    struct qn_args args = b.args;

    args.a.shape[0] = args.b.shape[0] = 60;
    test_expect(qn_queue_put(b.queue, b.plan, &args, 0), QUERN_OK, "");
    test_expect(quern_queue_flush(b.queue, 0, 0, NULL), QUERN_OK, "");
    assert_int_equal(test_host.k, 60);
    tear_down(&b);
}

static const unsigned char params[] = {QN_PARAM_a_map, QN_PARAM_b_map,
                                       QN_PARAM_d_map, QN_PARAM_first_dims,
                                       QN_PARAM_k,     QN_PARAM_error};
static const unsigned char sum_params[] = {QN_PARAM_dbias, QN_PARAM_dbias_add};
#define SUMS(symbol)                                                           \
    .name = symbol, .spec = "kernels/queue.lua:2", .template_path = "sums.cu", \
    .key = "key_of_" symbol, .recipe = "bf16", .arch = "sm_90a", .of = QN_DY,  \
    .form = QN_PLAIN, .tile = {1, 1, 1}, .cluster = {1, 1}, .schedule = "",    \
    .addend = "", .threads = 128, .ctas = 1, .params = sum_params,             \
    .nparams = sizeof sum_params, .cubin = "cubin of " symbol ".cu",           \
    .cubin_bytes = 16
static const struct qn_kernel kernels[] = {
    {.name = "w_add",
     .spec = "kernels/queue.lua:1",
     .template_path = "queue.cu",
     .key = "key_of_w_add",
     .recipe = "bf16",
     .arch = "sm_90a",
     .op = QUERN_WGRAD,
     .ragged = QUERN_AXIS_K,
     .epilogue = QN_ADD,
     .a = {.type = QUERN_BF16, .major = QUERN_MAJOR_MN, .box = {64, 32}},
     .b = {.type = QUERN_BF16, .major = QUERN_MAJOR_MN, .box = {64, 32}},
     .d = {.type = QUERN_F32, .box = {32, 16}},
     .tile = {128, 128, 64},
     .cluster = {1, 1},
     .schedule = "",
     .addend = "reduce",
     .threads = 128,
     .params = params,
     .nparams = sizeof params,
     .cubin = "cubin of w_add.cu",
     .cubin_bytes = 16},
    {SUMS("n_cast"), .op = QN_QUANTIZE, .input = QUERN_BF16},
    {SUMS("n_sum"), .op = QN_SUM, .input = QUERN_F32},
};
static const struct quern_registry registry = {
    .hash = "queue", .kernels = kernels, .nkernels = 3};

/* A launch that fails leaves its product, and those after it. */
TEST(keeps_what_failed)
{
    struct quern_context *ctx = test_open_with(&registry);
    struct qn_plan *plan;
    struct qn_args args;
    struct quern_queue *queue;

    plan = test_plan(ctx, "wgrad bf16 g=3 m=128 n=64 k=100 d=f32 beta=1", NULL);
    args = test_args(ctx, "wgrad bf16 g=3 m=128 n=64 k=100 d=f32 beta=1");
    test_expect(quern_queue_create(ctx, 4, &queue), QUERN_OK, "");
    for (int i = 0; i < 3; i++)
        test_expect(qn_queue_put(queue, plan, &args, 0), QUERN_OK, "");
    test_expect(quern_queue_flush(queue, 0, 1, NULL), QUERN_OK, "");
    test_cuda->calls = 0;
    test_cuda->fail_at = 3;
    test_cuda->fail_code = 719;
    test_expect(quern_queue_flush(queue, 0, 0, NULL), QUERN_ECUDA, "");
    assert_int_equal(quern_queue_count(queue, 0), 2);
    test_cuda->fail_at = 0;
    test_expect(quern_queue_flush(queue, 0, 0, NULL), QUERN_OK, "");
    assert_int_equal(test_cuda->launches, 3);
    quern_queue_destroy(queue);
    qn_plan_free(plan);
    test_args_free(&args);
    qn_close(ctx);
}

static struct qn_quantize_plan *sums_plan(struct quern_context *ctx,
                                          const char *text,
                                          struct qn_quantize_description *need)
{
    struct qn_quantization q;
    struct qn_quantize_plan *plan;

    test_expect(qn_quantize_parse(ctx, text, &q), QUERN_OK, "");
    test_expect(qn_quantize_needs(ctx, &q, need), QUERN_OK, "");
    test_expect(qn_quantize_plan(ctx, &q, NULL, &plan), QUERN_OK, "");
    return plan;
}

static void expect_trail(const char *const *names, int count)
{
    assert_int_equal(test_cuda->launches, count);
    for (int i = 0; i < count; i++)
        assert_string_equal(test_cuda->trail[i].kernel, names[i]);
    test_cuda->launches = 0;
}

/* A later layer's product must not be lost under an earlier one's that
   overwrites; where both add, layers may be flushed in any order. */
TEST(keeps_layers_in_order)
{
    struct bench b = set_up();

    test_expect(qn_queue_put(b.queue, b.first, &b.args, 0), QUERN_OK, "");
    test_expect(qn_queue_put(b.queue, b.plan, &b.args, 1), QUERN_OK, "");
    test_expect(quern_queue_flush(b.queue, 1, 0, NULL), QUERN_EINVAL,
                "layer is 1: a product for the same d waits for layer 0");
    assert_int_equal(quern_queue_count(b.queue, QUERN_ALL_LAYERS), 2);
    test_expect(quern_queue_flush(b.queue, QUERN_ALL_LAYERS, 0, NULL), QUERN_OK,
                "");
    for (int layer = 0; layer < 2; layer++)
        test_expect(qn_queue_put(b.queue, b.plan, &b.args, layer), QUERN_OK,
                    "");
    test_expect(quern_queue_flush(b.queue, 1, 0, NULL), QUERN_OK, "");
    test_expect(quern_queue_flush(b.queue, 0, 0, NULL), QUERN_OK, "");
    tear_down(&b);
}

/* Bias gradients leave with the products that they were put between. */
TEST(flushes_bias_gradients_in_order)
{
    static const char *const both[] = {"w_add", "n_cast", "n_sum"};
    static const char *const sums[] = {"n_cast", "n_sum"};
    static const char text[] =
        "quantize bf16 of=dy g=3 m=100 k=128 copies=rowwise dbias=";
    struct qn_quantize_plan *first, *add;
    struct qn_quantize_description need;
    _Alignas(16) static char dy[100 * 128 * 2], scratch[1 << 16];
    static float dbias[3 * 128];
    struct quern_context *ctx = test_open_with(&registry);
    struct quern_queue *queue;
    struct qn_args args;
    struct qn_plan *plan;
    char line[128];
    int stream;

    plan = test_plan(ctx, "wgrad bf16 g=3 m=128 n=64 k=100 d=f32 beta=1", NULL);
    args = test_args(ctx, "wgrad bf16 g=3 m=128 n=64 k=100 d=f32 beta=1");
    first = sums_plan(ctx, strcat(strcpy(line, text), "1"), &need);
    add = sums_plan(ctx, strcat(strcpy(line, text), "add"), &need);
    assert_true(need.workspace_bytes <= sizeof scratch);
    need.args.in.data = dy;
    need.args.dbias = dbias;
    need.args.first_dims = args.a.first_dims;
    need.args.workspace = scratch;
    test_expect(quern_queue_create(ctx, 8, &queue), QUERN_OK, "");
    for (int i = 0; i < 3; i++) {
        test_expect(qn_queue_put(queue, plan, &args, i / 2), QUERN_OK, "");
        test_expect(
            qn_queue_put_dbias(queue, i ? add : first, &need.args, i / 2),
            QUERN_OK, "");
    }
    test_cuda->trailed = 2;
    test_expect(quern_queue_flush(queue, 0, 2, (void *)&stream), QUERN_OK, "");
    expect_trail(both, 3);
    assert_ptr_equal(test_cuda->trail[2].stream, &stream);
    assert_int_equal((int)test_cuda->trail[2].params[1], 0);
    test_expect(quern_queue_flush(queue, QUERN_ALL_LAYERS, 1, NULL), QUERN_OK,
                "");
    expect_trail(both, 1);
    test_expect(quern_queue_flush(queue, 0, 0, NULL), QUERN_OK, "");
    expect_trail(sums, 2);
    assert_int_equal((int)test_cuda->trail[1].params[1], 1);
    assert_int_equal(quern_queue_count(queue, 1), 2);
    test_expect(quern_queue_flush(queue, 1, 0, NULL), QUERN_OK, "");
    expect_trail(both, 3);
    quern_queue_destroy(queue);
    qn_quantize_plan_free(first);
    qn_quantize_plan_free(add);
    qn_plan_free(plan);
    test_args_free(&args);
    qn_close(ctx);
}

/* Two queues between whose flushes nothing moves: each on its stream. */
TEST(queues_are_apart)
{
    struct quern_context *ctx = test_open_with(&registry);
    const char *line = "wgrad bf16 g=3 m=128 n=64 k=100 d=f32 beta=1";
    struct quern_queue *queues[2];
    struct qn_args args[2];
    struct qn_plan *plan = test_plan(ctx, line, NULL);
    int streams[2];

    for (int i = 0; i < 2; i++) {
        args[i] = test_args(ctx, line);
        test_expect(quern_queue_create(ctx, 2, &queues[i]), QUERN_OK, "");
    }
    for (int i = 0; i < 4; i++) /* the same layer, in turns */
        test_expect(qn_queue_put(queues[i % 2], plan, &args[i % 2], 0),
                    QUERN_OK, "");
    test_cuda->trailed = 1;
    test_cuda->launches = 0;
    for (int i = 0; i < 4; i++) {
        test_expect(
            quern_queue_flush(queues[i % 2], 0, 1, (void *)&streams[i % 2]),
            QUERN_OK, "");
        assert_int_equal(test_cuda->launches, i + 1);
        assert_ptr_equal(test_cuda->trail[i].stream, &streams[i % 2]);
        assert_int_equal(quern_queue_count(queues[i % 2], 0), 1 - i / 2);
        assert_int_equal(quern_queue_count(queues[1 - i % 2], 0), i == 0   ? 2
                                                                  : i == 3 ? 0
                                                                           : 1);
    }
    for (int i = 0; i < 2; i++) {
        quern_queue_destroy(queues[i]);
        test_args_free(&args[i]);
    }
    qn_plan_free(plan);
    qn_close(ctx);
}

enum { THREADS = 8, ROUNDS = 100 };

struct worker {
    pthread_t thread;
    struct quern_context *ctx;
    const struct qn_plan *plan; /* shared */
    struct qn_args args;
    int wrong;
};

/* Three wait, one leaves, the others are forgotten. */
static void *put_and_flush(void *user)
{
    struct worker *w = user;
    struct quern_queue *queue;

    if (quern_queue_create(w->ctx, 3, &queue)) {
        w->wrong = 1;
        return NULL;
    }
    for (int i = 0; i < ROUNDS; i++) {
        for (int j = 0; j < 3; j++)
            w->wrong += qn_queue_put(queue, w->plan, &w->args, i) != 0;
        w->wrong += qn_queue_put(queue, w->plan, &w->args, i) != QUERN_EFULL ||
                    quern_queue_flush(queue, i, 1, (void *)w) != 0 ||
                    quern_queue_count(queue, i) != 2 ||
                    quern_queue_drop(queue, i) != 0;
    }
    quern_queue_destroy(queue);
    return NULL;
}

TEST(threads_have_queues_of_their_own)
{
    struct quern_context *ctx = test_open_with(&registry);
    const char *line = "wgrad bf16 g=3 m=128 n=64 k=100 d=f32 beta=1";
    struct qn_plan *plan = test_plan(ctx, line, NULL);
    struct worker workers[THREADS];

    test_cuda->launches = 0;
    for (int i = 0; i < THREADS; i++) {
        workers[i] = (struct worker){.ctx = ctx, .plan = plan};
        workers[i].args = test_args(ctx, line);
        assert_int_equal(pthread_create(&workers[i].thread, NULL, put_and_flush,
                                        &workers[i]),
                         0);
    }
    for (int i = 0; i < THREADS; i++) {
        pthread_join(workers[i].thread, NULL);
        assert_int_equal(workers[i].wrong, 0);
        test_args_free(&workers[i].args);
    }
    assert_int_equal(test_cuda->launches, THREADS * ROUNDS);
    qn_plan_free(plan);
    qn_close(ctx);
}
