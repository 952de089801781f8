//$ -- SPDX-License-Identifier: Apache-2.0
//$ local step_of = { k = 32, mn = 16 * 128 }
//$ local native = scales == "native" -- the tensor cores take codes and scales as they are
THREADS = $(threads),
TILE_M = $(tile.m),
TILE_N = $(tile.n),
TILE_K = $(tile.k),
CTAS = $(pair and 2 or 1), /* of a cluster */
STAGES = $(stages),
//$ if native then
ROW_BYTES = 128,
A_BYTES = TILE_M$(cluster.n > 1 and " / CTAS" or "") * ROW_BYTES,
B_BYTES = TILE_N$(cluster.m > 1 and " / CTAS" or "") * ROW_BYTES,
//$ else
MMA_K = $(32 // bytes),
A_BYTES = TILE_M$(cluster.n > 1 and " / CTAS" or "") * TILE_K * $(bytes),
B_BYTES = TILE_N$(cluster.m > 1 and " / CTAS" or "") * TILE_K * $(bytes),
//$ end
STAGE_BYTES = A_BYTES + B_BYTES,
A_STEP = $(step_of[a.major]), /* bytes from MMA_K steps of k to the next */
B_STEP = $(step_of[b.major]),
//$ if turned then
LINES = TILE_N, /* of the tensor cores$(pair and ", in each CTA" or ""): columns of D */
SPOTS = TILE_M, /* in each line: rows of D */
ROWS = 64,      /* of D, of which a warp has sums at a time */
COLUMNS = 32,
SUMS = ROWS * COLUMNS / 32, /* in each of its threads */
//$ else
LINES = TILE_M,   /* of the tensor cores: rows of D */
SPOTS = TILE_N,   /* in each line: columns of D */
ROWS = 64,        /* 16 of which, in a row, a warp has sums of at a time */
COLUMNS = TILE_N,
//$ local back = epilogue == "gradient" or epilogue == "gradient_copies"
//$ local part = back and "ROWS * 128 / " .. d.bytes or "ROWS * COLUMNS"
SUMS = $(part) / 128, /* in each of its threads */
//$ end
WARPS = $(threads // 32 - (native and 8 or 4)), /* that store */
//$ if gather ~= "none" then
GATHER_THREADS = 64, /* that copy rows of A */
//$ end
//$ if native then
SCALERS = 4,  /* warps that fetch scales */
SF_AHEAD = 4, /* steps whose scales are on their way at a time */
//$ local block = a.scale.type == "f32" and 32 or a.scale.k
BLOCK = $(block), /* codes with one scale, for the tensor cores */
//$ if a.scale.k > block then
GIVEN = $(a.scale.k), /* codes with one scale, as it is stored */
//$ end
STEP_BLOCKS = TILE_K / $(a.scale.k), /* of a row, with a stored scale */
WORDS = TILE_K / BLOCK / 4, /* of four scales, that a row of a stage has */
SPOT_TILES = (SPOTS + 127) / 128, /* of 128 spots */
SF_BYTES = (1 + SPOT_TILES) * WORDS * 512, /* of a stage: of 128 lines, and of all spots */
//$ end
SLAB_COLUMNS = $(d_box[1]),
SLAB_ROWS = 16,
SLAB_BYTES = SLAB_ROWS * SLAB_COLUMNS * $(d.bytes), /* one warp's store */
SLABS = $(slabs), /* of each */
ALL_SLABS_BYTES = WARPS * SLABS * SLAB_BYTES,
ROW_SLABS = COLUMNS / SLAB_COLUMNS,
//$ local copies = epilogue == "copies" or epilogue == "gradient_copies"
//$ if copies and a.scale.k == 128 then
TURNED_BYTES = 128 * 128, /* a block's columnwise tensor */
MAXIMA_BYTES = 2 * WARPS * 128 * 2, /* of each warp's columns, of two blocks */
COLUMNS_BYTES = 2 * 128 * 4, /* the columns' factors, for each warpgroup */
//$ elseif epilogue == "copies" then
RESULTS = $(operands == "one" and tile.n or tile.n // 2), /* of a row in a tile */
LINE_BYTES = 32 * $(a.bits) / 8, /* of a column's codes, of 32 rows */
TURNED_BYTES = WARPS * RESULTS * LINE_BYTES, /* a columnwise tensor of each warp's rows */
COLUMNS_BYTES = WARPS * RESULTS * 4, /* the columns' factors, for each warp */
//$ elseif epilogue == "gradient_copies" then
RESULTS = 64, /* of a row in a block: a slab's columns of D */
LINE_BYTES = 32 * $(a.bits) / 8, /* of a column's codes, of 32 rows */
TURNED_BYTES = WARPS / 2 * RESULTS * LINE_BYTES, /* a block's columnwise tensor, of two warps */
MAXIMA_BYTES = WARPS * 32 * 4, /* of each warp's columns */
COLUMNS_BYTES = WARPS * RESULTS * 4, /* the columns' factors, for each warp */
//$ end
QUEUE = 4, /* tiles announced at a time */
SLOT_BYTES = $(ragged == "k" and 48 or 32),
//$ if microbatches > 1 then
MICROBATCHES = $(microbatches),
//$ end
TURNS = 1, /* each reader takes all tiles */
RAGGED_ROW = 1 << 30
