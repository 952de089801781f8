//$ -- SPDX-License-Identifier: Apache-2.0
/*
** The gradient of each row's probability, which multiplies a bias of its group: the sum over
** features of that bias times the row's gradient, in $(input.type), is added to it.
**
**   in     [m, k]       gradients of the biased values
**   bias   [groups, k]
**   dprob  [m]          rows outside of every group are not written
**
** A warp sums a row: a lane features 2 l and 2 l + 1 of every 64 in ascending order, and then the
** lanes the sums of lanes 16, 8, .. 1 away. All in fp32.                COUPLED: dprob
*/
//$ include "quantize/head.cu"

//$ include "quantize/given.cu"

//$ include "quantize/sum_lanes.cu"

/* A lane's part of the sum of row `row`, whose group has the bias. */
template <int PAIRED>
FN float sum_part(const struct source *s, long long row, const float *bias, int lane)
{
    const in_element *in = (const in_element *)s->in + row * s->in_stride;
    const int features = s->all.k;
    float sum = 0;

#pragma unroll (PAIRED ? 4 : 1)
    for (int f = 2 * lane; f < features; f += 64) {
        const int next = f + 1 < features ? f + 1 : f;
        const packed dy = PAIRED ? *(const packed *)(in + f) : pack(in[f], in[next]);

        sum = add_rn(sum, mul_rn(lo_of(dy), __ldg(bias + f)));
        if (next > f)
            sum = add_rn(sum, mul_rn(hi_of(dy), __ldg(bias + next)));
    }
    return sum;
}

extern "C" __global__ void __launch_bounds__(THREADS, $(ctas))
$(name)(
    //$ include "common/params.cu"
)
{
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const struct shape all = { m, k, groups };
    struct source source;
    struct scheduler w;
    struct tile t;

    //$ include "common/enter.body.cu"
    source.in = in;
    source.in_stride = in_stride;
    source.all = all;
    source.paired = k % 2 == 0 && in_stride % 2 == 0 &&
                    (unsigned long long)in % $(input.bits // 4) == 0;
    //$ include "quantize/begin.body.cu"
    w.across = 1; /* a strip of 128 rows is a tile */
    while (scheduler_next(&w, &t, lane)) {
        struct group g;

        //$ include "quantize/group.body.cu"
        for (int i = t.row + warp; i < t.row + TILE_M && i < g.length; i += THREADS / 32) {
            const long long at = (long long)g.start + i;
            const float *of_group = bias + (long long)g.number * k;
            const float part = source.paired ? sum_part<1>(&source, at, of_group, lane)
                                             : sum_part<0>(&source, at, of_group, lane);
            const float sum = sum_lanes(part);

            if (lane == 0)
                dprob[at] = add_rn(dprob[at], sum);
        }
    }
    //$ include "quantize/end.body.cu"
}
