/* SPDX-License-Identifier: Apache-2.0 */
/* gpu_driver.c: libcuda and NVML by dlopen. */
#include "gpu_driver.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

struct gpu_driver cu;

static struct {
    void *device;
    int (*init)(void);
    int (*handle)(unsigned int, void **);
    int (*clock)(void *, int, unsigned int *);
    int (*power)(void *, unsigned int *);
    int (*driver)(char *, unsigned int);
} nvml;

enum { CC_MAJOR = 75, CC_MINOR = 76, SM_COUNT = 16, NVML_CLOCK_SM = 1 };

/* NULL, or the missing part. */
static const char *load_driver(void)
{
    const char *path = getenv("QUERN_CUDA"); /* as the runtime does */
    void *library = dlopen(path ? path : "libcuda.so.1", RTLD_NOW);

    if (!library)
        return "libcuda.so.1: no CUDA driver on this machine";
#define GPU_LOAD(member, symbol, parameters)                                   \
    *(void **)&cu.member = dlsym(library, symbol);                             \
    if (!cu.member)                                                            \
        return "libcuda.so.1: too old, has no " symbol;
    GPU_DRIVER(GPU_LOAD)
#undef GPU_LOAD
    return NULL;
}

/* NVML is a courtesy: without it the results lack the clock. */
static void load_nvml(struct gpu_device *device)
{
    void *library = dlopen("libnvidia-ml.so.1", RTLD_NOW);

    if (!library)
        return;
    *(void **)&nvml.init = dlsym(library, "nvmlInit_v2");
    *(void **)&nvml.handle = dlsym(library, "nvmlDeviceGetHandleByIndex_v2");
    *(void **)&nvml.clock = dlsym(library, "nvmlDeviceGetClockInfo");
    *(void **)&nvml.power = dlsym(library, "nvmlDeviceGetPowerUsage");
    *(void **)&nvml.driver = dlsym(library, "nvmlSystemGetDriverVersion");
    if (!nvml.init || !nvml.handle || !nvml.clock || !nvml.power ||
        !nvml.driver || nvml.init() || nvml.handle(0, &nvml.device))
        nvml.device = NULL;
    else
        nvml.driver(device->driver, sizeof device->driver);
}

const char *gpu_driver_open(struct gpu_device *device)
{
    const char *missing = load_driver();
    void *context;
    int id;

    memset(device, 0, sizeof *device);
    if (missing)
        return missing;
    if (cu.init(0) || cu.device_get(&id, 0))
        return "the CUDA driver finds no GPU";
    if (cu.device_name(device->name, sizeof device->name, id) ||
        cu.attribute(&device->major, CC_MAJOR, id) ||
        cu.attribute(&device->minor, CC_MINOR, id) ||
        cu.attribute(&device->sms, SM_COUNT, id) ||
        cu.driver_version(&device->cuda))
        return "the CUDA driver does not describe device 0";
    if (cu.retain(&context, id) || cu.set_current(context))
        return "the CUDA driver gives no context on device 0";
    load_nvml(device);
    return NULL;
}

void gpu_driver_load(unsigned int *mhz, double *watts)
{
    unsigned int milliwatts = 0;

    *mhz = 0;
    if (nvml.device) {
        nvml.clock(nvml.device, NVML_CLOCK_SM, mhz);
        nvml.power(nvml.device, &milliwatts);
    }
    *watts = milliwatts / 1000.0;
}
