/* SPDX-License-Identifier: Apache-2.0 */
/* get.c: the plans that a context keeps. */
#include "api.h"

#include <pthread.h>

#define SHAPE " n=64 k=64"
#define A     "fprop bf16 g=4 m=4000" SHAPE

/* Two calls, and whether they get the same plan. */
static const struct {
    const char *lines[2];
    int backends[2], devices[2], sms[2], same;
} pairs[] = {
    {{A, A}, {0, 0}, {-1, -1}, {0, 0}, 1},
    {{A, "fprop bf16 g=4 m=4096" SHAPE}, {0, 0}, {-1, -1}, {0, 0}, 1},
    {{A, "fprop bf16 g=4 m=3073" SHAPE}, {0, 0}, {-1, -1}, {0, 0}, 1},
    {{A, "fprop bf16 g=4 m=3072" SHAPE}, {0, 0}, {-1, -1}, {0, 0}, 0},
    {{A, "fprop bf16 g=4 m=4097" SHAPE}, {0, 0}, {-1, -1}, {0, 0}, 0},
    {{A, "fprop  bf16 k=64 n=64 m=4000 g=4 beta=0 alpha=1"},
     {0, 0},
     {-1, -1},
     {0, 0},
     1},
    {{A, "fprop fp16 g=4 m=4000" SHAPE}, {0, 0}, {-1, -1}, {0, 0}, 0},
    {{A, "fprop bf16 g=5 m=4000" SHAPE}, {0, 0}, {-1, -1}, {0, 0}, 0},
    {{A, A " beta=1"}, {0, 0}, {-1, -1}, {0, 0}, 0},
    {{A, A}, {0, QUERN_BACKEND_HOST}, {-1, -1}, {0, 0}, 0},
    {{A, A}, {0, QUERN_BACKEND_JIT}, {-1, -1}, {0, 0}, 0},
    {{A, A}, {0, 0}, {0, 0}, {0, 0}, 1},
    {{A, A}, {0, 0}, {0, 1}, {0, 0}, 0},
    {{A, A}, {0, 0}, {-1, -1}, {0, 7}, 0},
    {{"fprop bf16 g=4 m=0" SHAPE, "fprop bf16 g=4 m=1" SHAPE},
     {0, 0},
     {-1, -1},
     {0, 0},
     0},
    {{"wgrad bf16 g=4 m=64 n=64 k=90", "wgrad bf16 g=4 m=64 n=64 k=96"},
     {0, 0},
     {-1, -1},
     {0, 0},
     1},
    {{"wgrad bf16 g=4 m=90 n=64 k=90", "wgrad bf16 g=4 m=96 n=64 k=90"},
     {0, 0},
     {-1, -1},
     {0, 0},
     0},
    {{"quantize mxfp8 of=x g=4 m=90 k=64", "quantize mxfp8 of=x g=4 m=91 k=64"},
     {0, 0},
     {-1, -1},
     {0, 0},
     1},
    {{"quantize mxfp8 of=w g=4 m=90 k=64", "quantize mxfp8 of=w g=4 m=91 k=64"},
     {0, 0},
     {-1, -1},
     {0, 0},
     0},
    {{"mlp bf16 g=4 m=90 hidden=64 ffn=64",
      "mlp bf16 g=4 m=90 hidden=64 ffn=64"},
     {0, 0},
     {-1, -1},
     {0, 0},
     1},
};

static struct quern_plan *get(struct quern_context *ctx, int pair, int which)
{
    struct quern_plan_options o = QUERN_PLAN_OPTIONS_INIT;
    struct quern_plan *plan;

    o.backend = pairs[pair].backends[which];
    o.device = pairs[pair].devices[which];
    o.sms = pairs[pair].sms[which];
    test_expect(quern_plan_get(ctx, pairs[pair].lines[which], &o, NULL, &plan),
                QUERN_OK, "");
    return plan;
}

TEST(keeps_plans)
{
    (void)state;
    test_cuda->devices = 2;
    for (int i = 0; i < (int)(sizeof pairs / sizeof pairs[0]); i++) {
        struct quern_context *ctx = api_open();
        struct quern_plan *first = get(ctx, i, 0), *second = get(ctx, i, 1);

        if ((first == second) != pairs[i].same)
            fail_msg("'%s' and '%s': %s plan", pairs[i].lines[0],
                     pairs[i].lines[1], pairs[i].same ? "another" : "the same");
        assert_ptr_equal(get(ctx, i, 0), first);
        quern_plan_destroy(first); /* left to quern_close */
        assert_ptr_equal(get(ctx, i, 0), first);
        assert_ptr_equal(get(ctx, i, 1), second);
        quern_close(ctx);
        assert_int_equal(test_cuda->libraries, 0);
    }
}

/* The thread's context is known before the driver is opened, and after. */
TEST(keeps_plans_of_contexts)
{
    struct CUstream_st *stream = (struct CUstream_st *)&state;
    struct quern_context *ctx = api_open();
    struct quern_plan *plans[3];

    test_cuda->current = &test_cuda->current;
    test_expect(quern_plan_get(ctx, A, NULL, NULL, &plans[0]), QUERN_OK, "");
    test_cuda->capture_status = QN_CU_CAPTURE_ACTIVE;
    test_expect(quern_plan_get(ctx, A, NULL, stream, &plans[1]), QUERN_OK, "");
    test_cuda->capture_status = QN_CU_CAPTURE_NONE;
    test_cuda->current = &test_cuda->capture_status;
    test_expect(quern_plan_get(ctx, A, NULL, NULL, &plans[2]), QUERN_OK, "");
    assert_ptr_equal(plans[0], plans[1]);
    assert_ptr_not_equal(plans[0], plans[2]);
    quern_close(ctx);
}

/* A destroyed context's address says nothing about the next one there. */
TEST(keeps_no_plan_of_a_destroyed_context)
{
    struct quern_context *ctx = api_open();
    struct quern_plan *plans[3];

    (void)state;
    test_cuda->current = &test_cuda->current;
    test_expect(quern_plan_get(ctx, A, NULL, NULL, &plans[0]), QUERN_OK, "");
    test_cuda->remade++;
    test_expect(quern_plan_get(ctx, A, NULL, NULL, &plans[1]), QUERN_OK, "");
    test_expect(quern_plan_get(ctx, A, NULL, NULL, &plans[2]), QUERN_OK, "");
    assert_ptr_not_equal(plans[0], plans[1]);
    assert_ptr_equal(plans[1], plans[2]);
    quern_close(ctx);
}

/* The rows of a line, from 0 to 2^30, make so many plans at most. */
TEST(keeps_few_plans)
{
    struct quern_plan_options o = QUERN_PLAN_OPTIONS_INIT;
    struct quern_context *ctx = api_open();
    struct quern_plan *plan = NULL, *last = NULL;
    int count = 0;

    (void)state;
    o.backend = QUERN_BACKEND_HOST;
    for (int64_t rows = 0; rows <= 1 << 30; rows += rows < 8 ? 1 : rows / 8) {
        char line[96];

        snprintf(line, sizeof line, "quantize mxfp8 of=x g=2 m=%lld k=32",
                 (long long)rows);
        test_expect(quern_plan_get(ctx, line, &o, NULL, &plan), QUERN_OK, "");
        count += plan != last;
        last = plan;
    }
    assert_int_equal(count, 61);
    quern_close(ctx);
}

/* It takes all runs of its bucket, and no more. */
TEST(runs_kept_plans)
{
    static const char *const lines[] = {"fprop mxfp8 g=4 m=37 n=64 k=64",
                                        "quantize mxfp8 of=x g=4 m=40 k=64"};
    struct quern_context *ctx = api_open();
    struct quern_plan_options o = QUERN_PLAN_OPTIONS_INIT;

    (void)state;
    o.backend = QUERN_BACKEND_HOST;
    for (int i = 0; i < 2; i++) {
        struct quern_plan *kept;
        struct api_run run;

        test_expect(quern_plan_get(ctx, lines[i], &o, NULL, &kept), QUERN_OK,
                    "");
        assert_int_equal(kept->rows, 48);
        api_run_open(&run, ctx,
                     i ? "quantize mxfp8 of=x g=4 m=48 k=64"
                       : "fprop mxfp8 g=4 m=48 n=64 k=64");
        api_run_usual(&run);
        for (int rows = 28; rows <= 49; rows += 3) {
            run.args.rows = rows;
            test_expect(quern_run(kept, &run.args, NULL),
                        rows > 48 ? QUERN_EINVAL : QUERN_OK,
                        rows > 48 ? "args.rows is 49" : "");
        }
        api_run_guarded(&run);
        api_run_close(&run);
    }
    quern_close(ctx);
}

TEST(refuses_captures)
{
    struct CUstream_st *stream = (struct CUstream_st *)&state;
    struct quern_context *ctx = api_open();
    struct quern_plan *plan = NULL, *other = NULL;

    test_cuda->capture_status = QN_CU_CAPTURE_ACTIVE;
    for (int i = 0; i < 2; i++) { /* before the driver is there, and after */
        test_expect(quern_plan_get(ctx, A, NULL, stream, &plan), QUERN_ECAPTURE,
                    "while a stream captures");
        assert_null(plan);
        test_cuda->capture_status = QN_CU_CAPTURE_NONE;
        test_expect(quern_plan_get(ctx, A " beta=1", NULL, stream, &other),
                    QUERN_OK, "");
        test_cuda->capture_status = QN_CU_CAPTURE_ACTIVE;
    }
    test_expect(quern_plan_get(ctx, A " beta=1", NULL, stream, &plan), QUERN_OK,
                "");
    assert_ptr_equal(plan, other);
    quern_close(ctx);
}

/* ----------------------------------------------------------------- threads */

enum { THREADS = 8, GETS = 200, LINES = 20 };

static struct {
    struct quern_context *ctx;
    struct quern_plan *plans[THREADS][LINES];
    char lines[LINES][64];
} crowd;

static void *get_all(void *at)
{
    const int thread = (int)((struct quern_plan **)at - crowd.plans[0]) / LINES;

    for (int i = 0; i < GETS; i++) {
        const int line = (i * 7 + thread * 3) % LINES;
        struct quern_plan_options o = QUERN_PLAN_OPTIONS_INIT;
        struct quern_plan *plan = NULL;

        o.backend = line < LINES / 2 ? QUERN_BACKEND_JIT : QUERN_BACKEND_HOST;
        if (quern_plan_get(crowd.ctx, crowd.lines[line], &o, NULL, &plan))
            return (void *)(intptr_t)1;
        if (crowd.plans[thread][line] && crowd.plans[thread][line] != plan)
            return (void *)(intptr_t)2;
        crowd.plans[thread][line] = plan;
    }
    return NULL;
}

TEST(gives_threads_one_plan)
{
    pthread_t threads[THREADS];

    (void)state;
    memset(&crowd, 0, sizeof crowd);
    crowd.ctx = api_open();
    for (int i = 0; i < LINES; i++)
        snprintf(crowd.lines[i], sizeof crowd.lines[i],
                 "fprop bf16 g=4 m=%d n=64 k=64", 8 << i % 10);
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(
            pthread_create(&threads[i], NULL, get_all, crowd.plans[i]), 0);
    for (int i = 0; i < THREADS; i++) {
        void *failed;

        pthread_join(threads[i], &failed);
        assert_null(failed);
    }
    for (int i = 0; i < THREADS; i++)
        assert_memory_equal(crowd.plans[i], crowd.plans[0],
                            sizeof crowd.plans[0]);
    for (int i = 0; i < LINES; i++)
        for (int j = 0; j < i; j++)
            assert_ptr_not_equal(crowd.plans[0][i], crowd.plans[0][j]);
    quern_close(crowd.ctx);
    assert_int_equal(test_cuda->libraries, 0);
}
