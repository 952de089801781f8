/* SPDX-License-Identifier: Apache-2.0 */
/* fake_nvml.c: a library that knows one device by the bus address that the fake
   driver gives, and its clock and power. Tests open it as libnvidia-ml.so.1. */
#include "fake.h"

#include <string.h>

/* All four as NVML has them; these declarations replace a header. */
FAKE_API int nvmlInit_v2(void);
FAKE_API int nvmlDeviceGetHandleByPciBusId_v2(const char *bus, void **device);
FAKE_API int nvmlDeviceGetClockInfo(void *device, int type, unsigned *mhz);
FAKE_API int nvmlDeviceGetPowerUsage(void *device, unsigned *milliwatts);

enum { NOT_FOUND = 6, INVALID = 2, CLOCK_SM = 1 };

static int place;

int nvmlInit_v2(void)
{
    return 0;
}

int nvmlDeviceGetHandleByPciBusId_v2(const char *bus, void **device)
{
    *device = &place;
    return strcmp(bus, "0000:00:00.0") ? NOT_FOUND : 0;
}

int nvmlDeviceGetClockInfo(void *device, int type, unsigned *mhz)
{
    if (device != &place || type != CLOCK_SM)
        return INVALID;
    *mhz = 1485;
    return 0;
}

int nvmlDeviceGetPowerUsage(void *device, unsigned *milliwatts)
{
    if (device != &place)
        return INVALID;
    *milliwatts = 432500;
    return 0;
}
