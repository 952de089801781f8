//$ -- SPDX-License-Identifier: Apache-2.0
//$ if arch == "host" then
#define FN static inline __attribute__((unused))
#define ENTRY void
#define EACH(i, count) for (long i = 0; i < count; i++)
//$ else
#define FN static __device__ __forceinline__
#define ENTRY extern "C" __global__ void
#define EACH(i, count) \
    for (long i = blockIdx.x * (long)blockDim.x + threadIdx.x; i < count; \
         i += (long)gridDim.x * blockDim.x)
//$ end
