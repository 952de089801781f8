/* SPDX-License-Identifier: Apache-2.0 */
/* driver.c: the CUDA driver, opened at run time. */
#include "device/driver.h"
#include "device/chip.h"
#include "base/context.h"
#include "base/error.h"
#include "device/library.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

static const struct {
    const char *symbol;
    size_t offset; /* of the pointer in struct qn_driver */
    int optional;
} functions[] = {
#define REQUIRED(name, arguments) {#name, offsetof(struct qn_driver, name), 0},
#define OPTIONAL(name, arguments) {#name, offsetof(struct qn_driver, name), 1},
    QN_CU_FUNCTIONS(REQUIRED) QN_CU_OPTIONAL(OPTIONAL)
#undef REQUIRED
#undef OPTIONAL
};

int qn_driver_error(const struct qn_driver *driver, const char *call,
                    int result)
{
    const char *text = NULL;
    int code = QUERN_ECUDA;

    if (result == QN_CU_SUCCESS)
        return QUERN_OK;
    if (driver->cuGetErrorString(result, &text) != QN_CU_SUCCESS || !text)
        text = "unknown error";
    if (result == QN_CU_NO_DEVICE || result == QN_CU_STUB_LIBRARY)
        code = QUERN_ENODEVICE;
    if (result >= QN_CU_CAPTURE_FIRST && result <= QN_CU_CAPTURE_LAST)
        code = QUERN_ECAPTURE;
    return qn_error_set(code, "%s: %s (CUDA error %d)%s", call, text, result,
                        result == QN_CU_NOT_INITIALIZED
                            ? "; a child of fork() has no CUDA if its parent "
                              "used it before"
                            : "");
}

/* All at once, so that a driver too old fails here and not in a run. */
static int load_symbols(struct qn_driver *driver)
{
    for (size_t i = 0; i < sizeof functions / sizeof functions[0]; i++) {
        void *symbol = dlsym(driver->library, functions[i].symbol);

        if (!symbol && !functions[i].optional)
            return qn_error_set(QUERN_ENODEVICE,
                                "libcuda has no %s: a driver for CUDA 12.0 "
                                "or later is needed",
                                functions[i].symbol);
        memcpy((char *)driver + functions[i].offset, &symbol, sizeof symbol);
    }
    return QUERN_OK;
}

/* A driver without a GPU is as good as no driver. */
static int initialize(struct qn_driver *driver)
{
    int count = 0;
    int code = QN_CU(driver, cuInit, 0);

    if (!code)
        code = QN_CU(driver, cuDeviceGetCount, &count);
    if (!code && count == 0)
        code = qn_error_set(QUERN_ENODEVICE, "the CUDA driver sees no GPU");
    if (!code && driver->cuDriverGetVersion &&
        driver->cuDriverGetVersion(&driver->version))
        driver->version = 0;
    return code;
}

int qn_driver_open(const char *path, struct qn_driver **out)
{
    struct qn_driver *driver = calloc(1, sizeof *driver);
    const char *name = path ? path : "libcuda.so.1";
    int code;

    *out = NULL;
    if (!driver)
        return qn_error_memory();
    pthread_mutex_init(&driver->lock, NULL);
    driver->library = qn_library_open(name, 0);
    if (driver->library) {
        code = load_symbols(driver);
        if (!code)
            code = initialize(driver);
    } else {
        code = qn_error_set(QUERN_ENODEVICE, "no CUDA driver: %s",
                            qn_library_error());
    }
    if (code)
        qn_driver_close(driver);
    else
        *out = driver;
    return code;
}

void qn_driver_close(struct qn_driver *driver)
{
    if (!driver)
        return;
    for (int i = 0; i < QN_MAX_DEVICES; i++)
        if (driver->primary[i])
            driver->cuDevicePrimaryCtxRelease_v2(i);
    if (driver->library)
        dlclose(driver->library);
    pthread_mutex_destroy(&driver->lock);
    free(driver);
}

/* Once for the driver's life; qn_driver_close releases it. The driver's handle
   of a device is its ordinal. */
static int retain_primary(struct qn_driver *driver, int ordinal,
                          struct cu_context **out)
{
    struct cu_context **primary = &driver->primary[ordinal];
    int code = QUERN_OK, device;

    pthread_mutex_lock(&driver->lock);
    if (!*primary) {
        code = QN_CU(driver, cuDeviceGet, &device, ordinal);
        if (!code)
            code = QN_CU(driver, cuDevicePrimaryCtxRetain, primary, device);
        if (code)
            *primary = NULL;
    }
    *out = *primary;
    pthread_mutex_unlock(&driver->lock);
    return code;
}

int qn_driver_enter(struct qn_driver *driver, struct cu_context *want,
                    struct qn_driver_scope *scope)
{
    struct cu_context *current = NULL;
    int code = QN_CU(driver, cuCtxGetCurrent, &current);

    scope->pushed = 0;
    scope->context = want ? want : current;
    if (!code && !scope->context)
        code = retain_primary(driver, 0, &scope->context);
    if (code || scope->context == current)
        return code;
    code = QN_CU(driver, cuCtxPushCurrent_v2, scope->context);
    scope->pushed = !code;
    return code;
}

int qn_driver_enter_device(struct qn_driver *driver, int ordinal,
                           struct qn_driver_scope *scope)
{
    struct cu_context *want = NULL;
    int count = 0, current = -1;
    int code = QN_CU(driver, cuDeviceGetCount, &count);

    scope->pushed = 0;
    if (!code && (ordinal < 0 || ordinal >= count || ordinal >= QN_MAX_DEVICES))
        code = qn_error_set(QUERN_EINVAL,
                            "options.device is %d: -1 or 0 to %d is expected",
                            ordinal, count - 1);
    if (!code && !driver->cuCtxGetCurrent(&want) && want &&
        !driver->cuCtxGetDevice(&current) && current == ordinal)
        return QUERN_OK;
    if (!code)
        code = retain_primary(driver, ordinal, &want);
    return code ? code : qn_driver_enter(driver, want, scope);
}

void qn_driver_leave(struct qn_driver *driver, struct qn_driver_scope *scope)
{
    struct cu_context *popped;

    if (scope->pushed)
        driver->cuCtxPopCurrent_v2(&popped);
    scope->pushed = 0;
}

/* Ask the driver, which takes about a millisecond for the clocks. */
static int ask_device(struct qn_driver *driver, struct qn_device *device)
{
    int clock = 0, memory_clock = 0, bits = 0;
    const struct {
        int attribute;
        int *value;
    } wanted[] = {
        {QN_CU_COMPUTE_CAPABILITY_MAJOR, &device->major},
        {QN_CU_COMPUTE_CAPABILITY_MINOR, &device->minor},
        {QN_CU_MULTIPROCESSOR_COUNT, &device->sms},
        {QN_CU_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN, &device->shared_bytes},
        {QN_CU_L2_CACHE_SIZE, &device->l2_bytes},
        {QN_CU_CLOCK_RATE, &clock},
        {QN_CU_MEMORY_CLOCK_RATE, &memory_clock},
        {QN_CU_MEMORY_BUS_WIDTH, &bits},
    };
    int code = QN_CU(driver, cuDeviceGetName, device->name,
                     (int)sizeof device->name, device->ordinal);

    for (size_t i = 0; !code && i < sizeof wanted / sizeof wanted[0]; i++)
        code = QN_CU(driver, cuDeviceGetAttribute, wanted[i].value,
                     wanted[i].attribute, device->ordinal);
    device->present = !code;
    if (clock > 0)
        device->memory_rate = 2.0 * memory_clock * bits / 8 / clock;
    qn_chip_complete(device);
    return code;
}

int qn_driver_device(struct qn_driver *driver, struct qn_device *device)
{
    struct qn_device *known;
    int ordinal, code = QN_CU(driver, cuCtxGetDevice, &ordinal);

    memset(device, 0, sizeof *device);
    if (code)
        return code;
    if (ordinal < 0 || ordinal >= QN_MAX_DEVICES)
        return qn_error_set(QUERN_EINVAL,
                            "the context is of GPU %d: 0 to %d is expected",
                            ordinal, QN_MAX_DEVICES - 1);
    pthread_mutex_lock(&driver->lock);
    known = &driver->devices[ordinal];
    known->ordinal = ordinal;
    if (!known->present)
        code = ask_device(driver, known);
    if (!code)
        *device = *known;
    pthread_mutex_unlock(&driver->lock);
    return code;
}

/* The driver may write to attributes, hence the copies. */
int qn_driver_launch(struct qn_driver *driver, const struct cu_launch *shape,
                     const struct cu_attribute *cluster, int dependent,
                     struct cu_function *function, void **params)
{
    struct cu_launch config = *shape;
    struct cu_attribute attributes[2];

    config.nattributes = 0;
    config.attributes = attributes;
    if (cluster)
        attributes[config.nattributes++] = *cluster;
    if (dependent)
        attributes[config.nattributes++] = (struct cu_attribute){
            .id = QN_CU_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION,
            .value.allowed = 1};
    if (!config.nattributes)
        config.attributes = NULL;
    return QN_CU(driver, cuLaunchKernelEx, &config, function, params, NULL);
}

int qn_driver_no_capture(struct qn_driver *driver, struct cu_stream *stream,
                         const char *what)
{
    int status = QN_CU_CAPTURE_NONE;
    int code = QN_CU(driver, cuStreamIsCapturing, stream, &status);

    if (code == QUERN_ECAPTURE || (!code && status != QN_CU_CAPTURE_NONE))
        code = qn_error_set(QUERN_ECAPTURE,
                            "%s is not allowed while a stream captures a "
                            "graph",
                            what);
    return code;
}

int qn_driver_of(struct quern_context *ctx, struct qn_driver **out)
{
    int code = QUERN_OK;

    pthread_mutex_lock(&ctx->lock);
    if (!ctx->driver)
        code = qn_driver_open(ctx->cuda, &ctx->driver);
    *out = ctx->driver;
    pthread_mutex_unlock(&ctx->lock);
    return code;
}
