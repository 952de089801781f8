/*
** A copy of $(of) in $(recipe) back to numbers, as $(input.type).
**
**   out  [m, k]  from the row copy, or where that is null from the column copy
**
** One rounding for each factor, to fp32, and one to $(input.type). What was transformed stays so.
** Not made for speed: each thread takes one feature of a tile's rows.
*/
//$ include "quantize/head.cu"

//$ include "quantize/value.c"

/* Value `at` of a copy, with its scale. */
FN float read_value(const unsigned char *data, long long at, const sf_element *sf,
                    long long sf_at$(scale.global and ", float global" or ""))
{
//$ if element.bits == 4 then
    const unsigned code = data[at / 2] >> at % 2 * 4 & 15;
//$ else
    const unsigned code = data[at];
//$ end

    return value_of(code, from_$(scale.type)(sf[sf_at])$(scale.global and ", global" or ""));
}

extern "C" __global__ void __launch_bounds__(THREADS, $(ctas))
$(name)(
//$ for _, p in ipairs(params) do
    $(p.type)$(p.type:sub(-1) == "*" and "" or " ")$(p.name)$(p.comma)
//$ end
)
{
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const struct shape all = { m, k, groups };
    struct walk w;
    struct tile t;

//$ include "common/noop.c"
//$ include "quantize/begin.cu"
    while (walk_next(&w, &t, lane)) {
        struct group g;

//$ include "quantize/group.cu"
        const int f = t.column + threadIdx.x % TILE_N;
//$ if scale.span == "block" then
        const struct scales s = row ? row_scales(&g, &all) : column_scales(&g, &all);
//$ end
        for (int i = t.row + threadIdx.x / TILE_N; i < t.row + TILE_M && i < g.length && f < k;
             i += THREADS / TILE_N) {
//$ local first = of == "w" and "(long long)g.number * m" or "(long long)g.start"
            const long long line = $(first) + i, feature = (long long)g.number * k + f;
//$ if of == "w" then
            const long long at = row ? line * row_stride + f : feature * column_stride + i;
//$ else
            const long long at = row ? line * row_stride + f
                                     : f * column_stride + (long long)g.first * TILE_M + i;
//$ end
//$ if scale.span == "block" then
            const long long sf = row ? scale_at(&s, i / DOWN, f / ACROSS)
                                     : scale_at(&s, f / DOWN, i / ACROSS);
//$ elseif scale.span == "row" then
            const long long sf = row ? line : feature;
//$ else
            const long long sf = $(scale.span == "group" and "g.number" or "0");
//$ end
//$ local global = scale.global and ", (row ? row_global : column_global)[g.number]" or ""
            const float x = read_value(row ? row : column, at,
                                       (const sf_element *)(row ? row_sf : column_sf), sf$(global));
//$ if input.bits == 16 then
            ((unsigned short *)out)[line * out_stride + f] = (unsigned short)to_$(input.type)(x);
//$ else
            ((float *)out)[line * out_stride + f] = x;
//$ end
            (void)feature;
        }
    }
//$ if of ~= "w" then
    if (blockIdx.x == gridDim.x - 1 && warp == 0)
        check_sizes(first_dims, offsets, sizes_bytes, groups, (unsigned int)m, error, lane);
//$ end
}
