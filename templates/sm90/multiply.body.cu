//$ -- SPDX-License-Identifier: Apache-2.0
//$ local more = params.extra_k and dequantize == "none"
//$ local k_length = ragged == "k" and "k_length(&t)" or more and "all_k" or "k"
//$ if schedule == "cooperative" then
//$ if dequantize ~= "none" and wide == "either" then
for (; tile_read(&s, &sequence, &t, &p, lane);
     sequence = (unsigned int)uniform((int)sequence)) {
    if (tile_is_none(&t, lane))
        continue;
//$ else
while (uniformly(queue_read(&s, &sequence, &t, &p, lane))) {
//$ end
    const int part = warpgroup - 1; /* the warpgroup's, of the tile */
//$ if split == "m" then
    const int row = t.row + part * ROWS + warp % 4 * 16;

//$ else
    const int row = t.row$(turned and "" or " + warp % 4 * 16");

    t.column += part * COLUMNS;
//$ end
    //$ include("sm90/scales_of_tile.body.cu", { row = "row" })
    //$ include("sm90/before_tile.body.cu", { row = "row" })
    multiply_tile(sum, &s, $(args), $(k_length), lane);
//$ if params.extra_k and dequantize ~= "none" then
//$ if factors ~= "none" then
    scale_sums(sum, &group_scale); /* which the steps that follow are not multiplied by */
//$ end
    multiply_extra(sum, &s, &p, part * COLUMNS, extra_k, lane);
//$ end
    //$ include("sm90/after_tile.body.cu", { row = "row" })
}
//$ else
if (warpgroup == 2)
    named_arrive(1, 256);
sequence = warpgroup - 1;
while (uniformly(queue_read(&s, &sequence, &t, &p, lane))) {
    //$ include("sm90/before_tile.body.cu", { row = "t.row + warp % 4 * 16" })
    //$ include("sm90/scales_of_tile.body.cu", { row = "t.row + warp % 4 * 16" })
    /* Named barriers 1 and 2, one for each of the two, pass the tensor cores on. */
    named_wait(threadIdx.x / 128, 256);
    multiply_tile(sum, &s, &p, 0, 0, $(k_length), lane, 3 - threadIdx.x / 128);
    //$ include("sm90/after_tile.body.cu", { row = "t.row + warp % 4 * 16" })
}
//$ end
if (lane == 0)
    store_wait(0);
