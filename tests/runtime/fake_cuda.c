/*
** fake_cuda.c: a CUDA driver in host memory. It records what it is told and
** fails when a test asks for it.
**
** Its clock stands still but for launches. $FAKE_CUDA_TIMES says how long each
** takes, in microseconds, warm and, behind a slash, in a cold L2 (a memset came
** between); "fail" is an error of the launch and "break" one of all that comes
** behind. A band that the test points at is part of the name. What is not named
** takes 1000:
**
**     FAKE_CUDA_TIMES=k_small=120,k_large=80/100,k_large@8=70,k_next=fail
**
** $FAKE_CUDA_JITTER: each launch takes up to so many permille more or less, and
** one in 16 three times as long.
*/
#include "fake.h"
#include "gpu.h"

#include <pthread.h>
#include <string.h>

struct cu_library {
    char code[300];   /* as far as its first zero */
    char kernel[128]; /* the last that was looked up */
};

static struct fake_cuda state = {
    .devices = 1, .major = 9, .minor = 0, .sms = 132, .shared_bytes = 232448};
/* Each thread has contexts of its own; state.depth is the sum over all. */
static _Thread_local void *stack[16];
static _Thread_local int depth;

static void add(int *counter, int change)
{
    __atomic_add_fetch(counter, change, __ATOMIC_SEQ_CST);
}

/* Tests find the state by this name. */
FAKE_API struct fake_cuda *fake_cuda(void);
struct fake_cuda *fake_cuda(void)
{
    return &state;
}

/* $FAKE_DEVICE is "8.6" for another GPU than an H200, with 99 KiB of shared
   memory, which they all have. */
__attribute__((constructor)) static void opened(void)
{
    const char *device = getenv("FAKE_DEVICE");
    int major, minor;

    fake_log("cuda", "open", "");
    if (!device || sscanf(device, "%d.%d", &major, &minor) != 2)
        return;
    state.major = major;
    state.minor = minor;
    if (major != 9)
        state.shared_bytes = 99 << 10;
}

/* One call at a time: what is recorded is of one thread. */
static pthread_mutex_t calling = PTHREAD_MUTEX_INITIALIZER;

static int enter(const char *name)
{
    int call;

    pthread_mutex_lock(&calling);
    call = ++state.calls;
    if (state.process && state.process != getpid())
        return QN_CU_NOT_INITIALIZED;
    if (!state.fail_at || call < state.fail_at ||
        (call > state.fail_at && !state.lost))
        return 0;
    if (!state.failed)
        state.failed = name;
    return state.fail_code;
}

static void leave(const int *code)
{
    (void)code;
    pthread_mutex_unlock(&calling);
}

/* Until the function returns no other call is made. */
#define BEGIN() int code_ __attribute__((cleanup(leave))) = enter(__func__)

/* Fail if it is this call's turn. */
#define ENTER()                                                                \
    BEGIN();                                                                   \
    if (code_)                                                                 \
    return code_

#define DECLARE(name, arguments) FAKE_API int name arguments;
QN_CU_FUNCTIONS(DECLARE)
QN_CU_OPTIONAL(DECLARE)
QN_GPU_FUNCTIONS(DECLARE)
#undef DECLARE

static void *top(void)
{
    return depth ? stack[depth - 1] : state.current;
}

int cuInit(unsigned flags)
{
    (void)flags;
    ENTER();
    state.process = getpid();
    return state.devices ? 0 : QN_CU_NO_DEVICE;
}

int cuGetErrorString(int result, const char **text)
{
    *text = result == 999                     ? "the test's error"
            : result == 2                     ? "out of memory"
            : result == QN_CU_NOT_INITIALIZED ? "initialization error"
            : result == QN_CU_NO_DEVICE       ? "no device"
                                              : "some error";
    return 0;
}

int cuDeviceGetCount(int *count)
{
    ENTER();
    *count = state.devices;
    return 0;
}

int cuDeviceGet(int *device, int ordinal)
{
    ENTER();
    *device = ordinal;
    return 0;
}

int cuDeviceGetName(char *name, int size, int device)
{
    (void)device;
    ENTER();
    snprintf(name, (size_t)size, "Fake");
    return 0;
}

int cuDeviceGetAttribute(int *value, int attribute, int device)
{
    (void)device;
    ENTER();
    switch (attribute) {
    case QN_CU_MULTIPROCESSOR_COUNT:
        *value = state.sms;
        return 0;
    case QN_CU_COMPUTE_CAPABILITY_MAJOR:
        *value = state.major;
        return 0;
    case QN_CU_COMPUTE_CAPABILITY_MINOR:
        *value = state.minor;
        return 0;
    case QN_CU_L2_CACHE_SIZE:
        *value = 1 << 12;
        return 0;
    case QN_CU_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN:
        *value = state.shared_bytes;
        return 0;
    default:
        return 1;
    }
}

int cuDevicePrimaryCtxRetain(struct cu_context **context, int device)
{
    (void)device;
    ENTER();
    add(&state.primaries, 1);
    *context = (struct cu_context *)&state.primaries;
    return 0;
}

int cuDevicePrimaryCtxRelease_v2(int device)
{
    BEGIN(); /* what is given back is gone, whatever the driver says */
    (void)device;
    add(&state.primaries, -1);
    return code_;
}

int cuCtxGetCurrent(struct cu_context **context)
{
    ENTER();
    *context = top();
    return 0;
}

int cuCtxPushCurrent_v2(struct cu_context *context)
{
    ENTER();
    if (context == (struct cu_context *)state.destroyed)
        return 201; /* CUDA_ERROR_INVALID_CONTEXT */
    stack[depth++] = context;
    add(&state.depth, 1);
    return 0;
}

int cuCtxPopCurrent_v2(struct cu_context **context)
{
    BEGIN();
    *context = top();
    depth--;
    add(&state.depth, -1);
    return code_;
}

int cuCtxGetDevice(int *device)
{
    ENTER();
    *device = 0;
    return top() ? 0 : 201;
}

/* Libraries, kernels and functions are one thing. */
int cuLibraryLoadData(struct cu_library **library, const void *code,
                      int *jit_options, void **jit_values, unsigned njit,
                      int *options, void **values, unsigned noptions)
{
    (void)jit_options, (void)jit_values, (void)njit;
    (void)options, (void)values, (void)noptions;
    ENTER();
    if (strncmp(code, "cubin of ", 9) && strncmp(code, "\177ELF", 4))
        return 200; /* CUDA_ERROR_INVALID_IMAGE */
    *library = calloc(1, sizeof **library);
    if (!*library)
        return 2;
    snprintf((*library)->code, sizeof(*library)->code, "%s",
             (const char *)code);
    state.code = code;
    add(&state.libraries, 1);
    return 0;
}

int cuLibraryUnload(struct cu_library *library)
{
    BEGIN();
    free(library);
    add(&state.libraries, -1);
    return code_;
}

/* Of a cubin that is the fake compiler's, the kernel must be the right one. */
int cuLibraryGetKernel(struct cu_kernel **kernel, struct cu_library *library,
                       const char *name)
{
    char code[300];

    ENTER();
    snprintf(code, sizeof code, "cubin of %s.cu", name);
    if (library->code[0] == 'c' && strcmp(library->code, code) != 0)
        return 500; /* CUDA_ERROR_NOT_FOUND */
    snprintf(state.kernel, sizeof state.kernel, "%s", name);
    snprintf(library->kernel, sizeof library->kernel, "%s", name);
    *kernel = (struct cu_kernel *)library;
    return 0;
}

int cuKernelGetFunction(struct cu_function **function, struct cu_kernel *kernel)
{
    ENTER();
    if (!top() || !kernel)
        return top() ? 1 : 201;
    *function = (struct cu_function *)kernel;
    return 0;
}

int cuFuncSetAttribute(struct cu_function *function, int attribute, int value)
{
    (void)function;
    ENTER();
    if (attribute == QN_CU_MAX_DYNAMIC_SHARED_SIZE_BYTES)
        state.smem = value;
    if (attribute == QN_CU_NON_PORTABLE_CLUSTER_SIZE_ALLOWED)
        state.nonportable = value;
    return 0;
}

int cuFuncLoad(struct cu_function *function)
{
    (void)function;
    ENTER();
    add(&state.loaded, 1);
    return 0;
}

/* The entry of a kernel in $FAKE_CUDA_TIMES, behind its "=", or NULL. */
static const char *find_time(const char *kernel)
{
    const char *at = getenv("FAKE_CUDA_TIMES");
    size_t length = strlen(kernel);

    for (; at && *at; at += strcspn(at, ","), at += *at == ',')
        if (!strncmp(at, kernel, length) && at[length] == '=')
            return at + length + 1;
    return NULL;
}

/* From 0 to below 1. */
static double uniform(void)
{
    state.random = state.random * 1664525u + 1013904223u;
    return (state.random >> 8) * 0x1p-24;
}

/* Spend a launch's time, or fail as its entry says. */
static int spend(const char *kernel, void **parameters)
{
    const char *jitter = getenv("FAKE_CUDA_JITTER"), *entry = NULL;
    char banded[160];
    double us = 1000;
    char *end;

    if (state.band_at) {
        snprintf(banded, sizeof banded, "%s@%d", kernel,
                 *(int *)parameters[state.band_at - 1]);
        entry = find_time(banded);
    }
    entry = entry ? entry : find_time(kernel);
    if (entry && !strncmp(entry, "fail", 4))
        return 719;
    if (entry && !strncmp(entry, "break", 5))
        state.broken = 1;
    else if (entry) {
        us = strtod(entry, &end);
        if (*end == '/' && state.cold)
            us = strtod(end + 1, NULL);
    }
    if (jitter && uniform() < 1 / 16.0)
        us *= 3;
    if (jitter)
        us *= 1 + atof(jitter) * (2 * uniform() - 1) / 1000;
    state.now += us / 1000;
    state.cold = 0;
    return 0;
}

int cuLaunchKernelEx(const struct cu_launch *launch,
                     struct cu_function *function, void **parameters,
                     void **extra)
{
    int code;
    struct fake_launch *trail = &state.trail[state.launches % FAKE_TRAIL];

    (void)extra;
    ENTER();
    code = spend(((struct cu_library *)function)->kernel, parameters);
    if (code)
        return code;
    state.launches++;
    snprintf(trail->kernel, sizeof trail->kernel, "%s",
             ((struct cu_library *)function)->kernel);
    trail->stream = launch->stream;
    for (int i = 0; i < state.trailed; i++)
        memcpy(&trail->params[i], parameters[i], sizeof trail->params[i]);
    state.launch = *launch;
    state.launch_context = top();
    if (launch->nattributes)
        state.attribute = launch->attributes[0];
    if (state.watch)
        memcpy(state.watched, *(void **)parameters[state.watch],
               sizeof state.watched);
    for (int i = 0; i < FAKE_PARAMS; i++)
        if (state.param_sizes[i])
            memcpy(state.params[i], parameters[i], state.param_sizes[i]);
    return 0;
}

int cuTensorMapEncodeTiled(struct cu_tensor_map *map, int type, uint32_t rank,
                           void *address, const uint64_t *dims,
                           const uint64_t *strides, const uint32_t *box,
                           const uint32_t *element_strides, int interleave,
                           int swizzle, int l2_promotion, int oob_fill)
{
    struct fake_map fake = {.address = (uintptr_t)address,
                            .type = (uint8_t)type,
                            .rank = (uint8_t)rank,
                            .interleave = (uint8_t)interleave,
                            .swizzle = (uint8_t)swizzle,
                            .promotion = (uint8_t)l2_promotion,
                            .fill = (uint8_t)oob_fill};

    ENTER();
    if ((uintptr_t)map % 64 || !address || (uintptr_t)address % 16)
        return 1;
    for (uint32_t i = 0; i < rank; i++) {
        if (!dims[i] || !box[i] || box[i] > 256 ||
            (i + 1 < rank && (strides[i] % 16 || strides[i] >> 40)))
            return 1;
        fake.dims[i] = dims[i];
        fake.box[i] = box[i];
        fake.element_strides[i] = element_strides[i];
        if (i + 1 < rank)
            fake.strides[i] = strides[i];
    }
    memcpy(map, &fake, sizeof fake);
    add(&state.encodes, 1);
    return 0;
}

int cuTensorMapReplaceAddress(struct cu_tensor_map *map, void *address)
{
    struct fake_map *fake = (struct fake_map *)map;

    ENTER();
    if (!address || (uintptr_t)address % 16)
        return 1;
    fake->address = (uintptr_t)address;
    state.replaces++;
    return 0;
}

int cuStreamIsCapturing(struct cu_stream *stream, int *status)
{
    (void)stream;
    ENTER();
    *status = state.capture_status;
    return state.capture_result;
}

int cuStreamSynchronize(struct cu_stream *stream)
{
    (void)stream;
    ENTER();
    return state.broken ? 700 : 0;
}

int cuMemcpyDtoHAsync_v2(void *to, uint64_t from, size_t bytes,
                         struct cu_stream *stream)
{
    (void)stream;
    ENTER();
    memcpy(to, (void *)(uintptr_t)from, bytes);
    return 0;
}

int cuMemsetD8Async(uint64_t to, unsigned char value, size_t bytes,
                    struct cu_stream *stream)
{
    (void)stream;
    ENTER();
    memset((void *)(uintptr_t)to, value, bytes);
    state.cold = 1;
    return 0;
}

int cuMemsetD32Async(uint64_t to, unsigned value, size_t count,
                     struct cu_stream *stream)
{
    (void)stream;
    ENTER();
    if (to % 4)
        return 1;
    for (size_t i = 0; i < count; i++)
        memcpy((void *)(uintptr_t)(to + 4 * i), &value, 4);
    return 0;
}

int cuMemsetD2D8Async(uint64_t to, size_t pitch, unsigned char value,
                      size_t width, size_t height, struct cu_stream *stream)
{
    (void)stream;
    ENTER();
    if (pitch < width)
        return 1;
    for (size_t i = 0; i < height; i++)
        memset((void *)(uintptr_t)(to + i * pitch), value, width);
    return 0;
}

int cuMemGetInfo_v2(size_t *unused, size_t *total)
{
    ENTER();
    *total = (size_t)1 << 40;
    *unused = state.free_bytes ? state.free_bytes : *total;
    return 0;
}

int cuMemAlloc_v2(uint64_t *address, size_t bytes)
{
    void *memory;

    ENTER();
    memory = aligned_alloc(256, (bytes + 255) / 256 * 256);
    if (!memory || !bytes)
        return bytes ? 2 : 1;
    add(&state.allocations, 1);
    *address = (uintptr_t)memory;
    return 0;
}

int cuMemFree_v2(uint64_t address)
{
    BEGIN();
    free((void *)(uintptr_t)address);
    add(&state.allocations, -1);
    return code_;
}

int cuMemcpyHtoD_v2(uint64_t to, const void *from, size_t bytes)
{
    ENTER();
    memcpy((void *)(uintptr_t)to, from, bytes);
    return 0;
}

int cuMemcpyDtoDAsync_v2(uint64_t to, uint64_t from, size_t bytes,
                         struct cu_stream *stream)
{
    (void)stream;
    ENTER();
    memcpy((void *)(uintptr_t)to, (void *)(uintptr_t)from, bytes);
    return 0;
}

struct cu_event {
    double at; /* milliseconds */
};

int cuEventCreate(struct cu_event **event, unsigned flags)
{
    (void)flags;
    ENTER();
    *event = calloc(1, sizeof **event);
    if (!*event)
        return 2;
    add(&state.events, 1);
    return 0;
}

int cuEventDestroy_v2(struct cu_event *event)
{
    BEGIN();
    free(event);
    add(&state.events, -1);
    return code_;
}

int cuEventRecord(struct cu_event *event, struct cu_stream *stream)
{
    (void)stream;
    ENTER();
    event->at = state.now;
    return 0;
}

int cuEventSynchronize(struct cu_event *event)
{
    (void)event;
    ENTER();
    return state.broken ? 700 : 0;
}

int cuEventElapsedTime(float *ms, struct cu_event *from, struct cu_event *to)
{
    ENTER();
    *ms = (float)(to->at - from->at);
    return 0;
}

/* ------------------------------------- for programs that run what they plan */

int cuMemcpyDtoH_v2(void *to, uint64_t from, size_t bytes)
{
    memcpy(to, (void *)(uintptr_t)from, bytes);
    return 0;
}

int cuMemsetD8_v2(uint64_t to, unsigned char value, size_t bytes)
{
    memset((void *)(uintptr_t)to, value, bytes);
    return 0;
}

int cuEventElapsedTime_v2(float *ms, struct cu_event *from, struct cu_event *to)
{
    *ms = (float)(to->at - from->at);
    return 0;
}

int cuCtxSynchronize(void)
{
    return state.broken ? 700 : 0;
}
