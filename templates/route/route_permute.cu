//$ -- SPDX-License-Identifier: Apache-2.0
/*
** The order of a few pairs (token, k) by expert, then token, then k, and tokens to rows of experts
** in that order: a route and what comes after it in one launch.
**
**   index        [m, topk]      int32 or int64; at most MOST_PAIRS
**   lengths      [groups]       rows of each expert
**   starts       [groups + 1]   where they begin, and the end
**   gather       [m * topk]     row -> token * topk + k; rows past the end are not written
**   inverse      [m, topk]      the row of each pair, or -1
**   token_count  [1]            m; or null
**   in           [m, k]         tokens, in the type `input`, or null
**   probability  [m, topk]      their factors, or null
**   out          [m * topk, k]  rows
**   numbers      [m, topk], [m * topk]  of pairs and of rows: moved with them, or null
**
** Every CTA that moves tokens orders all pairs by itself. The first one stores the maps.
*/
#define FN __device__ __forceinline__
enum { THREADS = $(threads), WARPS = THREADS / 32 };
enum { MOST_PAIRS = 2048 }; /* COUPLED: few pairs */

//$ include "route/order.cu"

//$ include "route/spread.cu"

extern "C" __global__ void __launch_bounds__(THREADS, $(ctas))
$(name)(
    //$ include "common/params.cu"
)
{
    __shared__ struct room s;
    __shared__ int rows[MOST_PAIRS];
    __shared__ unsigned int bad;
    const int lane = threadIdx.x % 32, first = blockIdx.x * WARPS;
    const struct route r = { index, sizes_bytes, m * topk, first_expert, groups, experts };
    const struct moves w = { input, m, topk, k, rows, probability, (const char *)in, 0, 0,
                             (char *)out, in_stride, 0, 0, out_stride, 0 };

    //$ include "common/wait.body.cu"
    if (first > 0 && first >= count_moves(&w))
        return;
    order_chunk(&s, &r, 0, 1, 0, first > 0 ? 0 : gather, rows);
    __syncthreads();
    move_rows(&w, first + threadIdx.x / 32, gridDim.x * WARPS, lane);
    if (first > 0)
        return;
    if (threadIdx.x == 0)
        bad = ~0u;
    store_sizes(&s, groups, m, lengths, starts, token_count);
    __syncthreads();
    for (int pair = threadIdx.x; pair < r.pairs; pair += THREADS) {
        if (inverse)
            inverse[pair] = rows[pair];
        if (row_numbers && rows[pair] >= 0)
            row_numbers[rows[pair]] = pair_numbers[pair];
        if (group_of(&r, pair) == BAD_INDEX)
            atomicMin(&bad, (unsigned int)pair);
    }
    __syncthreads();
    if (threadIdx.x == 0 && bad != ~0u)
        report(&r, bad, error);
}
