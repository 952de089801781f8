//$ -- SPDX-License-Identifier: Apache-2.0
//$ local of_blocks = factors == "squares" or factors == "lines"
//$ local follows = epilogue == "activate" or epilogue == "copies"
//$ local apart = follows and operands == "halves" -- two parts of B in a tile
//$ local two = split == "m" and mma_n < tile.n or apart
//$ local lots = factors == "squares" and two and 2 or 1 -- of B's scales: one for 128 columns
//$ local with = of_blocks and ", times\n** the scales, which a block of TILE_K steps shares" or ""
/*
** sum = a * b over all of k, at least one step. The tensor cores keep few bits of their sums, so
** these span 64 rows and TILE_K steps of k only; then they are added up in fp32$(with).
** The other warpgroup multiplies in the meantime. Everything that the next product waits for is
** done while one is under way: until it begins, this warpgroup leaves the tensor cores idle. The
** warpgroup's part of the tile begins at `first_row` and `first_column`.
*/
FN void multiply_tile(float sum[SUMS], const struct memory *s, struct pipeline *p,
//$ if factors == "squares" then
                      const struct factors *f, const struct tile *t,
//$ end
                      int first_row, int first_column, int k, int lane)
{
    enum { ABREAST = COLUMNS / MMA_N, PIECES = ROWS / 64 * ABREAST };
    const unsigned int a_first = uniform(mma_operand(s->ring + first_row * TILE_K));
    const unsigned int b_first = uniform(mma_operand(s->ring + A_BYTES + first_column * TILE_K));
    float part[MMA_N / 2];
//$ if of_blocks then
//$ local boxes = quantize ~= "mainloop" and gather == "none"
//$ local before = factors == "squares" and boxes and " + (t->start & 3)" or ""
    const int sf_row = first_row + threadIdx.x / 32 % 4 * 16 + lane / 4$(before);
    float of_row[ROWS / 32]$(lots > 1 and "[" .. lots .. "]" or ""), of_row_next[ROWS / 32];
//$ if factors == "squares" then
//$ if apart then
    const int b_row = t->column / 256;
//$ else
    /* D's columns past the last have no scales; their results are not stored. */
    const int b_row = t->column < f->columns ? t->column / 128 : 0;
//$ end
    const float *b_sf = f->b + t->group * f->b_group_stride + b_row * f->b_stride;
    float of_b = __ldg(b_sf);
//$ if lots > 1 then
//$ if apart then
    const int b_row_2 = (t->column + f->columns) / 256; /* of the columns' second half */
//$ else
    const int b_row_2 = b_row * 128 + 128 < f->columns ? b_row + 1 : 0;
//$ end
    const int second = (int)((b_row_2 - b_row) * f->b_stride); /* scales: far fewer than values */
    float of_b_2 = __ldg(b_sf + second);
//$ end
//$ end
//$ end

#pragma unroll
    for (int i = 0; i < SUMS; i++)
        sum[i] = 0;
//$ if ragged == "k" then
    k = uniform(k);
//$ end
    /* Here, too: else descriptors would be moved in each step, and each wait end with a meeting. */
    p->stage = uniform(p->stage);
    p->parity = (unsigned int)uniform((int)p->parity);
    unsigned int a = a_first + p->stage * (STAGE_BYTES / 16);
    unsigned int b = b_first + p->stage * (STAGE_BYTES / 16);
    barrier_wait(s->full + p->stage * 8, p->parity);
//$ if of_blocks then
    factors_of_rows(of_row_next, s->sf + p->stage * SF_BYTES + sf_row * 4);
//$ end
//$ if rolled then
#pragma unroll 1
//$ end
    for (int steps = (k + TILE_K - 1) / TILE_K; steps > 0; steps--) {
        const int now = p->stage;
//$ if of_blocks then

#pragma unroll
        for (int i = 0; i < ROWS / 32; i++)
//$ if lots == 2 then
        {
            of_row[i][0] = of_row_next[i] * of_b;
            of_row[i][1] = of_row_next[i] * of_b_2;
        }
//$ elseif factors == "squares" then
            of_row[i] = of_row_next[i] * of_b;
//$ else
            of_row[i] = of_row_next[i];
//$ end
//$ if factors == "squares" then
        b_sf += steps > 1; /* the last one again: a load without a wait needs no condition */
        of_b = __ldg(b_sf);
//$ if lots > 1 then
        of_b_2 = __ldg(b_sf + second);
//$ end
//$ end
//$ end
#pragma unroll
        for (int i = 0; i < PIECES; i++) {
            const int block = i / ABREAST, piece = i % ABREAST;

//$ if gather ~= "none" then
            if (i == 0)
                copy_engine_fence(); /* threads wrote A */
//$ end
            mma_begin();
#pragma unroll
            for (int step = 0; step < TILE_K / MMA_K; step++)
                mma(part, a + (block * 64 * TILE_K + step * A_STEP) / 16,
                    b + (piece * MMA_N * TILE_K + step * B_STEP) / 16, step > 0);
            mma_commit();
            if (i == PIECES - 1) {
                pipeline_next(p, STAGES);
                a = p->stage ? a + STAGE_BYTES / 16 : a_first;
                b = p->stage ? b + STAGE_BYTES / 16 : b_first;
                if (steps > 1) {
                    barrier_wait(s->full + p->stage * 8, p->parity);
//$ if of_blocks then
                    factors_of_rows(of_row_next, s->sf + p->stage * SF_BYTES + sf_row * 4);
//$ end
                }
            }
            mma_wait(0);
            mma_finish(part, MMA_N / 2);
//$ if factors ~= "lines" then
            if (i == PIECES - 1)
                release(s, now, lane);
//$ end
#pragma unroll
            for (int j = 0; j < MMA_N / 2; j += 4) {
                float *to = sum + i * (MMA_N / 2) + j;
//$ if factors == "squares" then
//$ if lots > 1 then
                const int lot = (piece * (MMA_N / 2) + j) / (COLUMNS / 2 / $(lots));
                const float up = of_row[2 * block][lot], down = of_row[2 * block + 1][lot];
//$ else
                const float up = of_row[2 * block], down = of_row[2 * block + 1];
//$ end
                to[0] = __fmaf_rn(part[j], up, to[0]);
                to[1] = __fmaf_rn(part[j + 1], up, to[1]);
                to[2] = __fmaf_rn(part[j + 2], down, to[2]);
                to[3] = __fmaf_rn(part[j + 3], down, to[3]);
//$ elseif factors == "lines" then
                float left, right;

                load_shared_x2(s->sf + now * SF_BYTES +
                                   (TILE_M + first_column + 2 * j + lane % 4 * 2) * 4,
                               &left, &right);
                to[0] = __fmaf_rn(part[j], of_row[2 * block] * left, to[0]);
                to[1] = __fmaf_rn(part[j + 1], of_row[2 * block] * right, to[1]);
                to[2] = __fmaf_rn(part[j + 2], of_row[2 * block + 1] * left, to[2]);
                to[3] = __fmaf_rn(part[j + 3], of_row[2 * block + 1] * right, to[3]);
//$ else
                to[0] += part[j];
                to[1] += part[j + 1];
                to[2] += part[j + 2];
                to[3] += part[j + 3];
//$ end
            }
        }
//$ if factors == "lines" then
        copy_engine_fence(); /* the stage may be overwritten */
        __syncwarp();        /* by all lanes */
        release(s, now, lane);
//$ end
    }
}
