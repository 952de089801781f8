//$ -- SPDX-License-Identifier: Apache-2.0
//$ local f16 = wide == "f16"
//$ local given, low = f16 and ", unsigned int low" or "", f16 and ", low" or ""
//$ local stored = a.bits == 4 and 4 or 8 -- bits of a code: six have a byte
//$ local words = stored // 2 -- of 16 codes
//$ local each = 32 // stored -- codes in a word
//$ local kind = a.type .. (apart and "_apart" or "")
/*
** sum = a * b over all of k, at least one step. B is dequantized in the ring; these warps
** dequantize A themselves, into the registers that the tensor cores take it from, a step ahead:
** while one batch of products is in flight the next one's values are made.
**
** Lane l has 16 neighbouring ones of a row's 64 steps of k, from 16 (l % 4) on: the two or four
** that are next to each other go into one product. The tensor cores want them elsewhere, but any
** order will do if B has the same: there the dequantizers see to that.
//$ if apart then
** So a pair is two at a distance of four among eight.
//$ end
*/
enum { LINES = ROWS / 4 }; /* of scales, in a warp */

/* One thread's share of A for TILE_K steps of k: two of 64 rows, with 8 words of pairs each. */
struct fragment {
    unsigned int pair[ROWS / 64][2][8];
};

/* TILE_K steps of this warp's rows from `x` on, which are at `packed`. */
FN void dequantize_fragment(struct fragment *f, const struct memory *s, unsigned int packed, int x,
                            const int skip[ROWS / 32], int warp_row, int lane$(given))
{
#pragma unroll
    for (int i = 0; i < ROWS / 32; i++) {
        const int row = warp_row + i / 2 * 64 + i % 2 * 8 + lane / 4;
//$ local among = a.scale.k < 64 and " >> lane % 4 * 16 / " .. a.scale.k .. " * 8" or ""
        const unsigned int scales = scales_a(s, 8 * skip[i], x, row)$(among);
//$ if f16 then
        const unsigned int twice = twice_f16(permute(scales, 0, 0x4040), low);
//$ else
        const float factor = factor_$(a.scale.type)(scales & 255);
//$ end
        unsigned int word[$(words)];

//$ if stored == 4 then
        load_shared_codes(packed + row * 32 + (lane % 4 / 2 ^ row / 4 % 2) * 16 + lane % 2 * 8,
                          word);
//$ else
        load_shared_x4(packed + row * 64 + (lane % 4 ^ row / 2 % 4) * 16, word);
//$ end
#pragma unroll
        for (int j = 0; j < $(words); j++)
//$ if f16 then
            dequantize_$(kind)_f16(f->pair[i / 2][i % 2] + $(each // 2) * j, word[j], twice);
//$ else
            dequantize_$(kind)(f->pair[i / 2][i % 2] + $(each // 2) * j, word[j], factor);
//$ end
    }
}

/* The products of one step of the ring. */
FN void multiply_fragment(float sum[SUMS], const struct fragment *f, unsigned int b,
                          int accumulate)
{
    mma_begin();
#pragma unroll
    for (int step = 0; step < TILE_K / MMA_K; step++)
#pragma unroll
        for (int i = 0; i < ROWS / 64; i++)
#pragma unroll
            for (int j = 0; j < COLUMNS / MMA_N; j++)
                mma(sum + i * (COLUMNS / 2) + j * (MMA_N / 2), f->pair[i][0][2 * step],
                    f->pair[i][1][2 * step], f->pair[i][0][2 * step + 1],
                    f->pair[i][1][2 * step + 1],
                    b + (j * MMA_N * TILE_K * 2 + step * B_STEP) / 16, accumulate || step > 0);
    mma_commit();
}

/* Ask for the scales that are needed SF_AHEAD steps after `x`; a lane for each line. */
FN void fetch_ahead_a(const struct memory *s, const struct line *line, int x, int row, int lane)
{
    const int later = x + SF_AHEAD * TILE_K;

    if (later % A_WORD_K == 0 && lane < LINES)
        fetch_a(s, line, later / A_WORD_K + 1, row);
    copy_commit();
}

/*
** One step: its products are begun, and the next step's values made. `p` is the position in the
** packed stages, one step before `q`, that in the ring.
*/
FN void multiply_step(float sum[SUMS], const struct fragment *now, struct fragment *next,
                      const struct memory *s, struct pipeline *p, struct pipeline *q,
                      const struct line *line, const int skip[ROWS / 32], int line_row,
                      int warp_row, int x, int k, int lane$(given))
{
    const int stage = q->stage;

    barrier_wait(s->full + stage * 8, q->parity);
    multiply_fragment(sum, now, mma_operand(s->ring + stage * STAGE_BYTES), x > 0);
    mma_wait(1);
    if (x > 0)
        release(s, (stage > 0 ? stage : STAGES) - 1, lane);
    pipeline_next(q, STAGES);
    if (x + TILE_K < k) {
        copy_wait(SF_AHEAD - 1);
        __syncwarp(); /* the scales of all lanes are there, and those of the step before read */
        fetch_ahead_a(s, line, x + TILE_K, line_row, lane);
        barrier_wait(s->packed_full + p->stage * 8, p->parity);
        dequantize_fragment(next, s, s->packed + p->stage * PACKED_BYTES, x + TILE_K,
                            skip, warp_row, lane$(low));
        copy_engine_fence(); /* the stage may be overwritten */
        __syncwarp();
        release_packed(s, p->stage, lane);
        pipeline_next(p, PACKED_STAGES);
    }
}

FN void multiply_tile(float sum[SUMS], const struct memory *s, struct pipeline *p,
                      struct pipeline *q, const struct scales *scales, const struct tile *t,
                      int first_row, int rows, int k, int lane)
{
    const int warp_row = first_row + threadIdx.x / 32 % 4 * 16;
    const int line_row = warp_row + lane / 16 * 64 + lane % 16;
    const struct line line = line_a(scales, t, t->row + line_row, rows);
    struct fragment even, odd;
    int skip[ROWS / 32]; /* of the lines of the thread's rows */
//$ if f16 then
    const unsigned int low = scales->a_low;
//$ end

#pragma unroll
    for (int i = 0; i < ROWS / 32; i++)
        skip[i] = __shfl_sync(~0u, line.skip, 8 * i + lane / 4);
//$ if ragged == "k" then
    k = uniform(k);
//$ end
    p->stage = uniform(p->stage);
    q->stage = uniform(q->stage);
    copy_wait(0); /* unneeded copies of the tile before may still land */
    __syncwarp();
    if (lane < LINES)
        fetch_a(s, &line, 0, line_row);
#pragma unroll 1
    for (int x = -SF_AHEAD * TILE_K; x <= 0; x += TILE_K)
        fetch_ahead_a(s, &line, x, line_row, lane);
    copy_wait(SF_AHEAD);
    __syncwarp();
    barrier_wait(s->packed_full + p->stage * 8, p->parity);
    dequantize_fragment(&even, s, s->packed + p->stage * PACKED_BYTES, 0, skip, warp_row,
                        lane$(low));
    copy_engine_fence(); /* the stage may be overwritten */
    __syncwarp();
    release_packed(s, p->stage, lane);
    pipeline_next(p, PACKED_STAGES);
#pragma unroll 1
    for (int x = 0; x < k; x += 2 * TILE_K) {
        multiply_step(sum, &even, &odd, s, p, q, &line, skip, line_row, warp_row, x, k, lane$(low));
        if (x + TILE_K < k)
            multiply_step(sum, &odd, &even, s, p, q, &line, skip, line_row, warp_row, x + TILE_K,
                          k, lane$(low));
    }
    mma_wait(0);
    release(s, (q->stage > 0 ? q->stage : STAGES) - 1, lane);
    mma_finish(sum, SUMS);
}
