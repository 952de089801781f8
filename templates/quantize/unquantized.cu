//$ -- SPDX-License-Identifier: Apache-2.0
/*
** For a tensor that $(recipe) keeps as $(element.type), from $(input.type):
//$ if form == "forward" then
** an activation's result, rounded to $(input.type) first.
//$ elseif form == "backward" then
** the gradient of a pre-activation, rounded to $(input.type) first.
//$ else
** the values themselves; in dbias they count as often as the row's probability says.
//$ end
**
**   row       [m, k]  $(element.type), rows padded with zeros to whole 16 bytes
**   partials          sums of 32 rows each, in order, if dbias is wanted
**
** Either may be null. Persistent CTAs take tiles of 128 x 128; a thread is concerned with two
** features of 32 rows, and no other thread needs its values.
*/
//$ include "quantize/head.cu"

//$ include "quantize/load.cu"

//$ include "quantize/coord.cu"

//$ include "quantize/dbias.cu"

//$ local weight = form == "plain" and "const float *probability, " or ""
/* A thread's values from v on, and the sums of its `rows` rows. */
FN void store_rows(unsigned char *row, long long row_stride, const struct coord *p,
                   const struct group *g, const struct tile *t, const packed *v, int rows,
                   $(weight)float sum[2])
{
    const int f = t->column + 64 * p->half + 2 * p->lane;
    const long long first = (long long)g->start + t->row + ROWS * p->part;
    const int stored = row && f < row_stride ? rows : 0;
    unsigned *to = (unsigned *)((unsigned short *)row + first * row_stride + f);

    sum[0] = sum[1] = -0.0f; /* to which -0 may be added */
#pragma unroll 8
    for (int r = 0; r < ROWS; r++) {
        if (r < stored)
            *to = to_$(element.type)_x2(lo_of(value(v, r)), hi_of(value(v, r)));
        if (r < rows) {
//$ if form == "plain" then
            const float weight = probability ? __ldg(probability + first + r) : 1;

            sum[0] = add_rn(sum[0], mul_rn(lo_of(value(v, r)), weight));
            sum[1] = add_rn(sum[1], mul_rn(hi_of(value(v, r)), weight));
//$ else
            sum[0] = add_rn(sum[0], lo_of(value(v, r)));
            sum[1] = add_rn(sum[1], hi_of(value(v, r)));
//$ end
        }
        to += row_stride / 2;
    }
}

extern "C" __global__ void __launch_bounds__(THREADS, $(ctas))
$(name)(
    //$ include "common/params.cu"
)
{
    extern __shared__ uint4 memory[];
    packed *const tile = (packed *)memory; /* the values of a tile */
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const struct shape all = { m, k, groups };
    const struct coord p = coord_here();
    struct source source;
    struct scheduler w;
    struct tile t;

    //$ include "common/enter.body.cu"
    //$ include "quantize/source.body.cu"
    //$ include "quantize/begin.body.cu"
    while (scheduler_next(&w, &t, lane)) {
        struct group g;
        float sum[2];

        //$ include "quantize/group.body.cu"
        packed *const v = tile + first_value(&p);
        const int rows = g.length - t.row - ROWS * p.part;
//$ if form == "plain" then
        __syncthreads(); /* the values before are not needed any more */
        fetch(tile, &source, &g, &t);
        copies_wait();
        __syncthreads();
//$ else
        fill(v, &source, &g, t.row + ROWS * p.part, t.column + 64 * p.half + 2 * p.lane);
//$ end
//$ local given = form == "plain" and "probability, " or ""
        store_rows(row, row_stride, &p, &g, &t, v, rows, $(given)sum);
        if (dbias)
            sum_part(partials, &p, &g, &t, &all, sum);
    }
    //$ include "quantize/end.body.cu"
}
