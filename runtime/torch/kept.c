/* SPDX-License-Identifier: Apache-2.0 */
/*
** kept.c: kept workspaces, in a hash table with open addressing.
*/
#include "torch/kept.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include "torch/queue.h"

/* ------------------------------------------------------------------- driver */

struct CUctx_st;

#define DRIVER(X)                                                              \
    X(CtxGetCurrent, "cuCtxGetCurrent", (struct CUctx_st **))                  \
    X(CtxSetCurrent, "cuCtxSetCurrent", (struct CUctx_st *))                   \
    X(DevicePrimaryCtxRetain, "cuDevicePrimaryCtxRetain",                      \
      (struct CUctx_st **, int))                                               \
    X(MemAlloc, "cuMemAlloc_v2", (uint64_t *, size_t))                         \
    X(MemFree, "cuMemFree_v2", (uint64_t))                                     \
    X(MemsetD8Async, "cuMemsetD8Async",                                        \
      (uint64_t, unsigned char, size_t, struct CUstream_st *))                 \
    X(StreamCreate, "cuStreamCreate", (struct CUstream_st **, unsigned))       \
    X(StreamSynchronize, "cuStreamSynchronize", (struct CUstream_st *))        \
    X(StreamDestroy, "cuStreamDestroy_v2", (struct CUstream_st *))             \
    X(StreamGetCaptureInfo, "cuStreamGetCaptureInfo",                          \
      (struct CUstream_st *, int *, uint64_t *))                               \
    X(ThreadExchangeStreamCaptureMode, "cuThreadExchangeStreamCaptureMode",    \
      (int *))

static struct {
#define MEMBER(name, symbol, arguments) int(*name) arguments;
    DRIVER(MEMBER)
#undef MEMBER
} cu;
static const char *missing = "the CUDA driver is not loaded";

static void find_driver(void)
{
    void *driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);

    if (!driver)
        return;
    missing = NULL;
#define FIND(name, symbol, arguments)                                          \
    *(void **)&cu.name = dlsym(driver, symbol);                                \
    if (!cu.name)                                                              \
        missing = "the CUDA driver has no " symbol;
    DRIVER(FIND)
#undef FIND
}

const char *qn_kept_enter(int device)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    struct CUctx_st *now = NULL;

    pthread_once(&once, find_driver);
    if (missing)
        return missing;
    if (!cu.CtxGetCurrent(&now) && now)
        return NULL;
    if (cu.DevicePrimaryCtxRetain(&now, device) || cu.CtxSetCurrent(now))
        return "the CUDA driver cannot make the device's context current";
    return NULL;
}

int qn_kept_zero(void *data, size_t bytes, struct CUstream_st *stream)
{
    return cu.MemsetD8Async((uint64_t)data, 0, bytes, stream);
}

/* Zeroed memory, also while a stream captures: in relaxed mode, and on a stream
   of its own, nothing of this becomes a node of the graph. 0: there is none. */
static uint64_t allocate(size_t bytes, size_t zero_bytes)
{
    struct CUstream_st *apart = NULL;
    uint64_t address = 0;
    int mode = 2, failed;

    cu.ThreadExchangeStreamCaptureMode(&mode);
    failed = cu.MemAlloc(&address, bytes) || cu.StreamCreate(&apart, 1) ||
             cu.MemsetD8Async(address, 0, zero_bytes, apart) ||
             cu.StreamSynchronize(apart);
    if (apart)
        cu.StreamDestroy(apart);
    if (failed && address)
        cu.MemFree(address);
    cu.ThreadExchangeStreamCaptureMode(&mode);
    return failed ? 0 : address;
}

/* -------------------------------------------------------------------- table */

struct kept {
    const struct quern_plan *plan; /* NULL: free */
    const void *stream;
    uint64_t capture;
    int64_t queue;
    uint64_t address; /* 0: dropped */
    size_t bytes;
    int device;
};

static struct kept *table;
static size_t table_size, table_used;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static int same(const struct kept *a, const struct kept *b)
{
    return a->plan == b->plan && a->stream == b->stream &&
           a->capture == b->capture && a->queue == b->queue &&
           a->bytes >= b->bytes && (a->address || !a->plan);
}

/* The entry of a key, or the free one where it belongs. */
static struct kept *look_up(const struct kept *key)
{
    const uint64_t mixed = ((uint64_t)key->plan >> 4) * 0x9e3779b97f4a7c15 +
                           ((uint64_t)key->stream >> 4) * 0xc2b2ae3d27d4eb4f +
                           key->capture * 0x165667b19e3779f9 +
                           (uint64_t)key->queue;
    size_t i = (mixed ^ mixed >> 29) & (table_size - 1);

    while (table[i].plan && !same(&table[i], key))
        i = (i + 1) & (table_size - 1);
    return &table[i];
}

static int grow(void)
{
    struct kept *old = table;
    const size_t count = table_size;

    table = calloc(count ? 2 * count : 64, sizeof *table);
    if (!table) {
        table = old;
        return 0;
    }
    table_size = count ? 2 * count : 64;
    table_used = 0;
    for (size_t i = 0; i < count; i++) {
        if (old[i].address) {
            *look_up(&old[i]) = old[i];
            table_used++;
        }
    }
    free(old);
    return 1;
}

/* With the lock held. */
static const char *find_or_make(struct kept *key, size_t zero_bytes)
{
    struct kept *k;

    if (2 * (table_used + 1) > table_size && !grow())
        return "host memory ran out";
    k = look_up(key);
    if (!k->plan) {
        key->address = allocate(key->bytes, zero_bytes);
        if (!key->address)
            return "the CUDA driver has no memory for a workspace";
        *k = *key;
        table_used++;
    }
    key->address = k->address;
    return NULL;
}

const char *qn_kept(const struct quern_plan *plan, int device,
                    struct CUstream_st *stream, int64_t queue, size_t bytes,
                    size_t zero_bytes, void **data)
{
    struct kept key = {.plan = plan, .queue = queue, .device = device};
    const char *error;
    int capturing = 0;

    key.bytes = bytes ? bytes : 1;
    if (!queue) {
        key.stream = stream;
        if (stream && cu.StreamGetCaptureInfo(stream, &capturing, &key.capture))
            return "the capture of the current stream is broken";
        if (capturing != 1)
            key.capture = 0;
    }
    pthread_mutex_lock(&lock);
    error = find_or_make(&key, zero_bytes);
    pthread_mutex_unlock(&lock);
    *data = (void *)key.address;
    return error;
}

void qn_kept_drop(int64_t queue)
{
    pthread_mutex_lock(&lock);
    for (size_t i = 0; i < table_size; i++) {
        if (table[i].address && table[i].queue == queue) {
            qn_kept_enter(table[i].device);
            cu.MemFree(table[i].address);
            table[i].address = 0;
        }
    }
    pthread_mutex_unlock(&lock);
}

const char *quern_torch_check(int device)
{
    static _Thread_local char sentence[1024];
    struct quern_args args = QUERN_ARGS_INIT;
    int found = 0;

    pthread_mutex_lock(&lock);
    for (size_t i = 0; i < table_size; i++) {
        if (!table[i].address || table[i].device != device)
            continue;
        qn_kept_enter(device);
        args.of[QUERN_ARG_WORKSPACE].data = (void *)table[i].address;
        if (quern_check(table[i].plan, &args, NULL) && !found++)
            snprintf(sentence, sizeof sentence, "%s", quern_errmsg());
    }
    pthread_mutex_unlock(&lock);
    return found ? sentence : NULL;
}
