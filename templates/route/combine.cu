//$ -- SPDX-License-Identifier: Apache-2.0
/*
** Rows of experts to tokens.
**
**   in           [m * topk, k]  rows, in the type `input`
**   inverse      [m, topk]      the row of each pair; other values than rows: none
**   probability  [m, topk]      its factor, or null
**   c            [m, k]         the residual, or null; may be out
**   out          [m, k]         sums, in the order of k, or null
**   addresses    [m]            of tokens, in place of out, 0: none; or null. Tokens without rows
**                               are not written there
**   numbers      [m, topk], [m * topk]  of pairs and of rows: those of rows moved to their pairs,
**                               0 without a row; or null
**
** A warp has 256 features of a token; or, of fp32 or where rows are not at multiples of 16 bytes, a
** token.
*/
#define FN __device__ __forceinline__
enum { THREADS = $(threads) };

//$ include "route/gathered.cu"

extern "C" __global__ void __launch_bounds__(THREADS, $(ctas))
$(name)(
    //$ include "common/params.cu"
)
{
    const int lane = threadIdx.x % 32, warps = gridDim.x * (THREADS / 32);
    const int warp = blockIdx.x * (THREADS / 32) + threadIdx.x / 32;
    const struct moves w = { input, m, topk, k, inverse, probability, (const char *)in, 0,
                             (const char *)c, (char *)out, in_stride, 0, c_stride, out_stride,
                             addresses };

    //$ include "common/wait.body.cu"
    if (row_numbers) {
        for (int pair = warp * 32 + lane; pair < m * topk; pair += warps * 32) {
            const int row = row_of(&w, pair);

            pair_numbers[pair] = row < 0 ? 0 : row_numbers[row];
        }
    }
    if (!out && !addresses)
        return;
    if (input != IN_F32 && is_even(&w, in, in_stride)) {
        const int spans = (k - 1) / (EACH * 32) + 1;

        for (long long i = warp; i < (long long)m * spans; i += warps)
            gather_rows(&w, (int)(i / spans), ((int)(i % spans) * 32 + lane) * EACH, lane);
        return;
    }
    for (int token = warp; token < m; token += warps)
        for (int f = EACH * lane; f < k; f += EACH * 32)
            combine(&w, token, f);
}
