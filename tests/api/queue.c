/* SPDX-License-Identifier: Apache-2.0 */
/* queue.c: the wgrad queue: runs that are put and flushed give the bytes of
   runs at once. */
#include "api.h"

#define OVER "wgrad bf16 g=4 m=64 n=64 k=40 d=f32"
#define ADD  OVER " beta=1"
#define MLP  "mlp bf16 g=4 m=40 hidden=64 ffn=64"
#define SUMS "quantize bf16 of=dy g=4 m=40 k=64 copies=rowwise dbias="

/* Two microbatches of one weight, put or computed at once. */
struct layer {
    struct api_run over, add;
};

static void layer_open(struct layer *l, struct quern_context *ctx)
{
    api_run_open(&l->over, ctx, OVER);
    api_run_open(&l->add, ctx, ADD);
    api_run_usual(&l->over);
    api_run_usual(&l->add);
    memcpy(l->add.memory[QUERN_ARG_A], l->over.memory[QUERN_ARG_B],
           l->add.bytes[QUERN_ARG_A]); /* other numbers */
    l->add.args.of[QUERN_ARG_D] = l->over.args.of[QUERN_ARG_D];
}

static void layer_close(struct layer *l)
{
    api_run_guarded(&l->over);
    api_run_close(&l->over);
    api_run_close(&l->add);
}

static uint64_t digest(const struct layer *l)
{
    return api_run_digest(&l->over) ^ 3 * api_run_digest(&l->add);
}

static void put(struct quern_queue *queue, const struct api_run *run, int layer)
{
    struct quern_args args = run->args;

    test_expect(quern_queue_put(queue, run->plan, &args, layer), QUERN_OK, "");
    memset(&args, 0xFF, sizeof args); /* they were copied */
}

static void flush(struct quern_queue *queue, int layer, int most, int left)
{
    test_expect(quern_queue_flush(queue, layer, most, NULL), QUERN_OK, "");
    assert_int_equal(quern_queue_count(queue, QUERN_ALL_LAYERS), left);
}

static void run_now(const struct api_run *run)
{
    test_expect(quern_run(run->plan, &run->args, NULL), QUERN_OK, "");
}

TEST(keeps_order)
{
    struct quern_context *ctx = api_open();
    struct layer queued, now, other;
    struct quern_queue *queue;
    uint64_t before;

    (void)state;
    layer_open(&queued, ctx);
    layer_open(&other, ctx);
    layer_open(&now, ctx);
    test_expect(quern_queue_create(ctx, 4, &queue), QUERN_OK, "");
    before = digest(&queued);
    put(queue, &queued.over, 5);
    put(queue, &other.over, 7);
    put(queue, &queued.add, 5);
    assert_int_equal(quern_queue_count(queue, 5), 2);
    assert_int_equal(quern_queue_count(queue, 7), 1);
    assert_int_equal(quern_queue_count(queue, 6), 0);
    assert_int_equal(quern_queue_count(queue, QUERN_ALL_LAYERS), 3);
    assert_true(digest(&queued) == before);
    test_expect(quern_queue_flush(queue, 6, 0, NULL), QUERN_EINVAL,
                "layer 6 has no pending work");
    test_expect(quern_queue_flush(queue, -2, 0, NULL), QUERN_EINVAL, "layer");
    test_expect(quern_queue_flush(queue, 5, -1, NULL), QUERN_EINVAL, "most");
    run_now(&now.over);
    flush(queue, 5, 1, 2);
    assert_true(digest(&queued) == digest(&now));
    assert_true(digest(&other) == before);
    run_now(&now.add);
    flush(queue, QUERN_ALL_LAYERS, 0, 0);
    assert_true(digest(&queued) == digest(&now));
    test_expect(quern_queue_flush(queue, QUERN_ALL_LAYERS, 0, NULL), QUERN_OK,
                "");
    layer_close(&now);
    layer_open(&now, ctx);
    run_now(&now.over);
    assert_true(digest(&other) == digest(&now));
    quern_queue_destroy(queue);
    layer_close(&now);
    layer_close(&other);
    layer_close(&queued);
    quern_close(ctx);
}

TEST(drops_and_refuses)
{
    struct quern_context *ctx = api_open();
    struct quern_queue *queue = NULL;
    struct api_run forward;
    struct quern_args args;
    struct layer l;
    uint64_t before;

    (void)state;
    test_expect(quern_queue_create(ctx, 0, &queue), QUERN_EINVAL, "capacity");
    test_expect(quern_queue_create(ctx, -1, &queue), QUERN_EINVAL, "capacity");
    test_expect(quern_queue_create(ctx, QUERN_MAX_QUEUE + 1, &queue),
                QUERN_EINVAL, "capacity");
    assert_null(queue);
    test_expect(quern_queue_create(ctx, 2, &queue), QUERN_OK, "");
    layer_open(&l, ctx);
    api_run_open(&forward, ctx, "fprop bf16 g=4 m=40 n=64 k=64");
    api_run_usual(&forward);
    before = digest(&l);
    test_expect(quern_queue_put(queue, forward.plan, &forward.args, 0),
                QUERN_EINVAL, "wgrad");
    test_expect(quern_queue_put(queue, l.over.plan, &l.over.args, -1),
                QUERN_EINVAL, "layer is -1");
    args = l.over.args;
    args.size = 0;
    test_expect(quern_queue_put(queue, l.over.plan, &args, 0), QUERN_EINVAL,
                "args.size is 0");
    args = l.over.args;
    args.of[QUERN_ARG_D].data = NULL;
    test_expect(quern_queue_put(queue, l.over.plan, &args, 0), QUERN_EINVAL,
                "d is NULL");
    put(queue, &l.over, 0);
    test_expect(quern_queue_put(queue, l.over.plan, &l.over.args, 0),
                QUERN_EINVAL, "d");
    put(queue, &l.add, 0);
    test_expect(quern_queue_put(queue, l.add.plan, &l.add.args, 0), QUERN_EFULL,
                "");
    assert_int_equal(quern_queue_count(queue, 0), 2);
    test_expect(quern_queue_drop(queue, 1), QUERN_EINVAL, "layer 1");
    test_expect(quern_queue_drop(queue, 0), QUERN_OK, "");
    assert_int_equal(quern_queue_count(queue, QUERN_ALL_LAYERS), 0);
    test_expect(quern_queue_drop(queue, 0), QUERN_EINVAL, "layer 0");
    assert_true(digest(&l) == before);
    put(queue, &l.over, 0);
    quern_queue_destroy(queue); /* drops it */
    assert_true(digest(&l) == before);
    api_run_close(&forward);
    layer_close(&l);
    quern_close(ctx);
}

/* Both gradients are queued, or none. */
TEST(puts_mlps)
{
    struct quern_context *ctx = api_open();
    struct quern_queue *queue;
    struct api_run mlp, now;
    struct quern_args args;

    (void)state;
    api_run_open(&mlp, ctx, MLP);
    api_run_open(&now, ctx, MLP);
    api_run_usual(&mlp);
    api_run_usual(&now);
    for (int i = 0; i < 2; i++) {
        struct api_run *run = i ? &mlp : &now;

        args = run->args;
        args.of[QUERN_ARG_DW1].data = args.of[QUERN_ARG_DW2].data = NULL;
        test_expect(quern_run(run->plan, &args, NULL), QUERN_OK, "");
        args.phase = QUERN_PHASE_BACKWARD;
        test_expect(quern_run(run->plan, &args, NULL), QUERN_OK, "");
    }
    test_expect(quern_queue_create(ctx, 3, &queue), QUERN_OK, "");
    test_expect(quern_queue_put(queue, mlp.plan, &args, 0), QUERN_EINVAL,
                "dw1 and dw2 are NULL");
    put(queue, &mlp, 0);
    assert_int_equal(quern_queue_count(queue, 0), 2);
    args = mlp.args;
    args.of[QUERN_ARG_DW1] = args.of[QUERN_ARG_DX];
    test_expect(quern_queue_put(queue, now.plan, &now.args, 0), QUERN_EFULL,
                "");
    assert_int_equal(quern_queue_count(queue, 0), 2);
    assert_true(api_run_digest(&mlp) == api_run_digest(&now));
    now.args.phase = QUERN_PHASE_WGRAD;
    run_now(&now);
    assert_true(api_run_digest(&mlp) != api_run_digest(&now));
    flush(queue, 0, 0, 0);
    assert_true(api_run_digest(&mlp) == api_run_digest(&now));
    args = mlp.args;
    args.phase = QUERN_PHASE_WGRAD;
    args.of[QUERN_ARG_DW1].data = args.of[QUERN_ARG_DW2].data = NULL;
    test_expect(quern_run(mlp.plan, &args, NULL), QUERN_EINVAL,
                "dw1 and dw2 are NULL");
    quern_queue_destroy(queue);
    api_run_close(&mlp);
    api_run_close(&now);
    quern_close(ctx);
}

TEST(puts_sums)
{
    static const char *const lines[] = {SUMS "1", SUMS "add"};
    struct quern_context *ctx = api_open();
    struct api_run sums[2], now[2];
    struct quern_queue *queue;

    (void)state;
    test_expect(quern_queue_create(ctx, 4, &queue), QUERN_OK, "");
    for (int i = 0; i < 2; i++) {
        api_run_open(&sums[i], ctx, lines[i]);
        api_run_open(&now[i], ctx, lines[i]);
        api_run_usual(&sums[i]);
        api_run_usual(&now[i]);
        test_expect(quern_queue_put(queue, sums[i].plan, &sums[i].args, 0),
                    QUERN_EINVAL, "row");
        sums[i].args.of[QUERN_ARG_ROWWISE].data = NULL;
        now[i].args.of[QUERN_ARG_ROWWISE].data = NULL;
        sums[i].args.rows = now[i].args.rows = i ? 33 : -1;
        sums[i].args.of[QUERN_ARG_DBIAS] = sums[0].args.of[QUERN_ARG_DBIAS];
        now[i].args.of[QUERN_ARG_DBIAS] = now[0].args.of[QUERN_ARG_DBIAS];
        put(queue, &sums[i], 0);
        run_now(&now[i]);
    }
    assert_int_equal(quern_queue_count(queue, 0), 2);
    assert_true(api_run_digest(&sums[0]) != api_run_digest(&now[0]));
    flush(queue, 0, 0, 0);
    for (int i = 0; i < 2; i++) {
        assert_true(api_run_digest(&sums[i]) == api_run_digest(&now[i]));
        api_run_close(&sums[i]);
        api_run_close(&now[i]);
    }
    quern_queue_destroy(queue);
    quern_close(ctx);
}
