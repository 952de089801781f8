//$ local of_blocks = factors == "squares" or factors == "lines"
//$ local with = of_blocks and ", times\n** the scales, which a block of TILE_K steps shares" or ""
/*
** sum = a * b over all of k, at least one step. The tensor cores keep few bits of their sums, so
** these span 64 rows and TILE_K steps of k only; then they are promoted: added up in fp32$(with).
** The other warpgroup multiplies in the meantime. All that the next product waits for is done while
** one is under way: until it begins, this warpgroup leaves the tensor cores idle.
** The warpgroup's part of the tile begins at `first_row` and `first_column`.
*/
DEVICE void multiply_tile(float sum[SUMS], const struct memory *s, struct place *p,
//$ if of_blocks then
                          const struct factors *f, const struct tile *t,
//$ end
                          int first_row, int first_column, int k, int lane)
{
    float part[COLUMNS / 2];
//$ if of_blocks then
//$ local before = factors == "squares" and " + (t->start & 3)" or ""
    const int sf_row = first_row + threadIdx.x / 32 % 4 * 16 + lane / 4$(before);
    float of_row[ROWS / 32], of_row_next[ROWS / 32];
//$ if factors == "squares" then
    /* Behind D's last column lie no scales; what they would be of is not stored. */
    const int b_row = t->column < f->columns ? t->column / 128 : 0;
    const float *b_sf = f->b + t->group * f->b_group_stride + b_row * f->b_stride;
    float of_b = __ldg(b_sf);
//$ end
//$ end

#pragma unroll
    for (int i = 0; i < SUMS; i++)
        sum[i] = 0;
//$ if ragged == "k" then
    k = uniform(k);
//$ end
    p->stage = uniform(p->stage); /* here, too, or descriptors would be moved in each step */
    barrier_wait(s->full + p->stage * 8, p->parity);
//$ if of_blocks then
    factors_of_rows(of_row_next, s->sf + p->stage * SF_BYTES + sf_row * 4);
//$ end
    for (int x = 0; x < k; x += TILE_K) {
        const int now = p->stage;
        const unsigned int stage = s->ring + now * STAGE_BYTES;
        const unsigned int a = mma_operand(stage + first_row * TILE_K);
        const unsigned int b = mma_operand(stage + A_BYTES + first_column * TILE_K);
//$ if of_blocks then

#pragma unroll
        for (int i = 0; i < ROWS / 32; i++)
//$ if factors == "squares" then
            of_row[i] = of_row_next[i] * of_b;
        b_sf += x + TILE_K < k; /* the last one again: what is not waited for needs no condition */
        of_b = __ldg(b_sf);
//$ else
            of_row[i] = of_row_next[i];
//$ end
//$ end
#pragma unroll
        for (int i = 0; i < ROWS / 64; i++) {
            mma_begin();
#pragma unroll
            for (int step = 0; step < TILE_K / MMA_K; step++)
                mma(part, a + (i * 64 * TILE_K + step * A_STEP) / 16, b + step * B_STEP / 16,
                    step > 0);
            mma_commit();
            if (i == ROWS / 64 - 1) {
                place_next(p, STAGES);
                if (x + TILE_K < k) {
                    barrier_wait(s->full + p->stage * 8, p->parity);
//$ if of_blocks then
                    factors_of_rows(of_row_next, s->sf + p->stage * SF_BYTES + sf_row * 4);
//$ end
                }
            }
            mma_wait(0);
            mma_finish(part, COLUMNS / 2);
//$ if factors ~= "lines" then
            if (i == ROWS / 64 - 1)
                release(s, now, lane);
//$ end
#pragma unroll
            for (int j = 0; j < COLUMNS / 2; j += 4) {
                float *to = sum + i * (COLUMNS / 2) + j;
//$ if factors == "squares" then
                to[0] = __fmaf_rn(part[j], of_row[2 * i], to[0]);
                to[1] = __fmaf_rn(part[j + 1], of_row[2 * i], to[1]);
                to[2] = __fmaf_rn(part[j + 2], of_row[2 * i + 1], to[2]);
                to[3] = __fmaf_rn(part[j + 3], of_row[2 * i + 1], to[3]);
//$ elseif factors == "lines" then
                float left, right;

                load_shared_x2(s->sf + now * SF_BYTES +
                                   (TILE_M + first_column + 2 * j + lane % 4 * 2) * 4,
                               &left, &right);
                to[0] = __fmaf_rn(part[j], of_row[2 * i] * left, to[0]);
                to[1] = __fmaf_rn(part[j + 1], of_row[2 * i] * right, to[1]);
                to[2] = __fmaf_rn(part[j + 2], of_row[2 * i + 1] * left, to[2]);
                to[3] = __fmaf_rn(part[j + 3], of_row[2 * i + 1] * right, to[3]);
//$ else
                to[0] += part[j];
                to[1] += part[j + 1];
                to[2] += part[j + 2];
                to[3] += part[j + 3];
//$ end
            }
        }
//$ if factors == "lines" then
        copy_engine_fence(); /* what was read may be copied over */
        __syncwarp();        /* by all lanes */
        release(s, now, lane);
//$ end
    }
}
