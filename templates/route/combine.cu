//$ -- SPDX-License-Identifier: Apache-2.0
/*
** Rows of experts to tokens.
**
**   in           [m * topk, k]  rows, in the type `input`
**   inverse      [m, topk]      the row of each pair; other values than rows: none
**   probability  [m, topk]      its factor, or null
**   c            [m, k]         the residual, or null; may be out
**   out          [m, k]         sums, in the order of k
**
** A warp has a token.
*/
#define FN __device__ __forceinline__
enum { THREADS = $(threads) };

//$ include "route/combine.c"

extern "C" __global__ void __launch_bounds__(THREADS, $(ctas))
$(name)(
    //$ include "common/params.cu"
)
{
    const int lane = threadIdx.x % 32, warps = gridDim.x * (THREADS / 32);
    const struct moves w = { input, m, topk, k, inverse, probability, (const char *)in, 0,
                             (const char *)c, (char *)out, in_stride, 0, c_stride, out_stride };

    //$ include "common/wait.body.cu"
    for (int token = blockIdx.x * (THREADS / 32) + threadIdx.x / 32; token < m; token += warps)
        for (int f = EACH * lane; f < k; f += EACH * 32)
            combine(&w, token, f);
}
