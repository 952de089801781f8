/* SPDX-License-Identifier: Apache-2.0 */
/* cuda_api.h: the part of the CUDA driver's interface that the runtime calls,
   declared here so that no CUDA header is needed. Values are the driver's
   stable ABI (cuda.h 12.0 and later). */
#pragma once

#include "internal.h"

#include <stddef.h>
#include <stdint.h>

struct cu_context;
struct cu_event;
struct cu_function;
struct cu_kernel;
struct cu_library;
struct cu_stream;

#define QN_CU_PER_THREAD ((struct cu_stream *)2)

enum {
    QN_CU_SUCCESS = 0,
    QN_CU_NOT_INITIALIZED = 3,
    QN_CU_STUB_LIBRARY = 34,
    QN_CU_NO_DEVICE = 100,
    QN_CU_CAPTURE_FIRST = 900, /* CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED */
    QN_CU_CAPTURE_LAST = 908   /* CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD */
};

enum {                        /* CU_DEVICE_ATTRIBUTE_... */
       QN_CU_CLOCK_RATE = 13, /* kHz, the highest */
       QN_CU_MULTIPROCESSOR_COUNT = 16,
       QN_CU_PCI_BUS_ID = 33,
       QN_CU_PCI_DEVICE_ID = 34,
       QN_CU_MEMORY_CLOCK_RATE = 36, /* kHz, two transfers each */
       QN_CU_MEMORY_BUS_WIDTH = 37,  /* bits */
       QN_CU_L2_CACHE_SIZE = 38,
       QN_CU_PCI_DOMAIN_ID = 50,
       QN_CU_COMPUTE_CAPABILITY_MAJOR = 75,
       QN_CU_COMPUTE_CAPABILITY_MINOR = 76,
       QN_CU_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN = 97
};

enum { /* CU_FUNC_ATTRIBUTE_... */
       QN_CU_MAX_DYNAMIC_SHARED_SIZE_BYTES = 8,
       QN_CU_NON_PORTABLE_CLUSTER_SIZE_ALLOWED = 14
};

enum { QN_CU_CAPTURE_NONE, QN_CU_CAPTURE_ACTIVE, QN_CU_CAPTURE_INVALIDATED };

enum { QN_CU_STREAM_NON_BLOCKING = 1 };
enum { QN_CU_EVENT_DISABLE_TIMING = 2 };

enum { /* CU_LAUNCH_ATTRIBUTE_... */
       QN_CU_ATTRIBUTE_CLUSTER_DIMENSION = 4,
       QN_CU_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION = 6
};

struct cu_attribute {
    int id;
    char pad[4];
    union {
        char pad[64];
        unsigned cluster[3];
        int allowed; /* of programmatic stream serialization */
    } value;
};

struct cu_launch {
    unsigned grid[3];
    unsigned block[3];
    unsigned shared_bytes;
    struct cu_stream *stream;
    struct cu_attribute *attributes;
    unsigned nattributes;
};

struct cu_tensor_map {
    _Alignas(128) uint64_t opaque[16];
};

enum { QN_CU_MEMORY_DEVICE = 2 };

/* CUDA_MEMCPY2D: `height` rows of `width` bytes. */
struct cu_copy {
    struct {
        size_t x, y; /* where it begins: bytes, rows */
        int memory;  /* on the device: other fields but `device` are unused */
        const void *host;
        uint64_t device;
        void *array;
        size_t pitch; /* bytes from one row to the next */
    } from, to;
    size_t width, height;
};

enum { /* CU_TENSOR_MAP_DATA_TYPE_... */
       QN_CU_UINT8 = 0,
       QN_CU_INT32 = 3,
       QN_CU_INT64 = 5,
       QN_CU_FLOAT16 = 6,
       QN_CU_FLOAT32 = 7,
       QN_CU_BFLOAT16 = 9
};

enum { QN_CU_INTERLEAVE_NONE = 0 };
enum {
    QN_CU_SWIZZLE_NONE,
    QN_CU_SWIZZLE_32B,
    QN_CU_SWIZZLE_64B,
    QN_CU_SWIZZLE_128B
};
enum { QN_CU_L2_PROMOTION_256B = 3 };
enum { QN_CU_OOB_FILL_NONE = 0 }; /* zeros */

/* X(name, arguments): symbols looked up when the driver is opened.
   All return a CUresult; 0 is success. */
#define QN_CU_FUNCTIONS(X)                                                     \
    X(cuInit, (unsigned flags))                                                \
    X(cuGetErrorString, (int result, const char **text))                       \
    X(cuDeviceGetCount, (int *count))                                          \
    X(cuDeviceGet, (int *device, int ordinal))                                 \
    X(cuDeviceGetName, (char *name, int size, int device))                     \
    X(cuDeviceGetAttribute, (int *value, int attribute, int device))           \
    X(cuDevicePrimaryCtxRetain, (struct cu_context * *context, int device))    \
    X(cuDevicePrimaryCtxRelease_v2, (int device))                              \
    X(cuCtxGetCurrent, (struct cu_context * *context))                         \
    X(cuCtxPushCurrent_v2, (struct cu_context * context))                      \
    X(cuCtxPopCurrent_v2, (struct cu_context * *context))                      \
    X(cuCtxGetDevice, (int *device))                                           \
    X(cuLibraryLoadData, (struct cu_library * *library, const void *code,      \
                          int *jit_options, void **jit_values, unsigned njit,  \
                          int *options, void **values, unsigned noptions))     \
    X(cuLibraryUnload, (struct cu_library * library))                          \
    X(cuLibraryGetKernel, (struct cu_kernel * *kernel,                         \
                           struct cu_library * library, const char *name))     \
    X(cuKernelGetFunction,                                                     \
      (struct cu_function * *function, struct cu_kernel * kernel))             \
    X(cuFuncSetAttribute,                                                      \
      (struct cu_function * function, int attribute, int value))               \
    X(cuLaunchKernelEx,                                                        \
      (const struct cu_launch *launch, struct cu_function *function,           \
       void **parameters, void **extra))                                       \
    X(cuTensorMapEncodeTiled,                                                  \
      (struct cu_tensor_map * map, int type, uint32_t rank, void *address,     \
       const uint64_t *dims, const uint64_t *strides, const uint32_t *box,     \
       const uint32_t *element_strides, int interleave, int swizzle,           \
       int l2_promotion, int oob_fill))                                        \
    X(cuTensorMapReplaceAddress, (struct cu_tensor_map * map, void *address))  \
    X(cuStreamIsCapturing, (struct cu_stream * stream, int *status))           \
    X(cuStreamGetCtx,                                                          \
      (struct cu_stream * stream, struct cu_context * *context))               \
    X(cuStreamSynchronize, (struct cu_stream * stream))                        \
    X(cuStreamCreate, (struct cu_stream * *stream, unsigned flags))            \
    X(cuStreamDestroy_v2, (struct cu_stream * stream))                         \
    X(cuStreamGetCaptureInfo,                                                  \
      (struct cu_stream * stream, int *status, uint64_t *id))                  \
    X(cuStreamWaitEvent,                                                       \
      (struct cu_stream * stream, struct cu_event * event, unsigned flags))    \
    X(cuMemcpyDtoHAsync_v2,                                                    \
      (void *to, uint64_t from, size_t bytes, struct cu_stream *stream))       \
    X(cuMemsetD8Async, (uint64_t to, unsigned char value, size_t bytes,        \
                        struct cu_stream *stream))                             \
    X(cuMemsetD32Async,                                                        \
      (uint64_t to, unsigned value, size_t count, struct cu_stream *stream))   \
    X(cuMemsetD2D8Async,                                                       \
      (uint64_t to, size_t pitch, unsigned char value, size_t width,           \
       size_t height, struct cu_stream *stream))                               \
    X(cuMemcpy2DAsync_v2,                                                      \
      (const struct cu_copy *copy, struct cu_stream *stream))                  \
    X(cuMemGetInfo_v2, (size_t * unused, size_t * total))                      \
    X(cuMemAlloc_v2, (uint64_t * address, size_t bytes))                       \
    X(cuMemFree_v2, (uint64_t address))                                        \
    X(cuMemcpyHtoD_v2, (uint64_t to, const void *from, size_t bytes))          \
    X(cuMemcpyDtoDAsync_v2,                                                    \
      (uint64_t to, uint64_t from, size_t bytes, struct cu_stream * stream))   \
    X(cuEventCreate, (struct cu_event * *event, unsigned flags))               \
    X(cuEventDestroy_v2, (struct cu_event * event))                            \
    X(cuEventRecord, (struct cu_event * event, struct cu_stream * stream))     \
    X(cuEventSynchronize, (struct cu_event * event))                           \
    X(cuEventElapsedTime,                                                      \
      (float *ms, struct cu_event *from, struct cu_event *to))

/* Symbols that older drivers lack; NULL there. */
#define QN_CU_OPTIONAL(X)                                                      \
    X(cuFuncLoad, (struct cu_function * function))                             \
    X(cuCtxGetId, (struct cu_context * context, unsigned long long *id))       \
    X(cuDriverGetVersion, (int *version))                                      \
    X(cuDeviceGetUuid, (unsigned char id[16], int device))                     \
    X(cuDeviceGetUuid_v2, (unsigned char id[16], int device))
