//$ -- SPDX-License-Identifier: Apache-2.0
//$ local type = a.type
/*
** sum = (a * b) turned, over all of k, at least one step: the rows of B are the tensor cores' rows,
** those of A their columns. These warps turn codes times scales into $(type), in the registers that
** the tensor cores take them from: while one step's products are in flight the next one's values
** are made. Each warpgroup has 64 of D's columns.
*/
//$ if few > 0 then
enum { FEW = $(few) }; /* rows of A for fewer products  COUPLED: few -> model_dequantize.c */

//$ end
/* A thread's share of B for TILE_K steps of k: two rows, with 8 words of pairs each. */
struct fragment {
    unsigned int pair[2][TILE_K / 8];
};

//$ include("sm90/weights_" .. (b.major == "k" and "along" or "across") .. ".cu")

//$ for _, count in ipairs(few > 0 and { "_few", "" } or { "" }) do
//$ local which = count ~= "" and ", of its first FEW rows" or ""
/* The products of one step of k, where A is at `a`$(which). */
FN void multiply$(count)(float sum[SUMS], const struct fragment *f, unsigned int a, int accumulate)
{
    mma_begin();
#pragma unroll
    for (int step = 0; step < TILE_K / MMA_K; step++)
        mma$(count)(sum, f->pair[0][2 * step], f->pair[1][2 * step], f->pair[0][2 * step + 1],
            f->pair[1][2 * step + 1], a + step * A_STEP / 16, accumulate || step > 0);
    mma_commit();
}

//$ end
/*
** One step: its products are begun, and when those of the step before have ended, whose values and
** stage are needed no more, the next one's values are made. (To ask for their codes earlier does
** not help.)
*/
FN void multiply_step(float sum[SUMS], const struct fragment *now, struct fragment *next,
                      const struct memory *s, struct pipeline *p, struct rows *r,
                      $(few > 0 and "int of_a, " or "")int x, int k, int lane)
{
    const int stage = p->stage;
    const unsigned int a = mma_operand(s->ring + stage * STAGE_BYTES);

//$ if few > 0 then
    if (of_a <= FEW)
        multiply_few(sum, now, a, x > 0);
    else
//$ end
    $(few > 0 and "    " or "")multiply(sum, now, a, x > 0);
    mma_wait(1);
    copy_engine_fence(); /* the stage may be overwritten */
    __syncwarp();
    if (x > 0)
        release(s, (stage > 0 ? stage : STAGES) - 1, lane);
    pipeline_next(p, STAGES);
    if (x + TILE_K < k) {
        copy_wait(SF_AHEAD - 1);
        __syncwarp(); /* the scales of all lanes are there, and those of the step before read */
        fetch_ahead(s, r, x + TILE_K, lane);
        load_scales(r, s, x + TILE_K);
        barrier_wait(s->full + p->stage * 8, p->parity);
        dequantize_step(next, r, s->ring + p->stage * STAGE_BYTES + A_BYTES, x + TILE_K);
    }
}

FN void multiply_tile(float sum[SUMS], const struct memory *s, struct pipeline *p,
                      const struct scales *scales, const struct tile *t, int first_row,
                      int columns, int k, int lane)
{
//$ local counted = few > 0 and "of_a, " or ""
//$ if few > 0 then
    const int of_a = uniform((int)t->length - t->row); /* the group's, from the tile's first on */
//$ end
    struct fragment even, odd;
    struct rows r;
//$ if few == 0 then
    struct scales own = *scales;

    asm volatile("" : "+r"(own.k)); /* as no register is left that would keep what k leads to */
//$ end

    p->stage = uniform(p->stage);
    copy_wait(0); /* unneeded copies of the tile before may still land */
    __syncwarp();
    rows_begin(&r, s, $(few == 0 and "&own" or "scales"), t, first_row, columns, lane);
#pragma unroll 1
    for (int x = -SF_AHEAD * TILE_K; x <= 0; x += TILE_K)
        fetch_ahead(s, &r, x, lane);
    copy_wait(SF_AHEAD);
    __syncwarp();
    load_scales(&r, s, 0);
    barrier_wait(s->full + p->stage * 8, p->parity);
    dequantize_step(&even, &r, s->ring + p->stage * STAGE_BYTES + A_BYTES, 0);
#pragma unroll 1
    for (int x = 0; x < k; x += 2 * TILE_K) {
        multiply_step(sum, &even, &odd, s, p, &r, $(counted)x, k, lane);
        if (x + TILE_K < k)
            multiply_step(sum, &odd, &even, s, p, &r, $(counted)x + TILE_K, k, lane);
    }
    mma_wait(0);
    copy_engine_fence(); /* the last stage may be overwritten */
    __syncwarp();
    release(s, (p->stage > 0 ? p->stage : STAGES) - 1, lane);
    mma_finish(sum, SUMS);
//$ if lowered > 0 then
    mma_raise(sum, SUMS);
//$ end
}
