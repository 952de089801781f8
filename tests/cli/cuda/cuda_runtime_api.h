/* SPDX-License-Identifier: Apache-2.0 */
/*
** cuda_runtime_api.h: a fake of the part of CUDA's runtime that examples call.
** Device memory is the host's, and a graph holds nothing; the driver is
** tests/runtime/fake_cuda.c, which records launches and computes nothing.
*/
#pragma once

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

typedef struct CUstream_st *cudaStream_t;
typedef struct CUgraph_st *cudaGraph_t;
typedef struct CUgraphExec_st *cudaGraphExec_t;
typedef int cudaError_t;

enum { cudaSuccess, cudaErrorMemoryAllocation = 2 };
enum { cudaMemcpyHostToDevice = 1, cudaMemcpyDeviceToHost };
enum { cudaStreamCaptureModeThreadLocal = 1 };

static inline const char *cudaGetErrorString(cudaError_t error)
{
    return error ? "out of memory" : "no error";
}

static inline cudaError_t cudaMalloc(void **memory, size_t bytes)
{
    *memory = calloc(1, bytes);
    return *memory ? cudaSuccess : cudaErrorMemoryAllocation;
}

static inline cudaError_t cudaFree(void *memory)
{
    free(memory);
    return cudaSuccess;
}

static inline cudaError_t cudaMemset(void *memory, int value, size_t bytes)
{
    memset(memory, value, bytes);
    return cudaSuccess;
}

static inline cudaError_t cudaMemcpyAsync(void *to, const void *from,
                                          size_t bytes, int kind,
                                          cudaStream_t stream)
{
    (void)kind;
    (void)stream;
    memcpy(to, from, bytes);
    return cudaSuccess;
}

#define FAKE(name, ...)                                                        \
    static inline cudaError_t name(__VA_ARGS__)                                \
    {                                                                          \
        return cudaSuccess;                                                    \
    }

#if defined(__GNUC__)
#pragma GCC diagnostic ignored "-Wunused-parameter"
#endif
FAKE(cudaStreamBeginCapture, cudaStream_t stream, int mode)
FAKE(cudaStreamEndCapture, cudaStream_t stream, cudaGraph_t *graph)
FAKE(cudaGraphInstantiate, cudaGraphExec_t *exec, cudaGraph_t graph,
     unsigned long long flags)
FAKE(cudaGraphLaunch, cudaGraphExec_t exec, cudaStream_t stream)
FAKE(cudaGraphExecDestroy, cudaGraphExec_t exec)
FAKE(cudaGraphDestroy, cudaGraph_t graph)
FAKE(cudaStreamSynchronize, cudaStream_t stream)
FAKE(cudaStreamDestroy, cudaStream_t stream)

/* The default stream. */
static inline cudaError_t cudaStreamCreate(cudaStream_t *stream)
{
    *stream = NULL;
    return cudaSuccess;
}
#undef FAKE
