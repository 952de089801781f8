/* SPDX-License-Identifier: Apache-2.0 */
/* gpu_driver.h: the part of the CUDA driver's API that the suite itself needs,
   opened at run time, and the clock and power that NVML reports. */
#pragma once

#include <stddef.h>

typedef unsigned long long gpu_address; /* the driver's CUdeviceptr */

/* X(member, symbol, parameters); each returns the driver's code, 0 for good. */
#define GPU_DRIVER(X)                                                          \
    X(init, "cuInit", (unsigned int))                                          \
    X(driver_version, "cuDriverGetVersion", (int *))                           \
    X(device_get, "cuDeviceGet", (int *, int))                                 \
    X(device_name, "cuDeviceGetName", (char *, int, int))                      \
    X(attribute, "cuDeviceGetAttribute", (int *, int, int))                    \
    X(retain, "cuDevicePrimaryCtxRetain", (void **, int))                      \
    X(set_current, "cuCtxSetCurrent", (void *))                                \
    X(synchronize, "cuCtxSynchronize", (void))                                 \
    X(memory_info, "cuMemGetInfo_v2", (size_t *, size_t *))                    \
    X(alloc, "cuMemAlloc_v2", (gpu_address *, size_t))                         \
    X(free, "cuMemFree_v2", (gpu_address))                                     \
    X(upload, "cuMemcpyHtoD_v2", (gpu_address, const void *, size_t))          \
    X(download, "cuMemcpyDtoH_v2", (void *, gpu_address, size_t))              \
    X(upload_async, "cuMemcpyHtoDAsync_v2",                                    \
      (gpu_address, const void *, size_t, void *))                             \
    X(fill, "cuMemsetD8_v2", (gpu_address, unsigned char, size_t))             \
    X(fill_async, "cuMemsetD8Async",                                           \
      (gpu_address, unsigned char, size_t, void *))                            \
    X(stream_create, "cuStreamCreate", (void **, unsigned int))                \
    X(stream_destroy, "cuStreamDestroy_v2", (void *))                          \
    X(stream_query, "cuStreamQuery", (void *))                                 \
    X(event_create, "cuEventCreate", (void **, unsigned int))                  \
    X(event_record, "cuEventRecord", (void *, void *))                         \
    X(event_destroy, "cuEventDestroy_v2", (void *))                            \
    X(stream_wait, "cuStreamWaitEvent", (void *, void *, unsigned int))        \
    X(capture_begin, "cuStreamBeginCapture_v2", (void *, int))                 \
    X(capture_end, "cuStreamEndCapture", (void *, void **))                    \
    X(graph_instantiate, "cuGraphInstantiateWithFlags",                        \
      (void **, void *, unsigned long long))                                   \
    X(graph_launch, "cuGraphLaunch", (void *, void *))                         \
    X(graph_exec_destroy, "cuGraphExecDestroy", (void *))                      \
    X(graph_destroy, "cuGraphDestroy", (void *))                               \
    X(error_string, "cuGetErrorString", (int, const char **))

struct gpu_driver {
#define GPU_MEMBER(member, symbol, parameters) int(*member) parameters;
    GPU_DRIVER(GPU_MEMBER)
#undef GPU_MEMBER
};

extern struct gpu_driver cu;

/* The machine, for the results. */
struct gpu_device {
    char name[96];
    char driver[32]; /* version of the kernel driver, "" without NVML */
    int cuda;        /* 13000 for CUDA 13.0 */
    int major, minor;
    int sms;
    int exact; /* it sees the end of an allocation: an interpreter, or under a
                  sanitizer */
};

/* Open the driver, make device 0's primary context current. NULL, or a
   sentence on the missing part. */
const char *gpu_driver_open(struct gpu_device *device);

/* SM clock in MHz and power in W now; 0 where NVML does not say. */
void gpu_driver_load(unsigned int *mhz, double *watts);

enum { GPU_NOT_READY = 600, GPU_CAPTURE_RELAXED = 2, GPU_NON_BLOCKING = 1 };
