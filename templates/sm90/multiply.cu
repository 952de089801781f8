/* A math warp is done with a stage: tell every CTA that writes into it. */
DEVICE void release(const struct memory *s, int stage, int lane)
{
    if (lane < CLUSTER_N)
        barrier_arrive(s->empty + stage * 8, lane);
}

/*
** sum = a * b over all of k, at least one step; one batch of products is always in flight.
** The warpgroup's rows of the tile begin at `first_row`.
*/
DEVICE void multiply_tile(float sum[ROWS / 64][TILE_N / 2], const struct memory *s,
                          struct place *p, int first_row, int k, int lane)
{
    int previous = -1;

    for (int x = 0; x < k; x += TILE_K) {
        const u64 a = mma_operand(s->a + p->stage * A_BYTES + first_row * TILE_K * $(a.bytes));
        const u64 b = mma_operand(s->b + p->stage * B_BYTES);

        barrier_wait(s->full + p->stage * 8, p->parity);
        mma_begin();
#pragma unroll
        for (int step = 0; step < TILE_K / 16; step++)
#pragma unroll
            for (int i = 0; i < ROWS / 64; i++)
                mma(sum[i], a + (i * 64 * TILE_K * $(a.bytes) + step * A_STEP) / 16,
                    b + step * B_STEP / 16, x > 0 || step > 0);
        mma_commit();
        mma_wait(1);
        if (previous >= 0)
            release(s, previous, lane);
        previous = p->stage;
        place_next(p);
    }
    mma_wait(0);
    release(s, previous, lane);
#pragma unroll
    for (int i = 0; i < ROWS / 64; i++)
        mma_finish(sum[i]);
}
