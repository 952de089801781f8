//$ -- SPDX-License-Identifier: Apache-2.0
//$ local scaled = factors == "squares"
//$ local lots = mma_n == 192 and 3 or 1 -- of columns, each of one square
//$ if scaled then
/* B's scales of a step, one for each lot of columns. */
struct scales {
    float of[$(lots)];
};

/*
** The scales of B's squares of the next AHEAD steps, a step for each lane.
//$ if lots == 3 then
** Each step has those of the tile's first, second and third 64 columns, which two squares share.
//$ end
*/
FN struct scales scales_ahead(const struct factors *f, const struct tile *t, int step,
                              int steps, int lane)
{
    /* D's columns past the last have no scales; their results are not stored. */
    const int first = t->column < f->columns ? t->column / 128 : 0;
//$ if lots == 3 then
    const int second = first * 128 + 128 < f->columns ? first + 1 : 0;
    const int middle = t->column / 64 % 2 ? second : first;
//$ end
    const int at = step + lane < steps ? step + lane : steps - 1;
    const float *b_sf = f->b + t->group * f->b_group_stride + at;
    struct scales s;

    s.of[0] = __ldg(b_sf + first * f->b_stride);
//$ if lots == 3 then
    s.of[1] = __ldg(b_sf + middle * f->b_stride);
    s.of[2] = __ldg(b_sf + second * f->b_stride);
//$ end
    return s;
}

/* Into the warp's table, from which all lanes read them. */
FN void scales_put(unsigned int table, const struct scales *s, int lane)
{
    __syncwarp(); /* all have read the old ones */
//$ local more = lots == 3 and "__float_as_uint(s->of[1]), __float_as_uint(s->of[2])" or "0, 0"
    store_shared_x4(table + lane * SCALES_BYTES, __float_as_uint(s->of[0]),
                    $(more), 0);
    __syncwarp();
}

//$ end
//$ local with = scaled and ", times the scales,\n** which a block of TILE_K steps shares" or ""
/*
** sum = a * b over all of k, at least one step. The tensor cores keep few bits of their sums, so
** these span TILE_K steps of k only; then they are added up in fp32$(with). All of the warpgroup's
** columns are one product of TILE_K steps, and the other warpgroup's takes as long: in that time
** this one adds up its own. So nothing stands between two products, except the sums, that could be
** done before, or while one is under way, but for the wait for its stage: after products that takes
** longer than they do. The warpgroup's part of the tile begins at `first_row` and `first_column`.
*/
FN void multiply_tile(float sum[SUMS], const struct memory *s, struct pipeline *p,
//$ if scaled then
                      const struct factors *f, const struct tile *t,
//$ end
                      int first_row, int first_column, int k, int lane)
{
//$ if ragged == "k" then
    k = uniform(k);
//$ end
    const unsigned int a_first = uniform(mma_operand(s->ring + first_row * TILE_K));
    const unsigned int b_first = uniform(mma_operand(s->ring + A_BYTES + first_column * TILE_K));
//$ if scaled then
    const int warp = threadIdx.x / 32, steps = (k + TILE_K - 1) / TILE_K;
//$ local before = gather == "none" and " + (t->start & 3)" or ""
    const int sf_row = first_row + warp % 4 * 16 + lane / 4$(before);
    const unsigned int sf = s->sf + sf_row * 4;
    const unsigned int table =
        uniform(s->sf + STAGES * SF_BYTES + (warp - 4) * AHEAD * SCALES_BYTES);
//$ else
    const int steps = (k + TILE_K - 1) / TILE_K;
//$ end
    float part[MMA_N / 2];

    /* Here, too: else descriptors would be moved in each step, and each wait end with a meeting. */
    p->stage = uniform(p->stage);
    p->parity = (unsigned int)uniform((int)p->parity);
    unsigned int a = a_first + p->stage * (STAGE_BYTES / 16);
    unsigned int b = b_first + p->stage * (STAGE_BYTES / 16);
#pragma unroll
    for (int i = 0; i < SUMS; i++)
        sum[i] = 0;
#pragma unroll 4
    for (int step = 0; step < steps; step++) {
        const int now = p->stage;
//$ if scaled then
        unsigned int of_b[4];
        float of_row[2], of[2]$(lots == 3 and "[3]" or "");
        struct scales ahead;

        if (step % AHEAD == 0)
            ahead = scales_ahead(f, t, step, steps, lane);
//$ end

        barrier_wait(s->full + now * 8, p->parity);
//$ if scaled then
        factors_of_rows(of_row, sf + now * SF_BYTES);
//$ end
//$ if gather ~= "none" then
        copy_engine_fence(); /* threads wrote A */
//$ end
        mma_begin();
#pragma unroll
        for (int i = 0; i < TILE_K / MMA_K; i++)
            mma(part, a + i * A_STEP / 16, b + i * B_STEP / 16, i > 0);
        mma_commit();
        pipeline_next(p, STAGES);
        a = p->stage ? a + STAGE_BYTES / 16 : a_first;
        b = p->stage ? b + STAGE_BYTES / 16 : b_first;
//$ if scaled then
        if (step % AHEAD == 0) /* they are loaded while the product is under way */
            scales_put(table, &ahead, lane);
        load_shared_x4(table + step % AHEAD * SCALES_BYTES, of_b);
#pragma unroll
//$ if lots == 3 then
        for (int i = 0; i < 6; i++)
            of[i / 3][i % 3] = of_row[i / 3] * __uint_as_float(of_b[i % 3]);
//$ else
        for (int i = 0; i < 2; i++)
            of[i] = of_row[i] * __uint_as_float(of_b[0]);
//$ end
//$ end
        mma_wait(0);
        mma_finish(part, MMA_N / 2);
        release(s, now, lane);
//$ local of = lots == 3 and "of[j / 2 % 2][j / 32]" or "of[j / 2 % 2]"
#pragma unroll
        for (int j = 0; j < SUMS; j++)
//$ if scaled then
            sum[j] = __fmaf_rn(part[j], $(of), sum[j]);
//$ else
            sum[j] += part[j];
//$ end
    }
}
