/* SPDX-License-Identifier: Apache-2.0 */
/* nvml.c: a GPU's clock and power. */
#include "device/nvml.h"
#include "device/driver.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

enum { CLOCK_SM = 1 };

/* A figure of the device; 0 where the driver has none. */
static unsigned attribute(struct qn_driver *driver, int device, int which)
{
    int value = 0;

    driver->cuDeviceGetAttribute(&value, which, device);
    return (unsigned)value;
}

/* NVML counts devices on its own; the bus address tells which is ours. */
static int find_device(struct qn_nvml *nvml, struct qn_driver *driver,
                       int device)
{
    int (*init)(void), (*by_bus)(const char *, void **);
    char bus[32];

    *(void **)&init = dlsym(nvml->library, "nvmlInit_v2");
    *(void **)&by_bus =
        dlsym(nvml->library, "nvmlDeviceGetHandleByPciBusId_v2");
    *(void **)&nvml->clock = dlsym(nvml->library, "nvmlDeviceGetClockInfo");
    *(void **)&nvml->power = dlsym(nvml->library, "nvmlDeviceGetPowerUsage");
    if (!init || !by_bus || !nvml->clock || init() != 0)
        return 0;
    snprintf(bus, sizeof bus, "%04x:%02x:%02x.0",
             attribute(driver, device, QN_CU_PCI_DOMAIN_ID),
             attribute(driver, device, QN_CU_PCI_BUS_ID),
             attribute(driver, device, QN_CU_PCI_DEVICE_ID));
    return by_bus(bus, &nvml->device) == 0;
}

struct qn_nvml *qn_nvml_open(struct qn_driver *driver, int device)
{
    struct qn_nvml *nvml = calloc(1, sizeof *nvml);

    if (!nvml)
        return NULL;
    nvml->library = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
    if (nvml->library && find_device(nvml, driver, device))
        return nvml;
    qn_nvml_close(nvml);
    return NULL;
}

void qn_nvml_close(struct qn_nvml *nvml)
{
    if (nvml && nvml->library)
        dlclose(nvml->library);
    free(nvml);
}

int qn_nvml_clock(struct qn_nvml *nvml)
{
    unsigned mhz = 0;

    if (!nvml || !nvml->clock || nvml->clock(nvml->device, CLOCK_SM, &mhz) != 0)
        return 0;
    return (int)mhz;
}

double qn_nvml_watts(struct qn_nvml *nvml)
{
    unsigned milliwatts = 0;

    if (!nvml || !nvml->power || nvml->power(nvml->device, &milliwatts) != 0)
        return 0;
    return milliwatts * 1e-3;
}
