//$ -- SPDX-License-Identifier: Apache-2.0
/*
** The gradient of each row's probability, which multiplies an activation's result: the sum over
** features of that result times its gradient, both in $(input.type).
**
**   in     [m, k / 2]  the result's gradient (of one operand: [m, k])
**   saved  [m, k]      the pre-activation
**   dprob  [m]         rows outside of every group are not written
**
** A warp sums a row: a lane features 2 l and 2 l + 1 of every 64 in ascending order, and then the
** lanes the sums of lanes 16, 8, .. 1 away. All in fp32.                COUPLED: dprob
*/
//$ include "quantize/head.cu"

//$ include "quantize/given.cu"

//$ include "quantize/operands.cu"

//$ include "quantize/sum_lanes.cu"

/* A lane's part of the sum of row `row`, of activation WHICH. */
template <int WHICH, int PAIRED>
FN float sum_part(const struct source *s, long long row, int features, int lane)
{
    const in_element *in = (const in_element *)s->in + row * s->in_stride;
    const in_element *from = (const in_element *)s->saved + row * s->saved_stride;
    float sum = 0;

#pragma unroll (PAIRED ? 4 : 1)
    for (int f = 2 * lane; f < features; f += 64) {
        const int next = f + 1 < features ? f + 1 : f;
        struct operands o;

        find_operands(s, &o, 0, f, features);
        find_operands(s, &o, 1, next, features);
        const packed dy = load_pair<PAIRED>(in + f, in + next);
        const packed a = load_pair<PAIRED>(from + o.a[0], from + o.a[1]);
        const packed b = load_pair<PAIRED>(from + o.b[0], from + o.b[1]);
        const float y = activate(WHICH, lo_of(a), lo_of(b), s->limit, s->slope, s->shift);
        const float z = activate(WHICH, hi_of(a), hi_of(b), s->limit, s->slope, s->shift);
        sum = add_rn(sum, mul_rn(lo_of(dy), y));
        if (next > f)
            sum = add_rn(sum, mul_rn(hi_of(dy), z));
    }
    return sum;
}

/* The rows of a strip that are the calling warp's. */
template <int WHICH>
FN void sum_rows(const struct source *s, const struct group *g, int row, int warp, int lane,
                 float *dprob)
{
    const int features = GATED >> s->activation & 1 ? s->all.k / 2 : s->all.k;

    for (int i = row + warp; i < row + TILE_M && i < g->length; i += THREADS / 32) {
        const long long at = (long long)g->start + i;
        const float part = s->paired ? sum_part<WHICH, 1>(s, at, features, lane)
                                     : sum_part<WHICH, 0>(s, at, features, lane);
        const float sum = sum_lanes(part);

        if (lane == 0)
            dprob[at] = sum;
    }
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
    //$ include "quantize/source.body.cu"
    //$ include "quantize/begin.body.cu"
    w.across = 1; /* a strip of 128 rows is a tile */
    while (scheduler_next(&w, &t, lane)) {
        struct group g;

        //$ include "quantize/group.body.cu"
        switch (activation) {
//$ for i in ipairs(activations) do
        case $(i):
            sum_rows<$(i)>(&source, &g, t.row, warp, lane, dprob);
            break;
//$ end
        }
    }
    //$ include "quantize/end.body.cu"
}
