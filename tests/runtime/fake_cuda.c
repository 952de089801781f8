/* SPDX-License-Identifier: Apache-2.0 */
/*
** fake_cuda.c: a CUDA driver in host memory. It records what it is told and
** fails when a test asks for it.
**
** Its clock stands still but for launches. $FAKE_CUDA_TIMES says how long each
** takes, in microseconds, warm and, after a slash, in a cold L2 (a memset came
** between); "fail" is an error of the launch and "break" one of all that comes
** after. A band that the test points at is part of the name. Others take 1000:
**
**     FAKE_CUDA_TIMES=k_small=120,k_large=80/100,k_large@8=70,k_next=fail
**
** $FAKE_CUDA_JITTER: each launch takes up to so many permille more or less, and
** one in 16 three times as long. $FAKE_CUDA_EXCLUSIVE: another process has the
** GPU.
*/
#include "fake_cuda/driver.h"

#include <pthread.h>
#include <string.h>

struct cu_library {
    char code[300];   /* as far as its first zero */
    char kernel[128]; /* the last that was looked up */
};

struct fake_cuda fake_state = {.devices = 1,
                               .major = 9,
                               .minor = 0,
                               .sms = 132,
                               .shared_bytes = 232448,
                               .version = 13000};
/* Each thread has contexts of its own; fake_state.depth is the sum over all. */
static _Thread_local void *stack[16];
static _Thread_local int depth;

/* Tests find the state by this name. */
FAKE_API struct fake_cuda *fake_cuda(void);
struct fake_cuda *fake_cuda(void)
{
    return &fake_state;
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
    fake_state.major = major;
    fake_state.minor = minor;
    if (major != 9)
        fake_state.shared_bytes = 99 << 10;
}

/* One call at a time: what is recorded is of one thread. */
static pthread_mutex_t calling = PTHREAD_MUTEX_INITIALIZER;

int fake_enter(const char *name)
{
    int call;

    pthread_mutex_lock(&calling);
    call = ++fake_state.calls;
    if (fake_state.process && fake_state.process != getpid())
        return QN_CU_NOT_INITIALIZED;
    if (!fake_state.fail_at || call < fake_state.fail_at ||
        (call > fake_state.fail_at && !fake_state.lost))
        return 0;
    if (!fake_state.failed)
        fake_state.failed = name;
    return fake_state.fail_code;
}

void fake_leave(const int *code)
{
    (void)code;
    pthread_mutex_unlock(&calling);
}

static void *top(void)
{
    return depth ? stack[depth - 1] : fake_state.current;
}

int cuInit(unsigned flags)
{
    (void)flags;
    ENTER();
    fake_state.process = getpid();
    return fake_state.devices ? 0 : QN_CU_NO_DEVICE;
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
    *count = fake_state.devices;
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
    fake_state.attributes++;
    switch (attribute) {
    case QN_CU_MULTIPROCESSOR_COUNT:
        *value = fake_state.sms;
        return 0;
    case QN_CU_COMPUTE_CAPABILITY_MAJOR:
        *value = fake_state.major;
        return 0;
    case QN_CU_COMPUTE_CAPABILITY_MINOR:
        *value = fake_state.minor;
        return 0;
    case QN_CU_CLOCK_RATE: /* an H200's */
        *value = 1980000;
        return 0;
    case QN_CU_MEMORY_CLOCK_RATE:
        *value = 3201000;
        return 0;
    case QN_CU_MEMORY_BUS_WIDTH:
        *value = 6016;
        return 0;
    case QN_CU_L2_CACHE_SIZE:
        *value = 1 << 12; /* the tuner fills it; the model wants more */
        return 0;
    case QN_CU_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN:
        *value = fake_state.shared_bytes;
        return 0;
    default:
        return 1;
    }
}

/* Contexts are known by their address. */
static struct cu_context *primary(int device)
{
    return device ? (struct cu_context *)&fake_state.contexts[device]
                  : (struct cu_context *)&fake_state.primaries;
}

int cuStreamGetCtx(struct cu_stream *stream, struct cu_context **context)
{
    ENTER();
    *context = top();
    for (int i = 0; i < FAKE_DEVICES; i++)
        if (stream && (const void *)stream == fake_state.device_streams[i])
            *context = primary(i);
    return 0;
}

int cuCtxGetId(struct cu_context *context, unsigned long long *id)
{
    ENTER();
    *id = (uintptr_t)context + (unsigned long long)fake_state.remade;
    return 0;
}

int cuDevicePrimaryCtxRetain(struct cu_context **context, int device)
{
    ENTER();
    if (device < 0 || device >= fake_state.devices)
        return 101; /* CUDA_ERROR_INVALID_DEVICE */
    if (getenv("FAKE_CUDA_EXCLUSIVE"))
        return 46; /* CUDA_ERROR_DEVICE_UNAVAILABLE */
    fake_add(&fake_state.primaries, 1);
    *context = primary(device);
    return 0;
}

int cuDevicePrimaryCtxRelease_v2(int device)
{
    BEGIN(); /* freed handles are gone, with any result */
    (void)device;
    fake_add(&fake_state.primaries, -1);
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
    if (context == (struct cu_context *)fake_state.destroyed)
        return 201; /* CUDA_ERROR_INVALID_CONTEXT */
    stack[depth++] = context;
    fake_add(&fake_state.depth, 1);
    return 0;
}

int cuCtxPopCurrent_v2(struct cu_context **context)
{
    BEGIN();
    *context = top();
    depth--;
    fake_add(&fake_state.depth, -1);
    return code_;
}

int cuCtxGetDevice(int *device)
{
    ENTER();
    *device = 0;
    for (int i = 1; i < FAKE_DEVICES; i++)
        if (top() == (void *)primary(i))
            *device = i;
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
    fake_state.code = code;
    fake_add(&fake_state.libraries, 1);
    return 0;
}

int cuLibraryUnload(struct cu_library *library)
{
    BEGIN();
    free(library);
    fake_add(&fake_state.libraries, -1);
    return code_;
}

/* A cubin of the fake compiler must have the right kernel. */
int cuLibraryGetKernel(struct cu_kernel **kernel, struct cu_library *library,
                       const char *name)
{
    char code[300];

    ENTER();
    snprintf(code, sizeof code, "cubin of %s.cu", name);
    if (library->code[0] == 'c' && strcmp(library->code, code) != 0)
        return 500; /* CUDA_ERROR_NOT_FOUND */
    snprintf(fake_state.kernel, sizeof fake_state.kernel, "%s", name);
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
        fake_state.smem = value;
    if (attribute == QN_CU_NON_PORTABLE_CLUSTER_SIZE_ALLOWED)
        fake_state.nonportable = value;
    return 0;
}

int cuFuncLoad(struct cu_function *function)
{
    (void)function;
    ENTER();
    fake_add(&fake_state.loaded, 1);
    return 0;
}

/* Its failures have no effect, so no test counts it. */
int cuDriverGetVersion(int *version)
{
    *version = fake_state.version;
    return 0;
}

/* The entry of a kernel in $FAKE_CUDA_TIMES, after its "=", or NULL. */
static const char *find_time(const char *kernel)
{
    const char *at = getenv("FAKE_CUDA_TIMES");
    size_t length = strlen(kernel);

    for (; at && *at; at += strcspn(at, ","), at += *at == ',')
        if (!strncmp(at, kernel, length) && at[length] == '=')
            return at + length + 1;
    return NULL;
}

/* Noise of each kernel's own from $random on, in any order. */
static unsigned *noise_of(const char *kernel)
{
    enum { MOST = 32 };
    static struct {
        char kernel[160];
        unsigned seed, state;
    } known[MOST];
    int i = 0;

    while (i < MOST - 1 && *known[i].kernel && strcmp(known[i].kernel, kernel))
        i++;
    if (strcmp(known[i].kernel, kernel) || known[i].seed != fake_state.random) {
        snprintf(known[i].kernel, sizeof known[i].kernel, "%s", kernel);
        known[i].seed = known[i].state = fake_state.random;
        for (const char *at = kernel; *at; at++)
            known[i].state = (known[i].state ^ (unsigned char)*at) * 16777619u;
    }
    return &known[i].state;
}

/* From 0 to below 1. */
static double uniform(unsigned *state)
{
    unsigned bits;

    *state = *state * 1664525u + 1013904223u;
    bits = (*state ^ *state >> 16) * 0x85ebca6bu;
    bits = (bits ^ bits >> 13) * 0xc2b2ae35u;
    return ((bits ^ bits >> 16) >> 8) * 0x1p-24;
}

/* Spend a launch's time, or fail as its entry says. */
static int spend(const char *kernel, void **parameters)
{
    const char *jitter = getenv("FAKE_CUDA_JITTER"), *entry = NULL;
    char banded[160];
    unsigned *noise = jitter ? noise_of(kernel) : NULL;
    double us = 1000;
    char *end;

    if (fake_state.band_at) {
        snprintf(banded, sizeof banded, "%s@%d", kernel,
                 *(int *)parameters[fake_state.band_at - 1]);
        entry = find_time(banded);
    }
    entry = entry ? entry : find_time(kernel);
    if (entry && !strncmp(entry, "fail", 4))
        return 719;
    if (entry && !strncmp(entry, "break", 5))
        fake_state.broken = 1;
    else if (entry) {
        us = strtod(entry, &end);
        if (*end == '/' && fake_state.cold)
            us = strtod(end + 1, NULL);
    }
    if (jitter && uniform(noise) < 1 / 16.0)
        us *= 3;
    if (jitter)
        us *= 1 + atof(jitter) * (2 * uniform(noise) - 1) / 1000;
    fake_state.now += us / 1000;
    fake_state.cold = 0;
    return 0;
}

int cuLaunchKernelEx(const struct cu_launch *launch,
                     struct cu_function *function, void **parameters,
                     void **extra)
{
    struct fake_launch *trail;
    int code;

    (void)extra;
    ENTER();
    code = spend(((struct cu_library *)function)->kernel, parameters);
    if (code)
        return code;
    trail = &fake_state.trail[fake_state.launches++ % FAKE_TRAIL];
    snprintf(trail->kernel, sizeof trail->kernel, "%s",
             ((struct cu_library *)function)->kernel);
    trail->stream = launch->stream;
    fake_state.launch_context = top();
    if (fake_state.told)
        fake_state.told(trail->kernel, launch, parameters);
    if (!strncmp(trail->kernel, "k_sizes", 7)) /* as the real one does */
        return !memcpy(*(int **)parameters[1], (int *)parameters[0] + 1,
                       (size_t)(*(int *)parameters[0]) * sizeof(int));
    for (int i = 0; i < fake_state.trailed; i++)
        memcpy(&trail->params[i], parameters[i], sizeof trail->params[i]);
    fake_state.launch = *launch;
    if (launch->nattributes)
        fake_state.attribute = launch->attributes[0];
    if (fake_state.watch)
        memcpy(fake_state.watched, *(void **)parameters[fake_state.watch],
               sizeof fake_state.watched);
    for (int i = 0; i < FAKE_PARAMS; i++)
        if (fake_state.param_sizes[i] &&
            (!fake_state.only || !strcmp(fake_state.only, trail->kernel)))
            memcpy(fake_state.params[i], parameters[i],
                   fake_state.param_sizes[i]);
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
    fake_add(&fake_state.encodes, 1);
    return 0;
}

int cuTensorMapReplaceAddress(struct cu_tensor_map *map, void *address)
{
    struct fake_map *fake = (struct fake_map *)map;

    ENTER();
    if (!address || (uintptr_t)address % 16)
        return 1;
    fake->address = (uintptr_t)address;
    fake_state.replaces++;
    return 0;
}

int cuStreamIsCapturing(struct cu_stream *stream, int *status)
{
    (void)stream;
    ENTER();
    *status = fake_state.capture_status;
    return fake_state.capture_result;
}
