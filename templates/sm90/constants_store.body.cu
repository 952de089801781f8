//$ -- SPDX-License-Identifier: Apache-2.0
//$ local step_of = { k = 32, mn = 16 * 128 }
//$ local warps = store == "warps"
//$ local storer = warps and "warp" or "warpgroup"
//$ local multiply = dequantize == "weights" and threads // 32 - 4 or 8 -- warps
A_STEP = $(step_of[a.major]), /* bytes from MMA_K steps of k to the next */
B_STEP = $(step_of[b.major]),
SLAB_COLUMNS = $(slab_columns),
SLAB_ROWS = $(d_box[2]),
SLAB_BYTES = SLAB_ROWS * SLAB_COLUMNS * $(d.bytes), /* one $(storer)'s store */
SLABS = $(slabs), /* of each */
ALL_SLABS_BYTES = $(warps and multiply or 2) * SLABS * SLAB_BYTES,
ROW_SLABS = COLUMNS / SLAB_COLUMNS,
//$ if epilogue == "copies" or epilogue == "gradient_copies" then
TURNED_BYTES = 2 * 128 * 64, /* a tile's columnwise tensor, of each warpgroup's rows */
MAXIMA_BYTES = 2 * 8 * 256,  /* of each warp's columns, of this tile and the one before */
COLUMNS_BYTES = 2 * 512,     /* the columns' factors, for each warpgroup */
//$ end
QUEUE = 4, /* tiles announced at a time */
SLOT_BYTES = $(ragged == "k" and 48 or 32),
//$ if microbatches > 1 then
MICROBATCHES = $(microbatches),
//$ end
TURNS = $(schedule == "pingpong" and 2 or 1), /* warpgroups that take the tiles in turn */
RAGGED_ROW = 1 << 30
