//$ -- SPDX-License-Identifier: Apache-2.0
/*
** Rows of each local expert in chunks of pairs (token, k): the first launch of a route.
**
**   index     [m, topk]              int32 or int64
**   counters  [chunks][groups + 1]   rows of each group; then the first pair that names no expert
**
** A CTA has a chunk.
*/
#define FN __device__ __forceinline__
enum { THREADS = $(threads) };

//$ include "route/pairs.c"

extern "C" __global__ void __launch_bounds__(THREADS, $(ctas))
$(name)(
    //$ include "common/params.cu"
)
{
    __shared__ unsigned int counts[MOST_GROUPS + 1];
    const struct route r = { index, sizes_bytes, m * topk, first_expert, groups, experts };
    const int chunk = blockIdx.x, chunks = count_chunks(r.pairs, gridDim.x);
    const int begin = chunk_begin(r.pairs, chunks, chunk);
    const int end = chunk_begin(r.pairs, chunks, chunk + 1);

    //$ include "common/wait.body.cu"
    if (chunk >= chunks)
        return;
    for (int i = threadIdx.x; i <= groups; i += THREADS)
        counts[i] = i < groups ? 0 : ~0u;
    __syncthreads();
    for (int i = begin + threadIdx.x; i < end; i += THREADS * TOGETHER) {
        int group[TOGETHER];

        groups_of(&r, i, THREADS, end, group);
#pragma unroll
        for (int j = 0; j < TOGETHER; j++) {
            if (group[j] >= 0)
                atomicAdd(&counts[group[j]], 1u);
            else if (group[j] == BAD_INDEX)
                atomicMin(&counts[groups], (unsigned int)(i + j * THREADS));
        }
    }
    __syncthreads();
    for (int i = threadIdx.x; i <= groups; i += THREADS)
        counters[chunk * (groups + 1) + i] = counts[i];
}
