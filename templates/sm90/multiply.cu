//$ -- SPDX-License-Identifier: Apache-2.0
//$ local columns = split == "n" and tile.n // 2 or tile.n -- of a warpgroup
//$ local wide = dequantize ~= "none"
//$ local direct = wide and a_strategy == "copied" and "A" or false
//$ if wide and b_strategy == "copied" then direct = direct or "B" end
//$ local base = { A = "stage", B = "stage" }
//$ if direct then
//$   base[direct] = "packed"
//$ end
//$ local b_behind = direct == "B" and "A_PACKED" or "A_BYTES"
//$ local q = direct and "q" or "p" -- the place in the ring
//$ local next = schedule == "pingpong" and ", int next" or ""
/*
** sum = a * b over all of k, at least one step; one batch of products is always in flight.
//$ if direct then
** $(direct) is multiplied as it was copied: it is in a packed stage, at position `p`.
//$ end
** The warpgroup's part of the tile begins at `first_row` and `first_column`.
*/
FN void multiply_tile(float sum[SUMS], const struct memory *s, struct pipeline *p,
//$ if direct then
                      struct pipeline *q,
//$ end
                      int first_row, int first_column, int k, int lane$(next))
{
    int previous = -1$(direct and ", previous_packed = -1" or "");
//$ local sums = a.type == "i8" and "whole" or "sum"
//$ if a.type == "i8" then
    int whole[SUMS]; /* exact */
//$ end

//$ if ragged == "k" then
    k = uniform(k);
//$ end
//$ if rolled then
#pragma unroll 1
//$ end
    for (int x = 0; x < k; x += TILE_K) {
        const unsigned int stage = s->ring + $(q)->stage * STAGE_BYTES;
//$ if direct then
        const unsigned int packed = s->packed + p->stage * PACKED_BYTES;
//$ end
        const unsigned int a = mma_operand($(base.A) + first_row * TILE_K * $(bytes));
        const unsigned int b =
            mma_operand($(base.B) + $(b_behind) + first_column * TILE_K * $(bytes));

//$ if direct then
        barrier_wait(s->packed_full + p->stage * 8, p->parity);
//$ end
        barrier_wait(s->full + $(q)->stage * 8, $(q)->parity);
//$ if gather ~= "none" then
        copy_engine_fence(); /* threads wrote A */
//$ end
        mma_begin();
#pragma unroll
        for (int step = 0; step < TILE_K / MMA_K; step++)
#pragma unroll
            for (int i = 0; i < ROWS / 64; i++)
//$ if mma_n < columns then
#pragma unroll
                for (int j = 0; j < COLUMNS / MMA_N; j++)
                    mma(sum + i * (COLUMNS / 2) + j * (MMA_N / 2),
                        a + (i * 64 * TILE_K * $(bytes) + step * A_STEP) / 16,
                        b + (j * MMA_N * TILE_K * $(bytes) + step * B_STEP) / 16,
                        x > 0 || step > 0);
//$ else
                mma($(sums) + i * (COLUMNS / 2),
                    a + (i * 64 * TILE_K * $(bytes) + step * A_STEP) / 16,
                    b + step * B_STEP / 16, x > 0 || step > 0);
//$ end
        mma_commit();
        mma_wait(1);
        if (previous >= 0)
            release(s, previous, lane);
        previous = $(q)->stage;
        pipeline_next($(q), STAGES);
//$ if direct then
        if (previous_packed >= 0)
            release_packed(s, previous_packed, lane);
        previous_packed = p->stage;
        pipeline_next(p, PACKED_STAGES);
//$ end
    }
//$ if schedule == "pingpong" then
    named_arrive(next, 256); /* the other warpgroup's products may queue after these */
//$ end
    mma_wait(0);
    release(s, previous, lane);
//$ if direct then
    release_packed(s, previous_packed, lane);
//$ end
    mma_finish($(sums), SUMS);
//$ if a.type == "i8" then
#pragma unroll
    for (int i = 0; i < SUMS; i++)
        sum[i] = __int2float_rn(whole[i]);
//$ end
}
