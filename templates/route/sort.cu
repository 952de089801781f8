//$ -- SPDX-License-Identifier: Apache-2.0
/*
** The order of pairs (token, k) by expert, then token, then k: the second launch of a route, a
** stable counting sort.
**
**   index     [m, topk]              int32 or int64
**   counters  [chunks][groups + 1]   of the first launch, by as many CTAs
**   lengths   [groups]               rows of each expert
**   starts    [groups + 1]           where they begin, and the end
**   gather    [m * topk]             row -> token * topk + k; rows past the end are not written
**   inverse   [m, topk]              the row of each pair, or -1
**   token_count  [1]                 m; or null
**
** A CTA has a chunk, a warp an eighth of it, which it goes through in order, 32 pairs at a time.
*/
#define FN __device__ __forceinline__
enum { THREADS = $(threads), WARPS = THREADS / 32 };

//$ include "route/order.cu"

/* Record the first pair of all chunks that names no expert. By one warp. */
FN void report_first(const struct route *r, const unsigned int *counters, int chunks, int lane,
                     unsigned int *error)
{
    unsigned int first = ~0u;

    for (int i = lane; i < chunks; i += 32)
        first = min(first, __ldg(counters + i * (r->groups + 1) + r->groups));
    first = __reduce_min_sync(~0u, first);
    if (lane == 0 && first != ~0u)
        report(r, first, error);
}

extern "C" __global__ void __launch_bounds__(THREADS, $(ctas))
$(name)(
    //$ include "common/params.cu"
)
{
    __shared__ struct room s;
    const struct route r = { index, sizes_bytes, m * topk, first_expert, groups, experts };
    const int chunk = blockIdx.x, chunks = count_chunks(r.pairs, gridDim.x);

    //$ include "common/wait.body.cu"
    if (chunk >= chunks)
        return;
    order_chunk(&s, &r, counters, chunks, chunk, gather, inverse);
    if (chunk > 0)
        return;
    store_sizes(&s, groups, m, lengths, starts, token_count);
    if (threadIdx.x < 32)
        report_first(&r, counters, chunks, threadIdx.x, error);
}
