/* SPDX-License-Identifier: Apache-2.0 */
/* devices.c: one context, plans on two devices, threads that use both. */
#include "api.h"

#include <pthread.h>

enum { DEVICES = 2, THREADS = 6, ROUNDS = 20, LINES = 3 };

static const char *const lines[LINES] = {
    "fprop bf16 g=4 m=64 n=64 k=64",
    "quantize mxfp8 of=x g=4 m=64 k=64",
    "mlp bf16 g=4 m=64 hidden=64 ffn=64",
};

static struct {
    struct quern_context *ctx;
    char streams[DEVICES]; /* their addresses */
    struct quern_plan *kept[DEVICES][LINES];
    int launches[DEVICES], wrong;
} crowd;

static struct CUstream_st *stream_of(int device)
{
    return (struct CUstream_st *)&crowd.streams[device];
}

/* A launch goes to the device of its stream. The fake makes one call at a
   time. */
static void note(const char *kernel, const struct cu_launch *launch,
                 void **params)
{
    (void)kernel, (void)params;
    for (int i = 0; i < DEVICES; i++)
        if ((void *)launch->stream == (void *)stream_of(i)) {
            crowd.launches[i]++;
            crowd.wrong += test_cuda->launch_context !=
                           (i ? (void *)&test_cuda->contexts[i]
                              : (void *)&test_cuda->primaries);
        }
}

/* Addresses that nobody reads, far from each other. */
static void give_all(const struct quern_plan *plan, struct quern_args *args)
{
    const struct quern_args none = QUERN_ARGS_INIT;
    int count;
    const struct quern_operand *table = quern_plan_operands(plan, &count);

    *args = none;
    args->rows = 64;
    for (int i = 0; i < count; i++)
        if (table[i].arg != QUERN_ARG_STARTS && table[i].arg != QUERN_ARG_ENDS)
            args->of[table[i].arg].data =
                (void *)((uintptr_t)(table[i].arg + 1) << 30);
}

/* 0: all is as it must be. */
static int use(int device, int line)
{
    struct quern_plan_options o = QUERN_PLAN_OPTIONS_INIT;
    struct quern_plan *kept, *own, *both[2];
    struct quern_args args;
    int bad = 0;

    o.device = device;
    o.backend = QUERN_BACKEND_JIT;
    if (quern_plan_get(crowd.ctx, lines[line], &o, NULL, &kept) ||
        quern_plan_create(crowd.ctx, lines[line], &o, &own))
        return 1;
    if (__atomic_exchange_n(&crowd.kept[device][line], kept,
                            __ATOMIC_RELAXED) != kept)
        __atomic_store_n(&crowd.kept[device][line], kept, __ATOMIC_RELAXED);
    both[0] = kept;
    both[1] = own;
    for (int i = 0; i < 2 && !bad; i++) {
        give_all(both[i], &args);
        if (quern_run(both[i], &args, stream_of(device)))
            bad = 2;
        else if (quern_run(both[i], &args, stream_of(!device)) !=
                     QUERN_EINVAL ||
                 !strstr(quern_errmsg(), "stream is of another device"))
            bad = 3;
    }
    quern_plan_destroy(own);
    return bad;
}

static void *use_both(void *at)
{
    const int first = (int)(intptr_t)at;

    for (int i = 0; i < ROUNDS; i++) {
        const int bad = use((first + i) % DEVICES, (first + i / 2) % LINES);

        if (bad)
            return (void *)(intptr_t)bad;
    }
    return NULL;
}

TEST(runs_threads_on_two_devices)
{
    pthread_t threads[THREADS];
    void *bad[THREADS];

    (void)state;
    memset(&crowd, 0, sizeof crowd);
    test_cuda->devices = DEVICES;
    for (int i = 0; i < DEVICES; i++)
        test_cuda->device_streams[i] = stream_of(i);
    test_cuda->told = note;
    crowd.ctx = api_open();
    for (intptr_t i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, use_both, (void *)i),
                         0);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], &bad[i]);
    for (int i = 0; i < THREADS; i++)
        assert_null(bad[i]);
    for (int i = 0; i < LINES; i++)
        assert_ptr_not_equal(crowd.kept[0][i], crowd.kept[1][i]);
    assert_int_equal(crowd.wrong, 0);
    assert_true(crowd.launches[0] >= 2 * THREADS * ROUNDS / DEVICES);
    assert_int_equal(crowd.launches[0], crowd.launches[1]);
    quern_close(crowd.ctx);
    assert_int_equal(test_cuda->libraries, 0);
    assert_int_equal(test_cuda->primaries, 0);
    assert_int_equal(test_cuda->depth, 0);
}
