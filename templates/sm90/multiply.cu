//$ local columns = split == "n" and tile.n // 2 or tile.n -- of a warpgroup
//$ local next = schedule == "pingpong" and ", int next" or ""
/*
** sum = a * b over all of k, at least one step; one batch of products is always in flight.
** The warpgroup's part of the tile begins at `first_row` and `first_column`.
*/
DEVICE void multiply_tile(float sum[SUMS], const struct memory *s, struct place *p,
                          int first_row, int first_column, int k, int lane$(next))
{
    int previous = -1;
//$ local sums = a.type == "i8" and "whole" or "sum"
//$ if a.type == "i8" then
    int whole[SUMS]; /* exact */
//$ end

//$ if ragged == "k" then
    k = uniform(k);
//$ end
    for (int x = 0; x < k; x += TILE_K) {
        const unsigned int stage = s->ring + p->stage * STAGE_BYTES;
        const unsigned int a = mma_operand(stage + first_row * TILE_K * $(bytes));
        const unsigned int b = mma_operand(stage + A_BYTES + first_column * TILE_K * $(bytes));

        barrier_wait(s->full + p->stage * 8, p->parity);
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
        previous = p->stage;
        place_next(p, STAGES);
    }
//$ if schedule == "pingpong" then
    named_arrive(next, 256); /* the other warpgroup's products may queue behind these */
//$ end
    mma_wait(0);
    release(s, previous, lane);
    mma_finish($(sums), SUMS);
//$ if a.type == "i8" then
#pragma unroll
    for (int i = 0; i < SUMS; i++)
        sum[i] = __int2float_rn(whole[i]);
//$ end
}
