//$ -- SPDX-License-Identifier: Apache-2.0
/*
** The largest magnitudes that quantizing needs before it begins: $(of) in $(recipe), from
** $(input.type == "copy" and "its rowwise tensor" or input.type).
**
//$ if scale.span == "row" then
**   row_amax     [m]          of each row
**   column_amax  [groups, k]  of each feature of each group
//$ elseif scale.span == "tensor" then
**   row_amax, column_amax  [1]  of all of it
//$ else
**   row_amax, column_amax  [groups]  of each group
//$ end
**
//$ local same = scale.span == "row" and "" or ", and both may be the same"
** As bits, which are ordered as the magnitudes are; all zero before. NaN is left out. Either may be
** null$(same). The order of comparisons does not matter, so atomics do no harm.
*/
//$ include "quantize/head.cu"

//$ include "quantize/load.cu"

//$ include "quantize/advance.cu"

//$ include "quantize/coord.cu"

//$ include "quantize/maxima.cu"

//$ local separate = scale.span == "row" or scale.hadamard
//$ if scale.span ~= "row" then
/* The largest of a warp so far; handed in when the group changes. */
struct most {
    int group;
    float row, column;
};

FN void hand_in(struct most *most, unsigned int *row_amax, unsigned int *column_amax, int lane)
{
    const float row = reduce_lanes<32>(most->row), column = reduce_lanes<32>(most->column);

    if (lane == 0 && row_amax && row > 0)
        atomicMax(row_amax + most->group, bits_of(row));
    if (lane == 0 && column_amax && column > 0)
        atomicMax(column_amax + most->group, bits_of(column));
    most->row = most->column = 0;
}

//$ end
extern "C" __global__ void __launch_bounds__(THREADS, $(ctas))
$(name)(
    //$ include "common/params.cu"
)
{
    extern __shared__ uint4 memory[];
    __shared__ struct schedule schedule;
//$ local tiles = stages == 2 and "two tiles" or "a tile"
    packed *const staged = (packed *)memory; /* the values of $(tiles) */
    const struct coord p = coord_here();
    const int warp = p.warp, lane = p.lane;
    const struct shape all = { m, k, groups };
    struct source source;
//$ if scale.span ~= "row" then
    struct most most = { 0, 0, 0 };
//$ end

    //$ include "common/enter.body.cu"
    //$ include "quantize/source.body.cu"
    //$ include "quantize/schedule.body.cu"
//$ if stages == 2 then
    load(&schedule.work[0], &source, staged);
//$ end
    for (int slot = 0; schedule.work[slot].tile.group >= 0; slot = (slot + 1) % 64) {
        const struct group g = group_of(&schedule.work[slot]$(of == "w" and ", &all" or ""));
//$ if scale.span == "row" or form ~= "plain" or input.type == "copy" then
        const struct tile t = schedule.work[slot].tile;
        const int row = t.row + ROWS * p.part, feature = t.column + 64 * p.half + 2 * lane;
//$ end
//$ if stages == 2 then
        const packed *const v = staged + slot % 2 * TILE_VALUES + first_value(&p);

        copies_wait();
        __syncthreads(); /* the values are there, the other stage is free */
        load(&schedule.work[(slot + 1) % 64], &source, staged + (slot + 1) % 2 * TILE_VALUES);
//$ else
        packed *const v = staged + first_value(&p);

        __syncthreads(); /* the stage is free */
//$ if form == "plain" and input.type ~= "copy" then
        load(&schedule.work[slot], &source, staged);
        copies_wait();
        __syncthreads(); /* the values are there */
//$ else
        fill(v, &source, &g, row, feature);
        __syncwarp(); /* the warp's rows are there */
//$ end
//$ end
        if (slot % 32 == 0 && warp == 0)
            look_ahead(&schedule, 1 - slot / 32, lane);
//$ if scale.span == "row" then
        if (row_amax) {
            const int line = row + lane;
            float of_row[1];
            largest_of_row(v - lane, lane, of_row);
//$ local first = of == "w" and "(long long)g.number * m" or "(long long)g.start"
            if (line < g.length && of_row[0] > 0)
                atomicMax(row_amax + $(first) + line, bits_of(of_row[0]));
        }
        if (column_amax) {
//$ if scale.hadamard then
            const float most[2] = { largest_transformed<ROWS>(v, 0),
                                    largest_transformed<ROWS>(v, 1) };
//$ else
            const magnitudes both = largest_of<ROWS>(v);
            const float most[2] = { low_of(both), high_of(both) };
//$ end
#pragma unroll
            for (int second = 0; second < 2; second++)
                if (feature + second < k && most[second] > 0)
                    atomicMax(column_amax + (long long)g.number * k + feature + second,
                              bits_of(most[second]));
        }
//$ else
//$ if scale.span == "group" or scale.global then
        if (g.number != most.group)
            hand_in(&most, row_amax, column_amax == row_amax ? 0 : column_amax, lane);
        most.group = g.number;
//$ end
        const magnitudes both = largest_of<ROWS>(v);
        most.row = larger(most.row, larger(low_of(both), high_of(both)));
//$ if scale.hadamard then
        if (column_amax) {
#pragma unroll
            for (int second = 0; second < 2; second++)
                most.column = larger(most.column, largest_transformed<ROWS>(v, second));
        }
//$ else
        most.column = most.row;
//$ end
//$ end
    }
//$ if scale.span ~= "row" then
    hand_in(&most, row_amax, column_amax == row_amax ? 0 : column_amax, lane);
//$ end
}
