/*
** The largest magnitudes that quantizing needs before it begins: $(of) in $(recipe), from
** $(input.type == "copy" and "its row copy" or input.type).
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
** null$(same). The order of what is compared does not matter, so atomics do no harm.
*/
//$ include "quantize/head.cu"

//$ include "quantize/load.cu"

enum { LANES = 32 };

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
//$ for _, p in ipairs(params) do
    $(p.type)$(p.type:sub(-1) == "*" and "" or " ")$(p.name)$(p.comma)
//$ end
)
{
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, part = warp % 4, half = warp / 4;
    const struct shape all = { m, k, groups };
    struct source source;
    struct walk w;
    struct tile t;
//$ if scale.span ~= "row" then
    struct most most = { 0, 0, 0 };
//$ end

//$ include "quantize/source.cu"
//$ include "quantize/begin.cu"
    while (walk_next(&w, &t, lane)) {
        held v[ROWS];
        struct group g;

//$ include "quantize/group.cu"
        const int row = t.row + ROWS * part, feature = t.column + 64 * half + 2 * lane;
        load_rows(&source, &g, row, feature, v);
//$ if scale.span == "row" then
        if (row_amax) {
            const int line = row + row_left<LANES>(lane, 0);
            float of_rows[1];
            largest_of_rows<LANES>(v, of_rows, lane);
//$ local first = of == "w" and "(long long)g.number * m" or "(long long)g.start"
            if (line < g.length && of_rows[0] > 0)
                atomicMax(row_amax + $(first) + line, bits_of(of_rows[0]));
        }
        if (column_amax) {
            const magnitudes m = largest_of<ROWS>(v);
            const float most[2] = { low_of(m), high_of(m) };
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
        const magnitudes m = largest_of<ROWS>(v);
        most.row = larger(most.row, larger(low_of(m), high_of(m)));
//$ if scale.hadamard then
        if (column_amax) {
#pragma unroll
            for (int second = 0; second < 2; second++)
                most.column = larger(most.column, largest_turned<ROWS>(v, second));
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
