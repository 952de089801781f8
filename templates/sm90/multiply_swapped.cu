//$ local f16 = wide == "f16"
//$ local stored = b.bits == 4 and 4 or 8 -- bits of a code: six have a byte
//$ local words = stored // 2 -- of 16 codes
//$ local each = 32 // stored -- codes in a word
//$ local row_bytes = 8 * stored
//$ local kind = b.type .. (apart and "_apart" or "")
//$ local near = apart and "e8m0_apart" or "e8m0"
//$ -- of codes of 8 bits four scales at once are a test more than each time one
//$ local early = b.scale.type == "e8m0" and apart
/*
** sum = (a * b) turned, over all of k, at least one step: the rows of B are the tensor cores' rows,
** those of A their columns. A lies expanded in the ring; these warps expand B themselves, into the
** registers that the tensor cores take it from, a step ahead: while one batch of products is in
** flight the next one's values are made. Their codes are asked for before that batch is begun, so
** that nothing is waited for behind it. A stage is two steps, its halves, so that what is neither a
** product nor a value is done half as often.
**
** Of a row's 64 steps of k, lane l has 16 side by side, from 16 (l % 4) on: the two or four that
** are next to each other go into one product. The tensor cores want them elsewhere, but any order
** will do if A has the same: there the expanders see to that.
//$ if apart then
** So a pair is two that lie four apart among eight.
//$ end
*/
enum { LINES = COLUMNS / 4, HELD = LINES / 8 }; /* rows of B: in a warp, in a thread */

/* What one thread has of B for TILE_K steps of k: of 16 rows two, with 8 words of pairs each. */
struct fragment {
    unsigned int pair[HELD][8];
};

/* The codes that these are made of, and the scales, those of TILE_K steps or more. */
struct raw {
    unsigned int word[HELD][$(words)], scales[HELD];
//$ if early then
    int beyond; /* may one of the warp's scales need care? Known before a value waits for it */
//$ end
};

/*
** Where the first of a thread's rows lies: in a packed stage, among the scales; its lines; which of
** four scales is the thread's, for permute, which puts it into both halves of a word.
*/
struct rows {
    unsigned int codes;
    int row;
    int skip[HELD];
    unsigned int digits;
//$ if f16 then
    unsigned int low; /* of B's scales: see twice_f16 */
//$ end
};

/* Ask for the scales that are needed SF_AHEAD stages after `x`; a lane for each line. */
DEVICE void fetch_ahead(const struct memory *s, const struct line *line, int x, int row, int lane)
{
    if (lane < LINES)
        fetch_next_b(s, line, x + SF_AHEAD * SPAN * TILE_K, row);
    copy_commit();
}

//$ -- of scales: does each step need another word, each stage, or not even each stage?
//$ local word_k, stage_k = 4 * b.scale.k, span * tile.k
DEVICE void load_scales(struct raw *raw, const struct memory *s, const struct rows *rows, int x)
{
//$ if early then
    unsigned int beyond = 0;

//$ end
#pragma unroll
    for (int i = 0; i < HELD; i++)
        raw->scales[i] = word_b(s, rows->skip[i], x, rows->row + 8 * i);
//$ if early then
#pragma unroll
    for (int i = 0; i < HELD; i++)
        beyond |= beyond_$(near)(raw->scales[i]);
    raw->beyond = __ballot_sync(~0u, beyond) != 0;
//$ end
}

/*
** Codes and scales of one half of the stage that begins at `x`: scales stay for as many steps as a
** word is for.
*/
DEVICE void load_raw(struct raw *raw, const struct memory *s, const struct rows *rows, int stage,
                     int x, int half)
{
    const unsigned int codes = s->packed + (stage * SPAN + half) * PACKED_BYTES + rows->codes;

//$ local first = word_k < stage_k and "1" or "half == 0"
    if ($(word_k > stage_k and first .. " && x % B_WORD_K == 0" or first))
        load_scales(raw, s, rows, x + half * TILE_K);
#pragma unroll
    for (int i = 0; i < HELD; i++)
//$ if stored == 4 then
        load_shared_codes(codes + i * 8 * $(row_bytes), raw->word[i]);
//$ else
        load_shared_x4(codes + i * 8 * $(row_bytes), raw->word[i]);
//$ end
}

/* The values of one half of the stage that begins at `x`. */
DEVICE void expand_raw(struct fragment *f, const struct raw *raw, const struct rows *rows, int x,
                       int half)
{
//$ local from = word_k > stage_k and "(x + half * TILE_K)" or "half * TILE_K"
    const unsigned int digits =
        rows->digits + (unsigned int)($(from) / $(b.scale.k) % 4) * 0x0101;
    unsigned int scale[HELD]; /* in both halves */

#pragma unroll
    for (int i = 0; i < HELD; i++)
        scale[i] = permute(raw->scales[i], 0, digits);
//$ if f16 then
#pragma unroll
    for (int i = 0; i < HELD; i++)
#pragma unroll
        for (int j = 0; j < $(words); j++)
            expand_$(b.type)_f16(f->pair[i] + $(each // 2) * j, raw->word[i][j],
                            twice_f16(scale[i], rows->low));
}
//$ else
//$ if b.scale.type == "e8m0" then
//$ if early then
    if (!raw->beyond) {
//$ else
    unsigned int most = scale[0];

#pragma unroll
    for (int i = 1; i < HELD; i++)
        most = most > scale[i] ? most : scale[i];
    if (__ballot_sync(~0u, most > MOST_$(near:upper()) * 0x10001) == 0) {
//$ end
#pragma unroll
        for (int i = 0; i < HELD; i++)
#pragma unroll
            for (int j = 0; j < $(words); j++)
                expand_$(kind)_twice(f->pair[i] + $(each // 2) * j, raw->word[i][j],
                               twice_$(near)(scale[i]));
        return;
    }
//$ end
//$ local low = lowered > 0 and b.scale.type == "e4m3"
#pragma unroll
    for (int i = 0; i < HELD; i++)
#pragma unroll
        for (int j = 0; j < $(words); j++)
//$ if low then
            expand_$(kind)_twice(f->pair[i] + $(each // 2) * j, raw->word[i][j],
                           twice_e4m3_apart(scale[i] & 255));
//$ else
            expand_$(kind)(f->pair[i] + $(each // 2) * j, raw->word[i][j],
                     factor_$(b.scale.type)(scale[i] & 255));
//$ end
}
//$ end

/* The products of one step of the ring, where A lies at `a`. */
DEVICE void multiply_fragment(float sum[SUMS], const struct fragment *f, unsigned int a,
                              int accumulate)
{
    mma_begin();
#pragma unroll
    for (int step = 0; step < TILE_K / MMA_K; step++)
#pragma unroll
        for (int i = 0; i < HELD / 2; i++)
            mma(sum + i * (ROWS / 2), f->pair[2 * i][2 * step], f->pair[2 * i + 1][2 * step],
                f->pair[2 * i][2 * step + 1], f->pair[2 * i + 1][2 * step + 1],
                a + step * A_STEP / 16, accumulate || step > 0);
    mma_commit();
}

/* The last codes of a packed stage have been read: give it back. */
DEVICE void packed_done(const struct memory *s, struct place *p, int lane)
{
    copy_engine_fence(); /* what was read may be copied over */
    __syncwarp();
    release_packed(s, p->stage, lane);
    place_next(p, PACKED_STAGES);
}

/*
** One stage: the products of each of its steps are begun, and the next step's values made, those of
** the next stage's first one at last. `p` is the place of the packed stages, `q` that of the ring.
*/
DEVICE void multiply_stage(float sum[SUMS], struct fragment *even, struct fragment *odd,
                           struct raw *raw, const struct memory *s, struct place *p,
                           struct place *q, const struct line *line, const struct rows *rows,
                           int line_row, int x, int k, int lane)
{
    const int stage = q->stage, next = x + SPAN * TILE_K;
    const unsigned int ring = mma_operand(s->ring + stage * SPAN * STAGE_BYTES);

    load_raw(raw, s, rows, p->stage, x, 1);
    barrier_wait(s->full + stage * 8, q->parity);
    multiply_fragment(sum, even, ring, x > 0);
    mma_wait(1);
    if (x > 0)
        release(s, (stage > 0 ? stage : STAGES) - 1, lane);
    place_next(q, STAGES);
    expand_raw(odd, raw, rows, x, 1);
    packed_done(s, p, lane);
    if (next < k) {
        copy_wait(SF_AHEAD - 1);
        __syncwarp(); /* the scales of all lanes are there, and those of the stage before read */
        barrier_wait(s->packed_full + p->stage * 8, p->parity);
        load_raw(raw, s, rows, p->stage, next, 0);
    }
    multiply_fragment(sum, odd, ring + STAGE_BYTES / 16, 1);
    mma_wait(1);
    if (next < k) {
        expand_raw(even, raw, rows, next, 0);
        fetch_ahead(s, line, next, line_row, lane);
    }
}

DEVICE void multiply_tile(float sum[SUMS], const struct memory *s, struct place *p,
                          struct place *q, const struct scales *scales, const struct tile *t,
                          int first_row, int columns, int k, int lane)
{
    const int warp_row = threadIdx.x / 32 % 4 * LINES;
    const int line_row = first_row + warp_row + lane % LINES;
    const struct line line = line_b(scales, t, t->column + warp_row + lane % LINES, columns);
    struct fragment even, odd;
    struct raw raw;
    struct rows rows;

//$ local among = b.scale.k < 64 and "lane % 4 * 16 / " .. b.scale.k .. " * 0x0101 + " or ""
    rows.digits = $(among)0x4040;
    rows.row = first_row + warp_row + lane / 4;
//$ if f16 then
    rows.low = scales->b_low;
//$ end
//$ if stored == 4 then
    rows.codes = A_PACKED + rows.row * 32 + (lane % 4 / 2 ^ lane / 16) * 16 + lane % 2 * 8;
//$ else
    rows.codes = A_PACKED + rows.row * 64 + (lane % 4 ^ lane / 8) * 16;
//$ end
#pragma unroll
    for (int i = 0; i < HELD; i++)
        rows.skip[i] = __shfl_sync(~0u, line.skip, 8 * i + lane / 4);
    p->stage = uniform(p->stage);
    q->stage = uniform(q->stage);
    copy_wait(0); /* what the tile before did not need may still land */
    __syncwarp();
    if (lane < LINES)
        fetch_b(s, &line, 0, line_row);
#pragma unroll 1
    for (int x = -SF_AHEAD * SPAN * TILE_K; x <= 0; x += SPAN * TILE_K)
        fetch_ahead(s, &line, x, line_row, lane);
    copy_wait(SF_AHEAD);
    __syncwarp();
    barrier_wait(s->packed_full + p->stage * 8, p->parity);
    load_raw(&raw, s, &rows, p->stage, 0, 0);
    expand_raw(&even, &raw, &rows, 0, 0);
#pragma unroll 1
    for (int x = 0; x < k; x += SPAN * TILE_K)
        multiply_stage(sum, &even, &odd, &raw, s, p, q, &line, &rows, line_row, x, k, lane);
    mma_wait(0);
    release(s, (q->stage > 0 ? q->stage : STAGES) - 1, lane);
    mma_finish(sum, SUMS);
//$ if lowered > 0 then
    mma_raise(sum, SUMS);
//$ end
}
