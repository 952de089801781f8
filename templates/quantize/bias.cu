//$ -- SPDX-License-Identifier: Apache-2.0
/*
** A bias of each group, added to its rows in place: values in $(input.type), each rounded once.
**
**   out          [m, k]       rows outside of every group are not written
**   bias         [groups, k]
**   probability  [m]          the row's bias is multiplied by it; or null
**
** Persistent CTAs take tiles of 128 x 128; a warp has every 8th row of one.
*/
//$ include "quantize/head.cu"

//$ include "quantize/given.cu"

/* One element of a row. */
FN void add_bias(in_element *to, float bias)
{
//$ if input.bits == 16 then
    *to = (in_element)to_$(input.type)(add_rn(from_$(input.type)(*to), bias));
//$ else
    *to = add_rn(*to, bias);
//$ end
}

extern "C" __global__ void __launch_bounds__(THREADS, $(ctas))
$(name)(
    //$ include "common/params.cu"
)
{
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const struct shape all = { m, k, groups };
    struct scheduler w;
    struct tile t;

    //$ include "common/enter.body.cu"
    //$ include "quantize/begin.body.cu"
    while (scheduler_next(&w, &t, lane)) {
        struct group g;

        //$ include "quantize/group.body.cu"
        const float *from = bias + (long long)g.number * k;
        for (int i = t.row + warp; i < t.row + TILE_M && i < g.length; i += THREADS / 32) {
            const long long at = (long long)g.start + i;
            const float weight = probability ? __ldg(probability + at) : 1;
            in_element *row = (in_element *)out + at * out_stride;

#pragma unroll
            for (int j = 0; j < TILE_N / 32; j++) {
                const int f = t.column + 32 * j + lane;
                if (f < k)
                    add_bias(row + f, mul_rn(__ldg(from + f), weight));
            }
        }
    }
    //$ include "quantize/end.body.cu"
}
