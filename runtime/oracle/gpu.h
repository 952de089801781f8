/* SPDX-License-Identifier: Apache-2.0 */
/* gpu.h: memory, events and figures of the GPU, for commands that run
   something. The library itself needs none of these calls. */
#pragma once

#include "base/context.h"
#include "device/driver.h"
#include "device/nvml.h"

struct quern_context;

/* X(name, arguments): looked up in the driver that the runtime has open. */
#define QN_GPU_FUNCTIONS(X)                                                    \
    X(cuMemAlloc_v2, (uint64_t * address, size_t bytes))                       \
    X(cuMemFree_v2, (uint64_t address))                                        \
    X(cuMemcpyHtoD_v2, (uint64_t to, const void *from, size_t bytes))          \
    X(cuMemcpyDtoH_v2, (void *to, uint64_t from, size_t bytes))                \
    X(cuMemsetD8_v2, (uint64_t to, unsigned char value, size_t bytes))         \
    X(cuEventCreate, (struct cu_event * *event, unsigned flags))               \
    X(cuEventDestroy_v2, (struct cu_event * event))                            \
    X(cuEventRecord, (struct cu_event * event, struct cu_stream * stream))     \
    X(cuEventSynchronize, (struct cu_event * event))                           \
    X(cuEventElapsedTime_v2,                                                   \
      (float *ms, struct cu_event *from, struct cu_event *to))                 \
    X(cuCtxSynchronize, (void))

struct qn_gpu {
    struct qn_driver *driver;
    struct qn_driver_scope scope;
    struct qn_device device;
    double peak_flops; /* dense bf16 at the highest clock; 0: unknown */
    double peak_bytes; /* per second; 0: unknown */
#define QN_GPU_FIELD(name, arguments) int(*name) arguments;
    QN_GPU_FUNCTIONS(QN_GPU_FIELD)
#undef QN_GPU_FIELD
    struct qn_nvml *nvml; /* NULL until the clock is asked for */
    int nvml_tried;
};

/* How hard the chip works; 0: unknown. */
struct qn_gpu_load {
    int clock;    /* of the multiprocessors, MHz */
    double watts; /* of the card, over the last second or less */
};

/* Make the context current that plans of this thread use, and look up the
   rest. QUERN_ENODEVICE, QUERN_ECUDA, QUERN_ENOMEM. */
int qn_gpu_open(struct quern_context *ctx, struct qn_gpu **out);
void qn_gpu_close(struct qn_gpu *gpu);

/* Ask NVML, opened for the first question; unknown fields stay. */
void qn_gpu_load(struct qn_gpu *gpu, struct qn_gpu_load *load);

/* Peak rate of tensor cores for elements of so many bits; 0: unknown. */
double qn_gpu_peak(const struct qn_gpu *gpu, int bits);

/* Call one of the functions above; evaluates to a QUERN_ code. */
#define QN_GPU(gpu, name, ...)                                                 \
    qn_driver_error((gpu)->driver, #name, (gpu)->name(__VA_ARGS__))
