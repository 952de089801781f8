/* SPDX-License-Identifier: Apache-2.0 */
/*
** driver.c: a CUDA driver whose GPU is the interpreter. The image of a module
** is PTX; memory is the host's; a launch ends before its call does.
**
** $PTX_DEVICE is the compute capability (9.0), $PTX_SMS how many
** multiprocessors there are (4), $PTX_SEED begins all random order (1),
** $PTX_LATE how late copies land: of 256 chances, how many are not taken (by
** the seed). $PTX_TRACE: print each launch with its time of a core, and
** what threads say to each other: barriers, copies, products. Events count
** launches, a second each, so that no timing repeats one. $PTX_LEAVES: a CTA
** may end before bulk stores have read its memory, as others' kernels do; the
** instruction set does not say so.
**
** To try tests with: $PTX_EDIT=FROM=>TO changes the PTX, $PTX_MISREAD names one
** of PX_MISREADINGS.
*/
#include "driver_stream.h"
#include "machine.h"
#include "tma.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "device/driver.h"
#include "oracle/gpu.h"

#define API                      __attribute__((visibility("default")))
#define DECLARE(name, arguments) API int name arguments;
QN_CU_FUNCTIONS(DECLARE)
QN_CU_OPTIONAL(DECLARE)
QN_GPU_FUNCTIONS(DECLARE)
#undef DECLARE

enum {
    FAILED = 719,
    INVALID = 1,
    NO_MEMORY = 2,
    BAD_IMAGE = 200,
    BAD_CONTEXT = 201
};

struct cu_library {
    struct px_program *program;
    char name[300];
};

static _Thread_local struct cu_context *stack[16];
static _Thread_local int depth;
static int edits;
static int primary; /* its address is the context */
static int major = 9, minor, sms = 4;
pthread_mutex_t px_running = PTHREAD_MUTEX_INITIALIZER;

static double now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec * 1e-6;
}

static uint32_t setting(const char *name, uint32_t otherwise)
{
    const char *text = getenv(name);

    return text && *text ? (uint32_t)strtoul(text, NULL, 0) : otherwise;
}

/* PX_TRUE, or the misreading that a test wants. */
static int misreading(const char *name)
{
    static const char *const names[] = {
#define NAME(id, text) text,
        PX_MISREADINGS(NAME)
#undef NAME
    };

    for (int i = 0; name && i < PX_MISREAD_COUNT; i++)
        if (!strcmp(names[i], name))
            return i;
    if (name)
        fprintf(stderr, "ptx: PTX_MISREAD=%s is not known\n", name);
    return PX_TRUE;
}

int cuInit(unsigned flags)
{
    static const uint32_t lates[] = {128, 0, 250, 256};
    const uint32_t seed = setting("PTX_SEED", 1);
    const char *device = getenv("PTX_DEVICE");

    (void)flags;
    if (device)
        sscanf(device, "%d.%d", &major, &minor);
    sms = (int)setting("PTX_SMS", 4);
    px_machine.random = seed * 2654435761u;
    px_machine.late = setting("PTX_LATE", lates[seed % 4]);
    px_machine.leader = seed;
    px_machine.misread = misreading(getenv("PTX_MISREAD"));
    px_machine.trace = getenv("PTX_TRACE") != NULL;
    px_machine.leaves = getenv("PTX_LEAVES") != NULL;
    px_machine.most_steps = (uint64_t)setting("PTX_STEPS", 4000) * 1000000;
    return 0;
}

int cuGetErrorString(int result, const char **text)
{
    *text = result == FAILED || result == BAD_IMAGE ? px_machine.fault
            : result == NO_MEMORY                   ? "out of memory"
                                                    : "invalid value";
    return 0;
}

int cuDeviceGetCount(int *count)
{
    *count = 1;
    return 0;
}

int cuDeviceGet(int *device, int ordinal)
{
    *device = ordinal;
    return 0;
}

int cuDeviceGetName(char *name, int size, int device)
{
    (void)device;
    snprintf(name, (size_t)size, "PTX interpreter %d.%d", major, minor);
    return 0;
}

int cuDeviceGetAttribute(int *value, int attribute, int device)
{
    const struct {
        int attribute, value;
    } known[] = {
        {QN_CU_MULTIPROCESSOR_COUNT, sms},
        {QN_CU_COMPUTE_CAPABILITY_MAJOR, major},
        {QN_CU_COMPUTE_CAPABILITY_MINOR, minor},
        {QN_CU_L2_CACHE_SIZE, 1 << 12},
        {QN_CU_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN,
         major == 9 || major == 10 ? 232448
         : major == 8 && !minor    ? 166912
                                   : 101376},
        {QN_CU_CLOCK_RATE, 1980000}, /* an H200's */
        {QN_CU_MEMORY_CLOCK_RATE, 3201000},
        {QN_CU_MEMORY_BUS_WIDTH, 6016},
    };

    (void)device;
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++)
        if (known[i].attribute == attribute) {
            *value = known[i].value;
            return 0;
        }
    *value = 0;
    return 0;
}

/* ---------------------------------------------------------------- contexts */

int cuDevicePrimaryCtxRetain(struct cu_context **context, int device)
{
    *context = (struct cu_context *)&primary;
    return device ? INVALID : 0;
}

int cuDevicePrimaryCtxRelease_v2(int device)
{
    (void)device;
    return 0;
}

int cuCtxGetCurrent(struct cu_context **context)
{
    *context = depth ? stack[depth - 1] : NULL;
    return 0;
}

API int cuCtxSetCurrent(struct cu_context *context);
int cuCtxSetCurrent(struct cu_context *context)
{
    depth = 1;
    stack[0] = context;
    return 0;
}

int cuCtxPushCurrent_v2(struct cu_context *context)
{
    if (depth == 16)
        return INVALID;
    stack[depth++] = context;
    return 0;
}

int cuCtxPopCurrent_v2(struct cu_context **context)
{
    if (!depth)
        return BAD_CONTEXT;
    *context = stack[--depth];
    return 0;
}

int cuCtxGetDevice(int *device)
{
    *device = 0;
    return depth ? 0 : BAD_CONTEXT;
}

int cuCtxGetId(struct cu_context *context, unsigned long long *id)
{
    *id = (uintptr_t)context;
    return 0;
}

int cuCtxSynchronize(void)
{
    return 0;
}

int cuDriverGetVersion(int *version)
{
    *version = 13000;
    return 0;
}

/* ---------------------------------------------------------------- libraries */

/* A copy, in which each FROM is TO if $PTX_EDIT is FROM=>TO: a kernel with a
   defect. */
static char *edited(const char *text)
{
    const char *from = getenv("PTX_EDIT");
    const char *to = from ? strstr(from, "=>") : NULL;
    const size_t length = to ? (size_t)(to - from) : 0;
    const size_t longer = to ? strlen(to + 2) : 0;
    char *copy, *at;

    if (!length)
        return strdup(text);
    copy = at = malloc(strlen(text) / length * (longer + length) + length + 1);
    for (; copy && *text; text++) {
        if (strncmp(text, from, length)) {
            *at++ = *text;
            continue;
        }
        memcpy(at, to + 2, longer);
        at += longer;
        text += length - 1;
        edits++;
    }
    if (copy)
        *at = 0;
    return copy;
}

int cuLibraryLoadData(struct cu_library **library, const void *code,
                      int *jit_options, void **jit_values, unsigned njit,
                      int *options, void **values, unsigned noptions)
{
    char *text = edited(code);

    (void)jit_options, (void)jit_values, (void)njit;
    (void)options, (void)values, (void)noptions;
    *library = calloc(1, sizeof **library);
    if (!*library || !text) {
        free(text);
        return NO_MEMORY;
    }
    pthread_mutex_lock(&px_running);
    *px_machine.fault = 0;
    (*library)->program = px_parse(text);
    pthread_mutex_unlock(&px_running);
    if ((*library)->program)
        return 0;
    free(*library);
    return BAD_IMAGE;
}

int cuLibraryUnload(struct cu_library *library)
{
    px_program_free(library->program);
    free(library);
    return 0;
}

int cuLibraryGetKernel(struct cu_kernel **kernel, struct cu_library *library,
                       const char *name)
{
    *kernel = (struct cu_kernel *)library;
    return strcmp(name, library->program->name) ? 500 : 0;
}

int cuKernelGetFunction(struct cu_function **function, struct cu_kernel *kernel)
{
    *function = (struct cu_function *)kernel;
    return 0;
}

int cuFuncSetAttribute(struct cu_function *function, int attribute, int value)
{
    (void)function, (void)attribute, (void)value;
    return 0;
}

int cuFuncLoad(struct cu_function *function)
{
    (void)function;
    return 0;
}

/* CTAs that run at once, as shared memory and threads permit. */
static int residents(const struct cu_launch *launch,
                     const struct px_program *program)
{
    const unsigned threads =
        launch->block[0] * launch->block[1] * launch->block[2];
    const unsigned bytes =
        launch->shared_bytes + (unsigned)program->shared_bytes + 1024;
    unsigned each = 2048 / threads;

    if (each > 228 * 1024 / bytes)
        each = 228 * 1024 / bytes;
    return sms * (int)(each ? each : 1);
}

/* A launch that waits: what it is of, then the bytes of its parameters. */
struct kept {
    struct px_launch launch;
    int resident, waits;
    void *params[PX_MAX_PARAMS];
    _Alignas(16) unsigned char bytes[4096];
};

static int run_launch(struct px_work *work)
{
    struct kept *kept = work->owned;
    const char *name = kept->launch.program->name;
    const double begin = now();
    int code;

    for (int i = 0; i < kept->launch.program->nparams; i++)
        kept->params[i] = kept->bytes + kept->launch.program->params[i].offset;
    kept->launch.params = kept->params;
    pthread_mutex_lock(&px_running);
    px_machine.launches++;
    *px_machine.fault = 0;
    px_machine.resident = kept->resident;
    px_machine.waits = kept->waits;
    code = px_schedule_run(&kept->launch);
    if (px_machine.trace)
        fprintf(stderr,
                "ptx: %s: %ux%ux%u CTAs of %u, %llu instructions of warps, "
                "%.0f ms\n",
                name, kept->launch.grid[0], kept->launch.grid[1],
                kept->launch.grid[2], kept->launch.block[0],
                (unsigned long long)px_machine.steps, now() - begin);
    pthread_mutex_unlock(&px_running);
    if (getenv("PTX_EDIT") && !edits)
        fprintf(stderr, "ptx: PTX_EDIT changes nothing\n");
    return code ? FAILED : 0;
}

int cuLaunchKernelEx(const struct cu_launch *launch,
                     struct cu_function *function, void **parameters,
                     void **extra)
{
    struct cu_library *library = (struct cu_library *)function;
    const struct px_program *program = library->program;
    struct kept kept = {.launch = {.program = program,
                                   .cluster = {1, 1, 1},
                                   .dynamic_bytes = launch->shared_bytes},
                        .resident = residents(launch, program)};
    const struct px_work work = {.run = run_launch, .owned = &kept};

    (void)extra;
    if (program->param_bytes > (int)sizeof kept.bytes)
        return INVALID;
    memcpy(kept.launch.grid, launch->grid, sizeof launch->grid);
    memcpy(kept.launch.block, launch->block, sizeof launch->block);
    for (unsigned i = 0; i < launch->nattributes; i++)
        if (launch->attributes[i].id == QN_CU_ATTRIBUTE_CLUSTER_DIMENSION)
            memcpy(kept.launch.cluster, launch->attributes[i].value.cluster,
                   sizeof kept.launch.cluster);
        else if (launch->attributes[i].id ==
                     QN_CU_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION &&
                 launch->attributes[i].value.allowed)
            kept.waits = 1;
    for (int i = 0; i < program->nparams; i++)
        memcpy(kept.bytes + program->params[i].offset, parameters[i],
               (size_t)program->params[i].bytes);
    return px_stream_do(launch->stream, &work, sizeof kept);
}

/* -------------------------------------------------------------- tensor maps */

/* Two of 4 bits are one element here. */
enum { TYPE_16U4_ALIGN8B = 13 };

static int element_bytes(int type)
{
    static const int bytes[] = {1, 2, 4, 4, 8, 8, 2, 4, 8, 2, 4, 4, 4, 1};

    return type >= 0 && type <= TYPE_16U4_ALIGN8B ? bytes[type] : 0;
}

int cuTensorMapEncodeTiled(struct cu_tensor_map *map, int type, uint32_t rank,
                           void *address, const uint64_t *dims,
                           const uint64_t *strides, const uint32_t *box,
                           const uint32_t *element_strides, int interleave,
                           int swizzle, int l2_promotion, int oob_fill)
{
    static const uint32_t spans[] = {0, 32, 64, 128};
    struct px_map made = {.signature = PX_MAP_SIGNATURE,
                          .address = (uintptr_t)address,
                          .rank = (uint8_t)rank,
                          .type = (uint8_t)type,
                          .swizzle = (uint8_t)swizzle,
                          .element_bytes = (uint8_t)element_bytes(type)};

    (void)l2_promotion;
    if ((uintptr_t)map % 64 || !address || (uintptr_t)address % 16 || !rank ||
        rank > PX_MAX_RANK || !made.element_bytes || interleave ||
        swizzle > 3 || oob_fill)
        return INVALID;
    for (uint32_t i = 0; i < rank; i++) {
        if (!dims[i] || dims[i] > (uint64_t)1 << 32 || !box[i] ||
            box[i] > 256 || element_strides[i] != 1 ||
            (i && (strides[i - 1] % 16 || strides[i - 1] >> 40)))
            return INVALID;
        made.dims[i] = (uint32_t)(dims[i] > PX_ALL ? PX_ALL : dims[i]);
        made.box[i] = (uint16_t)box[i];
        if (!i && type == TYPE_16U4_ALIGN8B) {
            if (dims[0] % 32 || box[0] % 2)
                return INVALID;
            made.halves = 1;
            made.dims[0] /= 2;
            made.box[0] /= 2;
        }
        if (i)
            made.strides[i - 1] = strides[i - 1];
    }
    if (made.box[0] * made.element_bytes % 16 ||
        (swizzle && made.box[0] * made.element_bytes > (int)spans[swizzle]))
        return INVALID;
    memcpy(map, &made, sizeof made);
    return 0;
}

int cuTensorMapReplaceAddress(struct cu_tensor_map *map, void *address)
{
    if (!address || (uintptr_t)address % 16)
        return INVALID;
    ((struct px_map *)map)->address = (uintptr_t)address;
    return 0;
}
