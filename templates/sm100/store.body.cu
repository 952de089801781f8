//$ -- SPDX-License-Identifier: Apache-2.0
//$ local back = epilogue == "gradient" or epilogue == "gradient_copies"
//$ local squares = epilogue == "copies" and a.scale.k == 128 -- all warps have a block of D
//$ local place = (back or squares) and "(warp % 4 * 2 + half)" or "(warp - 4)"
//$ if back or squares then
const int half = warp / 4 - 1; /* of 32 rows, which two warps have */
//$ end
//$ if not back then
float sum[SUMS];
//$ end
struct slabs slabs = { s.slabs + $(place) * SLABS * SLAB_BYTES, 0 };
//$ if addend == "read" then
struct raw_slab added[AHEAD + 1];
//$ elseif addend == "fetch" then
slabs.arrived = s.arrived + $(place) * SLABS * 8;
//$ end

while (uniformly(queue_read(&s, &sequence, &t, &p, lane))) {
    const unsigned int number = sequence - 1, here = sums_of(sums, number);
    //$ include "sm90/scales_of_tile.body.cu"
//$ if cluster.m > 1 then
    if (uniformly(t.row >= (int)t.length)) { /* the CTA above has the group's last rows */
        sums_wait_full(&s, number);
        sums_release(&s, number, lane);
        continue;
    }
//$ end

//$ if turned then
//$ local d_rows = ragged == "m" and "(int)t.length" or "m"
    const int left = $(d_rows) - t.row, end = left < TILE_M ? left : TILE_M;

#pragma unroll 1
    for (int i = 0; i < end; i += ROWS) {
        const int row = t.row + i;

        //$ include("sm90/before_tile.body.cu", { row = "row" })
        if (i == 0)
            sums_wait_full(&s, number);
        load_sums(sum, here, i, warp);
        if (i + ROWS >= end)
            sums_release(&s, number, lane);
        //$ include("sm90/after_tile.body.cu", { row = "row" })
    }
//$ elseif back then
    const int line = warp % 4 * 32 + half * 16, row = t.row + line;
    const unsigned int sum = here + (line << 16);

    //$ include("sm90/before_tile.body.cu", { row = "row" })
    sums_wait_full(&s, number);
    //$ include("sm90/after_tile.body.cu", { row = "row" })
    sums_release(&s, number, lane);
//$ elseif epilogue ~= "copies" then
#pragma unroll 1
    for (int half = 0; half < 2; half++) {
        const int row = t.row + warp % 4 * 32 + half * 16;

        //$ include("sm90/before_tile.body.cu", { row = "row" })
        if (half == 0)
            sums_wait_full(&s, number);
        load_sums(sum, here, half, warp);
        if (half == 1)
            sums_release(&s, number, lane);
        //$ include("sm90/after_tile.body.cu", { row = "row" })
    }
//$ elseif squares then
    const int row = t.row + warp % 4 * 32 + half * 16;

    //$ include("sm90/before_tile.body.cu", { row = "row" })
    sums_wait_full(&s, number);
    load_sums(sum, here, half, warp);
    sums_release(&s, number, lane);
    //$ include("sm90/after_tile.body.cu", { row = "row" })
//$ else
    const int first = t.row + warp % 4 * 32, rows = (int)t.length;
    const int x = t.column$(operands == "one" and "" or " / 2");
    struct packed packed[2];

#pragma unroll
    for (int half = 0; half < 2; half++) {
        const int row = first + half * 16;

        //$ include("sm90/before_tile.body.cu", { row = "row" })
        if (half == 0)
            sums_wait_full(&s, number);
        load_sums(sum, here, half, warp);
        if (half == 1)
            sums_release(&s, number, lane);
//$ local through = activation ~= "none" and "&slabs, &maps, " or ""
        find_results(&packed[half], sum, &t, $(through)&finish, row, rows, lane);
        store_row_copy(&packed[half], &slabs, &t, &maps, &follow.copies, x, row, rows,
                       lane);
    }
    if (follow.copies.column)
        store_column_copy(packed, &t, &follow.copies, x, first, lane);
//$ end
}
if (lane == 0)
    store_wait(0);
