//$ -- SPDX-License-Identifier: Apache-2.0
//$ local many = { x = "groups of rows", dy = "groups of rows", w = "one matrix for each group" }
/*
//$ local from = input.type == "copy" and "its rowwise tensor" or input.type
** Quantize $(of) for $(recipe), from $(from), in one pass: $(many[of]).
//$ if form == "forward" then
** The quantized values are an activation's result, rounded to $(from) first.
//$ elseif form == "backward" then
** The quantized values are the gradient of a pre-activation, rounded to $(from) first.
//$ end
**
**   row     [m, k]       $(element.type), scaled along k
**   column  [k, tokens]  $(element.type), scaled along the rows: transposed, each group from a
**                        multiple of 128 on, with zeros up to the next one
**   partials             sums of 32 rows each, in order, if dbias is wanted
**
** Either quantized tensor may be null. Persistent CTAs take tiles of 128 x 128, whose values they
//$ if stages == 2 then
** load into shared memory, those of the next tile while they work on one.
//$ else
** load into shared memory.
//$ end
** A thread is concerned with two features of 32 rows, so that sums and maxima along the rows need
** no other thread, and pairs of rows become neighbours in the columnwise tensor; those along the
** features go through shuffles.
*/
//$ include "quantize/head.cu"

//$ include "quantize/load.cu"

//$ include "quantize/advance.cu"

//$ include "quantize/coord.cu"

//$ include "quantize/maxima.cu"

//$ if scale.global then
/* From a group's largest magnitude: the stored scale, and the argument of the blocks' rule. */
//$ rule "global"

//$ end
/* From a block's largest magnitude: the stored scale, and the values' factor. */
//$ rule "scale"

//$ include "quantize/copies.cu"

//$ if scale.stochastic then
//$ include "quantize/random.cu"

//$ end
//$ include "quantize/factors.cu"

//$ if of ~= "w" then
//$ include "quantize/dbias.cu"

//$ if scale.global or scale.span == "group" or scale.span == "row" then
//$ include "quantize/empty.cu"

//$ end
//$ end
//$ include "quantize/cast_tile.cu"

extern "C" __global__ void __launch_bounds__(THREADS, $(ctas))
$(name)(
    //$ include "common/params.cu"
)
{
    extern __shared__ uint4 memory[];
    __shared__ struct shared shared;
    __shared__ struct schedule schedule;
//$ local tiles = stages == 2 and "two tiles" or "a tile"
    packed *const staged = (packed *)memory; /* the values of $(tiles) */
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const struct shape all = { m, k, groups };
//$ local more = scale.stochastic and ", random" or scale.delayed and ", scale" or ""
//$ local row = input.type == "copy" and "0" or "row" -- then it is read, not made
    const struct copy row_copy = { $(row), row_stride, (sf_element *)row_sf, row_global,
                                   row_amax$(more) };
    const struct copy column_copy = { column, column_stride, (sf_element *)column_sf,
                                      column_global, column_amax$(more) };
    struct source source;
//$ if scale.delayed then
    float most = 0; /* of the thread's values */
//$ end

    //$ include "common/enter.body.cu"
    //$ include "quantize/source.body.cu"
    //$ include "quantize/schedule.body.cu"
//$ if stages == 2 then
    load(&schedule.work[0], &source, staged);
//$ end
    for (int slot = 0; schedule.work[slot].tile.group >= 0; slot = (slot + 1) % 64) {
        const struct tile t = schedule.work[slot].tile;
        const struct group g = group_of(&schedule.work[slot]$(of == "w" and ", &all" or ""));
        const struct coord p = coord_here();
//$ if stages == 2 then
        packed *const tile = staged + slot % 2 * TILE_VALUES;

        copies_wait();
        __syncthreads(); /* the values are there, the other stage is free */
        load(&schedule.work[(slot + 1) % 64], &source, staged + (slot + 1) % 2 * TILE_VALUES);
//$ else
        packed *const tile = staged;

        __syncthreads(); /* the stage is free */
//$ if form == "plain" and input.type ~= "copy" then
        load(&schedule.work[slot], &source, tile);
        copies_wait();
        __syncthreads(); /* the values are there */
//$ else
        fill(tile + first_value(&p), &source, &g, t.row + ROWS * p.part,
             t.column + 64 * p.half + 2 * p.lane);
        __syncwarp(); /* the warp's rows are there */
//$ end
//$ end
        if (slot % 32 == 0 && p.warp == 0)
            look_ahead(&schedule, 1 - slot / 32, p.lane);
//$ if scale.delayed then
        const magnitudes both = largest_of<ROWS>(tile + first_value(&p));
        most = larger(most, larger(low_of(both), high_of(both)));
//$ end
//$ if of ~= "w" then
        /* Groups that overlap would not fit into the columnwise tensor. */
        if ((unsigned int)(g.first + t.row / TILE_M) >= (unsigned int)most_tiles(&all)) {
            __syncthreads();
            continue;
        }
        cast_tile(&shared, &p, &g, &t, &all, &row_copy, &column_copy, tile, dbias ? partials : 0);
//$ else
        cast_tile(&shared, &p, &g, &t, &all, &row_copy, &column_copy, tile);
//$ end
    }
//$ if scale.delayed then
    most = reduce_lanes<32>(most);
    if (lane == 0)
        atomicMax((unsigned int *)history, bits_of(most));
//$ end
//$ if of ~= "w" then
//$ if scale.global or scale.span == "group" or scale.span == "row" then
//$ local row = scale.span == "row" and "" or "&row_copy, "
    do_empty(first_dims, offsets, sizes_bytes, &all, $(row)&column_copy);
//$ end
    //$ include "quantize/end.body.cu"
//$ end
}
