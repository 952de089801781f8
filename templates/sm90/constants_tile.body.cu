//$ -- SPDX-License-Identifier: Apache-2.0
THREADS = $(threads),
TILE_M = $(tile.m),
TILE_N = $(tile.n),
TILE_K = $(tile.k),
CTAS = $(cluster.m * cluster.n), /* of a cluster */
STAGES = $(stages),
ROWS = $(split == "m" and tile.m // 2 or tile.m), /* of D, in one math warpgroup */
//$ local parts = dequantize == "weights" and threads // 128 - 1 or 2
COLUMNS = $(split == "n" and tile.n // parts or tile.n),
SUMS = ROWS * COLUMNS / 128, /* in each of its threads */
MMA_N = $(mma_n), /* of one instruction */
MMA_K = $(32 // bytes),
