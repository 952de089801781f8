//$ -- SPDX-License-Identifier: Apache-2.0
//$ local back = form == "backward"
/*
** The code below a product whose kernel stops at its sums: an epilogue in a launch of its own, with
** the bits of one that is fused.
**
//$ if back then
**   in            [m, k]   alpha * a * b^T in fp32, dh
**   saved         [m, 2 k] the pre-activation, $(input.type) (of one operand: [m, k])
**   d             the same: dh * probability * activation'(saved), in this order
**   partials      sums of 32 rows of d each, for dbias; or null
**   row_partials  [ceil(k / 64), m]  sums of 64 columns of dh * activation(saved), or null
//$ else
**   in     [m, 2 k]  alpha * a * b^T in fp32 ([m, k] for one operand)
**   saved  the same, and the bias: the pre-activation, $(input.type); or null
**   d      [m, k]    activation(in + bias) * probability, in this order; without an activation
**                    in + bias * probability
//$ end
**
** All of it is in fp32 and rounded once, to $(input.type). Rows outside of every group are not
** written. Persistent CTAs go through tiles of 128 x 128 results; half a warp has 32 rows of one.
*/
//$ include "quantize/head.cu"

//$ include "quantize/epilogue_rows.cu"

/* The caller's arguments, common to all tiles. */
struct work {
    const float *in;
    $(input.type)_element *d, *saved;
    long long in_stride, d_stride, saved_stride;
    int in_how, d_how, saved_how;
    const float *probability; /* or null */
    int activation;
    float limit, slope, shift;
//$ if back then
    float *partials, *row_partials;
    int rows; /* of all groups */
//$ else
    const float *bias; /* or null */
//$ end
};

/* The start and number of a thread's rows; at least those of a warp's first half. */
struct rows {
    long long first;
    int count, most;
};

//$ include("quantize/epilogue_" .. form .. ".cu")

extern "C" __global__ void __launch_bounds__(THREADS, $(ctas))
$(name)(
    //$ include "common/params.cu"
)
{
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const struct shape all = { m, k, groups };
//$ if back then
    __shared__ __align__(16) float terms[THREADS / 32][TERMS];
//$ end
    struct work work;
    struct scheduler w;
    struct tile t;

    //$ include "common/enter.body.cu"
    //$ include "quantize/epilogue_work.body.cu"
    //$ include "quantize/begin.body.cu"
    while (scheduler_next(&w, &t, lane)) {
        struct group g;
        struct rows rows;

        //$ include "quantize/group.body.cu"
        const int half = 2 * warp + lane / 16, row = t.row + ROWS * half;
        rows.first = (long long)g.start + row;
        rows.count = g.length - row;
        rows.most = g.length - t.row - 2 * ROWS * warp;
        const int result = t.column + EIGHT * (lane % 16);
        const struct columns c = columns_at(result, k, interleave, two);
//$ if back then
        finish_rows(&work, &rows, &c, g.first * (TILE_M / ROWS) + row / ROWS, terms[warp]);
//$ else
        finish_rows(&work, &rows, &c, (long long)g.number * (two ? 2 : 1) * k);
//$ end
    }
}
