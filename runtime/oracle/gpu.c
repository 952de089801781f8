/* SPDX-License-Identifier: Apache-2.0 */
/* gpu.c: memory, events and figures of the GPU. */
#include "oracle/gpu.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/context.h"
#include "base/error.h"
#include "device/driver.h"
#include "device/nvml.h"

/* Products and sums of dense bf16 per SM and clock, both counted, of the chips
   with this version or a later one, up to the next row. Consumers' cards of 8.6
   and later do half of it. */
static const struct {
    int version;
    double flops;
} tensor_cores[] = {{80, 2048}, {86, 1024},  {87, 2048}, {89, 1024},
                    {90, 4096}, {100, 8192}, {120, 1024}};

static const struct {
    const char *symbol;
    size_t offset;
} functions[] = {
#define FUNCTION(name, arguments) {#name, offsetof(struct qn_gpu, name)},
    QN_GPU_FUNCTIONS(FUNCTION)
#undef FUNCTION
};

/* A name of CUDA 12.8 or later has another name without its version. */
static void *find(void *library, const char *symbol)
{
    void *function = dlsym(library, symbol);
    char older[64];
    char *version;

    if (function)
        return function;
    snprintf(older, sizeof older, "%s", symbol);
    version = strstr(older, "_v2");
    if (version)
        *version = '\0';
    return dlsym(library, older);
}

/* Look up every function of gpu.h. */
static int load(struct qn_gpu *gpu)
{
    for (size_t i = 0; i < sizeof functions / sizeof functions[0]; i++) {
        void *function = find(gpu->driver->library, functions[i].symbol);
        if (!function)
            return qn_error_set(QUERN_ENODEVICE, "libcuda has no %s",
                                functions[i].symbol);
        memcpy((char *)gpu + functions[i].offset, &function, sizeof function);
    }
    return QUERN_OK;
}

/* A figure of the device; 0 where the driver has none. */
static int attribute(const struct qn_gpu *gpu, int which)
{
    int value = 0;

    gpu->driver->cuDeviceGetAttribute(&value, which, gpu->device.ordinal);
    return value;
}

/* The chip's rates at its highest clocks: the roofline. */
static void find_peaks(struct qn_gpu *gpu)
{
    const double khz = attribute(gpu, QN_CU_CLOCK_RATE);
    const double memory_khz = attribute(gpu, QN_CU_MEMORY_CLOCK_RATE);
    const double bus_bytes = attribute(gpu, QN_CU_MEMORY_BUS_WIDTH) / 8.0;

    const int version = gpu->device.major * 10 + gpu->device.minor;

    for (size_t i = 0; i < sizeof tensor_cores / sizeof tensor_cores[0]; i++)
        if (tensor_cores[i].version <= version)
            gpu->peak_flops =
                tensor_cores[i].flops * gpu->device.sms * khz * 1e3;
    gpu->peak_bytes = 2 * memory_khz * 1e3 * bus_bytes;
}

int qn_gpu_open(struct quern_context *ctx, struct qn_gpu **out)
{
    struct qn_gpu *gpu = calloc(1, sizeof *gpu);
    int code;

    *out = gpu;
    if (!gpu)
        return qn_error_memory();
    code = qn_driver_of(ctx, &gpu->driver);
    if (!code)
        code = load(gpu);
    if (!code)
        code = qn_driver_enter(gpu->driver, NULL, &gpu->scope);
    if (!code)
        code = qn_driver_device(gpu->driver, &gpu->device);
    if (code)
        return code;
    find_peaks(gpu);
    return QUERN_OK;
}

void qn_gpu_close(struct qn_gpu *gpu)
{
    if (!gpu)
        return;
    if (gpu->driver)
        qn_driver_leave(gpu->driver, &gpu->scope);
    qn_nvml_close(gpu->nvml);
    free(gpu);
}

void qn_gpu_load(struct qn_gpu *gpu, struct qn_gpu_load *load)
{
    if (!gpu)
        return;
    if (!gpu->nvml_tried) /* only who asks waits for it, about a second */
        gpu->nvml = qn_nvml_open(gpu->driver, gpu->device.ordinal);
    gpu->nvml_tried = 1;
    load->clock = qn_nvml_clock(gpu->nvml);
    load->watts = qn_nvml_watts(gpu->nvml);
}

/* Twice as many of half as many bits, where there are such instructions. */
double qn_gpu_peak(const struct qn_gpu *gpu, int bits)
{
    const int version = gpu->device.major * 10 + gpu->device.minor;

    if (bits <= 4 && version >= 100)
        return 4 * gpu->peak_flops;
    return bits <= 8 && version >= 89 ? 2 * gpu->peak_flops : gpu->peak_flops;
}
