//$ -- SPDX-License-Identifier: Apache-2.0
/*
** sum = (a * b) turned, over all of k, at least one step: the rows of B are the tensor cores' rows,
** those of A their columns. These warps turn B's codes of four bits into $(b.scale.as), relative to
** the largest of a row's scales for TILE_K steps of k, in the registers that the tensor cores take
** them from. That power of two multiplies the sums of those steps when they are added up in fp32,
** as they have to be: the tensor cores keep few bits of their sums. While one step's products are
** in flight the next one's values are made.
**
** The tensor cores want from lane l the four from 4 (l % 4) on of each block of 32 steps of k, and
** the four that are 16 after them: two bytes each.
*/
enum {
    LINES = COLUMNS / 4,  /* rows of B: in a warp, */
    HELD = LINES / 8,     /* in a thread */
    BLOCKS = TILE_K / 32  /* of a row's step */
};

/* A thread's share of B for TILE_K steps of k, and each row's factor of sums. */
struct fragment {
    unsigned int word[HELD][BLOCKS][2];
    float factor[HELD];
};

/* The position of the first of a thread's rows: in a stage, among the scales; its lines. */
struct rows {
    unsigned int codes, digits; /* without, and only the swizzle */
    int row;
    unsigned int skips; /* a byte of each line's bits before its first scale */
};

/* Ask for the scales that are needed SF_AHEAD steps after `x`; a lane for each line. */
FN void fetch_ahead(const struct memory *s, const struct line *line, int x, int row, int lane)
{
    if (lane < LINES)
        fetch_b(s, line, x / TILE_K + SF_AHEAD + 1, row);
    copy_commit();
}

/* The codes of one block of row `i`. */
FN unsigned int load_codes(const struct rows *r, unsigned int stage, int i, int block)
{
    const unsigned int at = stage + r->codes + i * 8 * B_ROW + (block * 16 ^ r->digits);

    return permute(load_shared_half(at), load_shared_half(at + 8), 0x5410);
}

/* A step's values, by distances that may be far if `any`. */
FN void rebase_codes(struct fragment *f, const struct rows *r, unsigned int stage,
                     const unsigned int distances[HELD], int any)
{
#pragma unroll
    for (int i = 0; i < HELD; i++)
#pragma unroll
        for (int j = 0; j < BLOCKS; j++) {
            const unsigned int distance = distances[i] >> 8 * j & 255;
            const struct magnitudes m = any ? rebase_any(distance) : rebase_near(distance);
            requantize_$(b.type)(f->word[i][j], load_codes(r, stage, i, j), &m);
        }
}

/* The values of the step at `x`, whose stage is there. */
FN void rebase_fragment(struct fragment *f, const struct memory *s, const struct rows *r,
                        unsigned int stage, int x)
{
    unsigned int distances[HELD], far = 0;

#pragma unroll
    for (int i = 0; i < HELD; i++) {
        const unsigned int scales = word_b(s, r->skips >> 8 * i, x, r->row + 8 * i);
        const unsigned int base = rebase_base(scales);

        distances[i] = rebase_distances(scales, base);
        far |= rebase_far(distances[i]);
        f->factor[i] = rebase_factor(base);
    }
    if (__any_sync(~0u, far))
        rebase_codes(f, r, stage, distances, 1);
    else
        rebase_codes(f, r, stage, distances, 0);
}

/* The products of one step of k, where A is at `a`. */
FN void multiply(float part[SUMS], const struct fragment *f, unsigned int a)
{
    mma_begin();
#pragma unroll
    for (int j = 0; j < BLOCKS; j++)
#pragma unroll
        for (int i = 0; i < HELD / 2; i++)
            mma(part + i * (ROWS / 2), f->word[2 * i][j][0], f->word[2 * i + 1][j][0],
                f->word[2 * i][j][1], f->word[2 * i + 1][j][1], a + j * A_STEP / 16, j > 0);
    mma_commit();
}

/* One step: its products are begun, the next one's values made, and the sums added up. */
FN void multiply_step(float sum[SUMS], const struct fragment *now, struct fragment *next,
                      const struct memory *s, struct pipeline *p, const struct line *line,
                      const struct rows *r, int line_row, int x, int k, int lane)
{
    const int stage = p->stage;
    float part[SUMS];

    multiply(part, now, mma_operand(s->ring + stage * STAGE_BYTES));
    pipeline_next(p, STAGES);
    if (x + TILE_K < k) {
        copy_wait(SF_AHEAD - 1);
        __syncwarp(); /* the scales of all lanes are there, and those of the step before read */
        fetch_ahead(s, line, x + TILE_K, line_row, lane);
        barrier_wait(s->full + p->stage * 8, p->parity);
        rebase_fragment(next, s, r, s->ring + p->stage * STAGE_BYTES, x + TILE_K);
    }
    mma_wait(0);
    mma_finish(part, SUMS);
    copy_engine_fence(); /* the stage may be overwritten */
    __syncwarp();
    release(s, stage, lane);
#pragma unroll
    for (int i = 0; i < HELD; i++)
#pragma unroll
        for (int j = 0; j < ROWS / 4; j++) {
            const int at = i / 2 * (ROWS / 2) + j / 2 * 4 + i % 2 * 2 + j % 2;
            sum[at] = __fmaf_rn(part[at], now->factor[i], sum[at]);
        }
}

FN void multiply_tile(float sum[SUMS], const struct memory *s, struct pipeline *p,
                      const struct scales *scales, const struct tile *t, int first_row,
                      int columns, int k, int lane)
{
    const int warp_row = threadIdx.x / 32 % 4 * LINES;
    const int line_row = first_row + warp_row + lane % LINES;
    const struct line line = line_b(scales, t, t->column + warp_row + lane % LINES, columns);
    struct fragment even, odd;
    struct rows r;

    r.row = first_row + warp_row + lane / 4;
    r.codes = A_BYTES + r.row * B_ROW + lane % 4 * 2;
    r.digits = lane / 8 * 16;
    r.skips = 0;
#pragma unroll
    for (int i = 0; i < HELD; i++)
        r.skips |= (unsigned int)__shfl_sync(~0u, line.skip, 8 * i + lane / 4) << (8 * i + 3);
    p->stage = uniform(p->stage);
    copy_wait(0); /* unneeded copies of the tile before may still land */
    __syncwarp();
    if (lane < LINES)
        fetch_b(s, &line, 0, line_row);
#pragma unroll 1
    for (int x = -SF_AHEAD * TILE_K; x <= 0; x += TILE_K)
        fetch_ahead(s, &line, x, line_row, lane);
    copy_wait(SF_AHEAD);
    __syncwarp();
#pragma unroll
    for (int i = 0; i < SUMS; i++)
        sum[i] = 0;
    barrier_wait(s->full + p->stage * 8, p->parity);
    rebase_fragment(&even, s, &r, s->ring + p->stage * STAGE_BYTES, 0);
#pragma unroll 1
    for (int x = 0; x < k; x += 2 * TILE_K) {
        multiply_step(sum, &even, &odd, s, p, &line, &r, line_row, x, k, lane);
        if (x + TILE_K < k)
            multiply_step(sum, &odd, &even, s, p, &line, &r, line_row, x + TILE_K, k, lane);
    }
}
