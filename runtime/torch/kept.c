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

/* torch's context of a device, retained once; NULL: there is none. */
static struct CUctx_st *primary(int device)
{
    static struct CUctx_st *of[64];
    struct CUctx_st *found = NULL;

    if (device < 0 || device >= 64)
        return NULL;
    if (!of[device] && !cu.DevicePrimaryCtxRetain(&found, device))
        of[device] = found; /* the same one in all threads */
    return of[device];
}

const char *qn_kept_enter(int device, int *other)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    struct CUctx_st *now = NULL, *ours;

    *other = 0;
    pthread_once(&once, find_driver);
    if (missing)
        return missing;
    ours = primary(device);
    if (!ours)
        return "the CUDA driver has no context of the device";
    if (cu.CtxGetCurrent(&now))
        now = NULL;
    if (!now && cu.CtxSetCurrent(ours))
        return "the CUDA driver cannot make the device's context current";
    *other = now && now != ours;
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

struct qn_kept {
    const struct quern_plan *plan;
    const void *stream;
    uint64_t capture;
    int64_t queue;
    size_t bytes;
    int device;
    uint64_t address;     /* 0: dropped, its queue is gone */
    pthread_mutex_t busy; /* a run with it is being launched */
    void *sizes[3];       /* of the last run: lengths, starts, ends */
};

static struct qn_kept **table; /* NULL: free */
static size_t table_size, table_used;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static int same(const struct qn_kept *a, const struct qn_kept *b)
{
    return a->plan == b->plan && a->stream == b->stream &&
           a->capture == b->capture && a->queue == b->queue &&
           a->bytes >= b->bytes && a->address;
}

/* The place of an entry, or the free one where it belongs. */
static struct qn_kept **look_up(const struct qn_kept *key)
{
    const uint64_t mixed = ((uint64_t)key->plan >> 4) * 0x9e3779b97f4a7c15 +
                           ((uint64_t)key->stream >> 4) * 0xc2b2ae3d27d4eb4f +
                           key->capture * 0x165667b19e3779f9 +
                           (uint64_t)key->queue;
    size_t i = (mixed ^ mixed >> 29) & (table_size - 1);

    while (table[i] && !same(table[i], key))
        i = (i + 1) & (table_size - 1);
    return &table[i];
}

static void free_kept(struct qn_kept *kept)
{
    pthread_mutex_destroy(&kept->busy);
    free(kept);
}

/* Another table, without those that are dropped, at most a quarter full. 0:
   memory ran out. */
static int make_table(void)
{
    struct qn_kept **old = table;
    const size_t count = table_size;
    size_t kept = 0, size = 64;

    for (size_t i = 0; i < count; i++)
        kept += old[i] && old[i]->address;
    while (size < 4 * (kept + 1))
        size *= 2;
    table = calloc(size, sizeof(struct qn_kept *));
    if (!table) {
        table = old;
        return 0;
    }
    table_size = size;
    table_used = kept;
    for (size_t i = 0; i < count; i++) {
        if (old[i] && old[i]->address)
            *look_up(old[i]) = old[i];
        else if (old[i])
            free_kept(old[i]);
    }
    free(old);
    return 1;
}

static const char *make(struct qn_kept **place, const struct qn_kept *key,
                        size_t zero_bytes)
{
    struct qn_kept *made = malloc(sizeof *made);

    if (!made)
        return "host memory ran out";
    *made = *key;
    made->address = allocate(key->bytes, zero_bytes);
    if (!made->address) {
        free(made);
        return "the CUDA driver has no memory for a workspace";
    }
    pthread_mutex_init(&made->busy, NULL);
    *place = made;
    table_used++;
    return NULL;
}

static const char *find_or_make(struct qn_kept *key, size_t zero_bytes,
                                struct qn_kept **kept)
{
    const char *error = NULL;
    struct qn_kept **place;

    pthread_mutex_lock(&lock);
    if (2 * (table_used + 1) > table_size && !make_table()) {
        error = "host memory ran out";
    } else {
        place = look_up(key);
        if (!*place)
            error = make(place, key, zero_bytes);
        *kept = *place;
    }
    pthread_mutex_unlock(&lock);
    return error;
}

const char *qn_kept(const struct quern_plan *plan, int device,
                    struct CUstream_st *stream, int64_t queue, size_t bytes,
                    size_t zero_bytes, struct quern_args *args,
                    struct qn_kept **kept)
{
    struct qn_kept key = {.plan = plan, .queue = queue, .device = device};
    const char *error;
    int capturing = 0;

    key.bytes = bytes ? bytes : 1;
    key.address = 1; /* any: it is looked for */
    if (!queue) {
        key.stream = stream;
        if (stream && cu.StreamGetCaptureInfo(stream, &capturing, &key.capture))
            return "the capture of the current stream is broken";
        if (capturing != 1)
            key.capture = 0;
    }
    error = find_or_make(&key, zero_bytes, kept);
    if (error)
        return error;
    pthread_mutex_lock(&(*kept)->busy);
    args->of[QUERN_ARG_WORKSPACE].data = (void *)(*kept)->address;
    for (int i = 0; i < 3; i++)
        (*kept)->sizes[i] = args->of[QUERN_ARG_LENGTHS + i].data;
    return NULL;
}

void qn_kept_release(struct qn_kept *kept)
{
    if (kept)
        pthread_mutex_unlock(&kept->busy);
}

void qn_kept_drop(int64_t queue)
{
    int other;

    pthread_mutex_lock(&lock);
    for (size_t i = 0; i < table_size; i++) {
        if (table[i] && table[i]->queue == queue && table[i]->address) {
            qn_kept_enter(table[i]->device, &other);
            cu.MemFree(table[i]->address);
            table[i]->address = 0;
        }
    }
    pthread_mutex_unlock(&lock);
}

/* quern_check of a workspace; 0: it has no error. */
static int check(struct qn_kept *kept)
{
    struct quern_args args = QUERN_ARGS_INIT;
    int code;

    pthread_mutex_lock(&kept->busy);
    args.of[QUERN_ARG_WORKSPACE].data = (void *)kept->address;
    for (int i = 0; i < 3; i++)
        args.of[QUERN_ARG_LENGTHS + i].data = kept->sizes[i];
    code = quern_check(kept->plan, &args, NULL);
    pthread_mutex_unlock(&kept->busy);
    return code;
}

const char *quern_torch_check(int device)
{
    static _Thread_local char sentence[1024];
    int found = 0, other;

    pthread_mutex_lock(&lock);
    for (size_t i = 0; i < table_size; i++) {
        if (!table[i] || !table[i]->address || table[i]->device != device)
            continue;
        qn_kept_enter(device, &other);
        if (check(table[i]) && !found++)
            snprintf(sentence, sizeof sentence, "%s", quern_errmsg());
    }
    pthread_mutex_unlock(&lock);
    return found ? sentence : NULL;
}
