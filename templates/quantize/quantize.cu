//$ local many = { x = "groups of rows", dy = "groups of rows", w = "one matrix for each group" }
/*
//$ local from = input.type == "copy" and "its row copy" or input.type
** Quantize $(of) for $(recipe), from $(from), in one pass: $(many[of]).
//$ if form == "forward" then
** What is quantized is an activation's result, rounded to $(from) first.
//$ elseif form == "backward" then
** What is quantized is the gradient of what an activation was given, rounded to $(from) first.
//$ end
**
**   row     [m, k]       $(element.type), scaled along k
**   column  [k, tokens]  $(element.type), scaled along the rows: transposed, each group from a
**                        multiple of 128 on, with zeros up to the next one
**   dbias   [groups, k]  sums over the rows: of 32 rows each, in order, then of these
**
** Any of the three may be null. Persistent CTAs walk over tiles of 128 x 128. A thread holds two
** features of 32 rows, so that sums and maxima along the rows need no other thread, and pairs of
** rows become neighbours in the column copy; those along the features go through shuffles.
*/
//$ include "quantize/head.cu"

//$ include "quantize/advance.cu"

//$ include "quantize/load.cu"

//$ include "quantize/maxima.cu"

//$ if scale.global then
/* From a group's largest magnitude: what is stored, and what the rule of blocks goes by. */
//$ rule "global"

//$ end
/* From a block's largest magnitude: what is stored, and what values are multiplied by. */
//$ rule "scale"

//$ include "quantize/copies.cu"

//$ if scale.stochastic then
//$ include "quantize/random.cu"

//$ end
//$ include "quantize/factors.cu"

//$ include "quantize/cast_tile.cu"

//$ include "quantize/dbias.cu"

extern "C" __global__ void __launch_bounds__(THREADS, $(ctas))
$(name)(
//$ for _, p in ipairs(params) do
    $(p.type)$(p.type:sub(-1) == "*" and "" or " ")$(p.name)$(p.comma)
//$ end
)
{
    __shared__ struct shared shared;
    __shared__ struct agenda agenda;
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

//$ include "quantize/source.cu"
    if (warp == 0) {
        struct walk w;
//$ include "quantize/begin.cu"
        agenda.walk[lane] = w;
    }
    while (advance(&agenda, warp, lane)) {
        const struct tile t = agenda.tile;
//$ if of == "w" then
        const struct group g = { t.group, 0, m, 0 };
//$ else
        const struct group g = { t.group, t.start, (int)t.length, agenda.first };
//$ end
        const struct place p = place_here();
        held v[ROWS];
        float sum[2];

        /* Groups that overlap would not fit into the column copy. */
        if ($(of == "w" and "1" or "g.first + t.row / TILE_M < most_tiles(&all)")) {
            load_rows(&source, &g, t.row + ROWS * p.part, t.column + 64 * p.half + 2 * p.lane, v);
//$ if scale.delayed then
            const magnitudes m = largest_of<ROWS>(v);
            most = larger(most, larger(low_of(m), high_of(m)));
//$ end
            cast_tile(&shared, &p, &g, &t, &all, &row_copy, &column_copy, v, sum);
//$ if of ~= "w" then
            if (dbias)
                sum_tile(&shared, &p, &g, &t, k, sum, dbias, partials, counters);
//$ end
        }
        __syncthreads(); /* the tile has been read, the stage is free again */
    }
//$ if scale.delayed then
    most = reduce_lanes<32>(most);
    if (lane == 0)
        atomicMax((unsigned int *)history, bits_of(most));
//$ end
//$ if of ~= "w" then
    do_empty(first_dims, offsets, sizes_bytes, &all, &row_copy, &column_copy, dbias);
    if (blockIdx.x == gridDim.x - 1 && warp == 0) /* it has the fewest tiles */
        check_sizes(first_dims, offsets, sizes_bytes, groups, (unsigned int)m, error, lane);
//$ end
}
