/* A math warp is done with a stage: tell every CTA that writes into it. */
DEVICE void release(const struct memory *s, int stage, int lane)
{
    if (lane < CTAS)
        barrier_arrive(s->empty + stage * 8, lane);
}

//$ local next = schedule == "pingpong" and ", int next" or ""
/*
** sum = a * b over all of k, at least one step; one batch of products is always in flight.
** The warpgroup's rows of the tile begin at `first_row`.
*/
DEVICE void multiply_tile(float sum[SUMS], const struct memory *s, struct place *p,
                          int first_row, int k, int lane$(next))
{
    int previous = -1;

//$ if schedule == "pingpong" or ragged ~= "k" then
    p->stage = uniform(p->stage);
//$ end
//$ if ragged == "k" then
    k = uniform(k);
//$ end
    for (int x = 0; x < k; x += TILE_K) {
        const unsigned int stage = s->ring + p->stage * STAGE_BYTES;
        const unsigned int a = mma_operand(stage + first_row * TILE_K * $(a.bytes));
        const unsigned int b = mma_operand(stage + A_BYTES);

        barrier_wait(s->full + p->stage * 8, p->parity);
        mma_begin();
#pragma unroll
        for (int step = 0; step < TILE_K / 16; step++)
#pragma unroll
            for (int i = 0; i < ROWS / 64; i++)
                mma(sum + i * (TILE_N / 2), a + (i * 64 * TILE_K * $(a.bytes) + step * A_STEP) / 16,
                    b + step * B_STEP / 16, x > 0 || step > 0);
        mma_commit();
        mma_wait(1);
        if (previous >= 0)
            release(s, previous, lane);
        previous = p->stage;
        place_next(p);
    }
//$ if schedule == "pingpong" then
    named_arrive(next, 256); /* the other warpgroup's products may queue behind these */
//$ end
    mma_wait(0);
    release(s, previous, lane);
    mma_finish(sum);
}
