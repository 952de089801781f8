//$ -- SPDX-License-Identifier: Apache-2.0
/*
** Tokens to rows of experts, and the gradient of their probabilities.
**
**   in           [m, k]         tokens, in the type `input`
**   inverse      [m, topk]      the row of each pair; other values than rows: none
**   probability  [m, topk]      its factor, or null
**   out          [m * topk, k]  rows, or null
**   rows         [m * topk, k]  of the same order, or null
**   dprob        [m, topk]      sums of in times rows, 0 without a row; or null
**   numbers      [m, topk], [m * topk]  of pairs and of rows: moved with them, or null
**
** A warp has a span of a token's features and stores it for each pair; for dprob, or where rows are
** not at multiples of 16 bytes, it has a token, and its pairs in turn.
*/
#define FN __device__ __forceinline__
enum { THREADS = $(threads) };

//$ include "route/spread.cu"

//$ include "quantize/sum_lanes.cu"

extern "C" __global__ void __launch_bounds__(THREADS, $(ctas))
$(name)(
    //$ include "common/params.cu"
)
{
    const int lane = threadIdx.x % 32, warps = gridDim.x * (THREADS / 32);
    const int warp = blockIdx.x * (THREADS / 32) + threadIdx.x / 32;
    const struct moves w = { input, m, topk, k, inverse, probability, (const char *)in,
                             (const char *)rows, 0, (char *)out, in_stride, rows_stride, 0,
                             out_stride, 0 };

    //$ include "common/wait.body.cu"
    if (row_numbers) {
        for (int pair = warp * 32 + lane; pair < m * topk; pair += warps * 32)
            if (row_of(&w, pair) >= 0)
                row_numbers[row_of(&w, pair)] = pair_numbers[pair];
    }
    if (!dprob) {
        move_rows(&w, warp, warps, lane);
        return;
    }
    for (int token = warp; token < m; token += warps) {
        for (int pair = token * topk; pair < (token + 1) * topk; pair++) {
            const int row = row_of(&w, pair);
            const float own = row >= 0 ? move_pair(&w, token, pair, row, lane) : 0;
            const float sum = sum_lanes(own);

            if (lane == 0)
                dprob[pair] = sum;
        }
    }
}
