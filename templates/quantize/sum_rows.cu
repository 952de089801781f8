//$ -- SPDX-License-Identifier: Apache-2.0
/*
** dprob in $(recipe): the sums of 64 columns each, which a product that goes back through an
** activation leaves in the workspace, added up in ascending order.
**
**   row_partials  [ceil(k / 64), m]
**   dprob         [m]               rows outside of every group are not written
**
** A thread has a row of a strip.                                        COUPLED: row partials
*/
//$ include "quantize/head.cu"

enum { COLUMNS = 64 };

extern "C" __global__ void __launch_bounds__(THREADS, $(ctas))
$(name)(
    //$ include "common/params.cu"
)
{
    const int lane = threadIdx.x % 32, count = ceil_div(k, COLUMNS);
    struct scheduler w;
    struct tile t;

    //$ include "common/enter.body.cu"
    //$ include "quantize/begin.body.cu"
    w.across = 1; /* a strip of 128 rows is a tile */
    while (scheduler_next(&w, &t, lane)) {
        const int row = t.row + (int)threadIdx.x;
        const long long at = (long long)t.start + row;
        float sum = -0.0f; /* to which -0 may be added */

#pragma unroll 8
        for (int i = 0; i < count; i++)
            if (row < (int)t.length)
                sum = add_rn(sum, __ldg(row_partials + (long long)i * m + at));
        if (row < (int)t.length)
            dprob[at] = sum;
    }
}
