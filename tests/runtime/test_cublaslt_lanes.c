/* SPDX-License-Identifier: Apache-2.0 */
/* test_cublaslt_lanes.c: a run of the backend cublaslt that spreads its groups
   over several streams: in which order, with which memory, and what happens
   when some of them belong to a capture. */
#include "test_cublaslt.h"

enum { STREAMS = 3 };

static const struct qn_plan_options spread = {.backend = QUERN_BACKEND_CUBLASLT,
                                              .streams = STREAMS};

/* A stream of the caller's. */
static char mine;

static struct qn_plan *make_plan(struct quern_context *ctx, struct run *r)
{
    struct qn_plan *plan;

    test_prepare(ctx, &test_plain, r);
    test_expect(qn_plan(ctx, &r->p, &spread, &plan), QUERN_OK, "");
    return plan;
}

static void run_once(const struct qn_plan *plan, const struct run *r)
{
    test_cublaslt->products = 0;
    test_cuda->orders = 0;
    test_expect(qn_run(plan, &r->args, &mine), QUERN_OK, "");
    assert_null(test_cublaslt->broken);
    assert_int_equal(test_cublaslt->products, 4); /* sizes 3, 0, 1, 7, 4 */
}

/* Which of the products were on the caller's stream: bits. */
static int on_callers(void)
{
    int bits = 0;

    for (int i = 0; i < test_cublaslt->products; i++)
        bits |= (test_cublaslt->streams[i] == &mine) << i;
    return bits;
}

TEST(states_its_streams)
{
    struct qn_plan_options bad = {.backend = QUERN_BACKEND_CUBLASLT};
    struct quern_context *ctx = test_open();
    struct quern_plan_info info;
    struct qn_plan *plan;
    struct run r;
    char *text;

    plan = make_plan(ctx, &r);
    qn_plan_info(plan, &info);
    assert_int_equal(info.streams, STREAMS);
    assert_int_equal(info.workspace_bytes, STREAMS * (32 << 20) + 3 * 256);
    assert_int_equal(test_cuda->streams, STREAMS - 1);
    assert_int_equal(test_cuda->events, STREAMS);
    qn_plan_free(plan);
    assert_int_equal(test_cuda->streams, 0);
    assert_int_equal(test_cuda->events, 0);
    test_expect(qn_why(ctx, &r.p, &spread, NULL, &text), QUERN_OK, "");
    assert_non_null(strstr(text, "for each group, spread over 3 streams, in a "
                                 "loop on the host; sizes are host_sizes; "
                                 "100664064 bytes of workspace"));
    quern_free(text);
    plan = test_plan(ctx, "fprop bf16 g=8 m=1000 n=512 k=256", NULL);
    qn_plan_info(plan, &info);
    assert_int_equal(info.streams, 0);
    qn_plan_free(plan);
    bad.streams = QUERN_MAX_STREAMS + 1;
    test_expect(qn_plan(ctx, &r.p, &bad, &plan), QUERN_EINVAL,
                "options.streams is 9: 0 (1) to 8 is expected");
    bad.streams = -1;
    test_expect(qn_plan(ctx, &r.p, &bad, &plan), QUERN_EINVAL,
                "options.streams is -1");
    bad = (struct qn_plan_options){.streams = 2};
    test_expect(qn_plan(ctx, &r.p, &bad, &plan), QUERN_EINVAL,
                "options.streams is 2: only the cublaslt backend spreads");
    qn_close(ctx);
}

static void expect_order(int i, char what, const void *stream,
                         const void *event)
{
    assert_true(i < test_cuda->orders);
    assert_int_equal(test_cuda->order[i].what, what);
    assert_ptr_equal(test_cuda->order[i].stream, stream);
    if (event)
        assert_ptr_equal(test_cuda->order[i].event, event);
}

/* After the caller's stream before, and before what comes after it. */
TEST(forks_and_joins)
{
    struct quern_context *ctx = test_open();
    struct qn_plan *plan;
    void *const *streams = test_cublaslt->streams;
    void *const *scratches = test_cublaslt->scratches;
    const struct fake_order *order = test_cuda->order;
    struct run r;

    plan = make_plan(ctx, &r);
    run_once(plan, &r);
    /* 3 rows, 1, 7, and 4 after the 1 */
    assert_int_equal(on_callers(), 1);
    assert_ptr_not_equal(streams[1], streams[2]);
    assert_ptr_equal(streams[3], streams[1]);
    assert_int_equal(test_cuda->orders, 3 * STREAMS - 2);
    expect_order(0, 'r', &mine, NULL);
    expect_order(1, 'w', streams[1], order[0].event);
    expect_order(2, 'w', streams[2], order[0].event);
    expect_order(3, 'r', streams[1], NULL);
    expect_order(4, 'w', &mine, order[3].event);
    expect_order(5, 'r', streams[2], NULL);
    expect_order(6, 'w', &mine, order[5].event);
    assert_ptr_not_equal(order[3].event, order[5].event);
    for (int i = 0; i < 3; i++) { /* no two lanes share any */
        assert_true((char *)scratches[i] >= test_workspace);
        assert_int_equal((char *)scratches[i] - (char *)scratches[0],
                         i * (32 << 20));
    }
    assert_ptr_equal(scratches[3], scratches[1]);
    qn_plan_free(plan);
    qn_close(ctx);
}

/* A stream is a capture's until that ends, even when it is joined. */
TEST(stays_out_of_captures)
{
    struct quern_context *ctx = test_open();
    struct qn_plan *plan;
    void *lane;
    struct run r;

    plan = make_plan(ctx, &r);
    run_once(plan, &r);
    lane = test_cublaslt->streams[1];
    test_cuda->captured[0].stream = lane;
    test_cuda->captured[0].id = 5;
    run_once(plan, &r); /* another's capture */
    assert_int_equal(on_callers(), 15);
    assert_int_equal(test_cuda->orders, 0);
    test_cuda->captured[1].stream = &mine;
    test_cuda->captured[1].id = 6;
    run_once(plan, &r); /* this one is captured, too, but apart */
    assert_int_equal(on_callers(), 15);
    test_cuda->captured[1].id = 5;
    run_once(plan, &r); /* the same capture */
    assert_int_equal(on_callers(), 1);
    test_cuda->captured[0].id = 0;
    run_once(plan, &r); /* the first run of a capture */
    assert_int_equal(on_callers(), 1);
    qn_plan_free(plan);
    qn_close(ctx);
}

/* Threads share a plan's streams, each with memory of its own. */
TEST(serves_threads)
{
    static float d[3][ELEMENTS];
    struct quern_context *ctx = test_open();
    struct test_thread threads[3];
    struct qn_plan *plan;
    struct run r;

    plan = make_plan(ctx, &r);
    run_once(plan, &r);
    for (int i = 0; i < 3; i++) {
        threads[i] =
            (struct test_thread){.plan = plan, .args = r.args, .times = 20};
        threads[i].args.d.data = memcpy(d[i], test_memory[2], sizeof d[i]);
        threads[i].args.workspace = calloc(1, WORKSPACE);
        assert_non_null(threads[i].args.workspace);
    }
    test_run_threads(threads, 3);
    for (int i = 0; i < 3; i++) {
        free(threads[i].args.workspace);
        assert_memory_equal(d[i], test_memory[2], sizeof d[i]);
    }
    qn_plan_free(plan);
    qn_close(ctx);
}

/* Forked streams are joined, whichever call fails. */
TEST(joins_after_errors)
{
    struct quern_context *ctx = test_open();
    struct qn_plan *plan;
    int last = 0;
    struct run r;

    plan = make_plan(ctx, &r);
    test_cublaslt->fail_status = 999;
    for (int n = 1;; n++) {
        int code, recorded = 0, waited = 0;

        test_cuda->orders = 0;
        test_cublaslt->calls = 0;
        test_cublaslt->fail_at = n;
        test_cublaslt->failed = NULL;
        code = qn_run(plan, &r.args, &mine);
        for (int i = 0; i < test_cuda->orders; i++) {
            recorded += test_cuda->order[i].what == 'r';
            waited += test_cuda->order[i].what == 'w';
        }
        assert_int_equal(recorded, STREAMS);
        assert_int_equal(waited, 2 * (STREAMS - 1));
        expect_order(test_cuda->orders - 1, 'w', &mine, NULL);
        if (!test_cublaslt->failed)
            break;
        last = n;
        test_expect(code, QUERN_ECUDA, test_cublaslt->failed);
    }
    assert_true(last > 20);
    qn_plan_free(plan);
    qn_close(ctx);
}
