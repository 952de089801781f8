//$ -- SPDX-License-Identifier: Apache-2.0
//$ local either = wide == "either"
//$ -- two loops, or one of both types, which needs fewer registers
//$ local mixed = either and few > 0
//$ local stored = b.bits == 4 and 4 or 8 -- bits of a code: six have a byte
//$ local words = stored // 2 -- of 16 codes
//$ local each = 32 // stored -- codes in a word
//$ local row_bytes = 8 * stored
//$ local kind = b.type .. (apart and "_apart" or "") .. (b.scale.type == "f32" and "_wide" or "")
//$ local in_word = 4 // b.scale.bytes -- scales
//$ local near = apart and "e8m0_apart" or "e8m0"
//$ -- The products of floats and powers of two need no rounding.
//$ local powers = b.scale.type == "e8m0" and not b.integer
//$ -- of codes of 8 bits four scales at once are a test more than each time one
//$ local early = powers and apart
/*
** sum = (a * b) turned, over all of k, at least one step: the rows of B are the tensor cores' rows,
** those of A their columns. A is dequantized in the ring; these warps dequantize B themselves,
** into the registers that the tensor cores take it from, a step ahead: while one batch of products
** is in flight the next one's values are made. Their codes are asked for before that batch is
** begun, so that nothing is waited for after it. A stage is two steps, its halves, so that work
** other than products and values is done half as often.
**
** Lane l has 16 neighbouring ones of a row's 64 steps of k, from 16 (l % 4) on: the two or four
** that are next to each other go into one product. The tensor cores want them elsewhere, but any
** order will do if A has the same: there the dequantizers see to that.
//$ if apart then
** So a pair is two at a distance of four among eight.
//$ end
//$ if either then
**
** A tile is multiplied as f16 at first, for which its scales must not be too far apart. All of them
** pass through these warps and those that dequantize: a tile with one that does not fit is marked,
** and comes again in the end, as bf16.
//$ end
*/
enum { LINES = COLUMNS / 4, HELD = LINES / 8 }; /* rows of B: in a warp, in a thread */

//$ if few > 0 then
enum { FEW = $(few) }; /* rows of A for fewer products  COUPLED: few -> model_dequantize.c */

//$ end
/* One thread's share of B for TILE_K steps of k: two of 16 rows, with 8 words of pairs each. */
struct fragment {
    unsigned int pair[HELD][8];
};

/* The codes that these are made of, and the scales, those of TILE_K steps or more. */
struct raw {
    unsigned int word[HELD][$(words)], scales[HELD];
//$ if early then
    int beyond; /* may one of the warp's scales need care? Known before a value waits for it */
//$ end
//$ if either then
    int far; /* as f16: is one of the warp's scales, factors by then, not near the others? */
//$ end
};

/*
** The position of the first of a thread's rows: in a packed stage, among the scales; its lines;
** which of four scales is the thread's, for permute, which puts it into both halves of a word.
//$ if either then
** As f16: B's base, and the record of the tile's mark.
//$ end
*/
struct rows {
    unsigned int codes;
    int row;
    unsigned int skips; /* a byte of each line's bits before its first scale */
    unsigned int digits;
    int of_a; /* of A's, those that the group has from the tile's first on */
//$ if either then
    unsigned int near, sequence;
//$ if mixed then
    int narrow;
//$ end
//$ end
};

/* Ask for the scales that are needed SF_AHEAD stages after `x`; a lane for each line. */
FN void fetch_ahead(const struct memory *s, const struct line *line, int x, int row, int lane)
{
    if (lane < LINES)
        fetch_next_b(s, line, x + SF_AHEAD * SPAN * TILE_K, row);
    copy_commit();
}

/* Scales become factors, four in a word. */
FN void narrow_scales(const struct memory *s, struct raw *raw, const struct rows *rows)
{
    unsigned int beyond = 0, over = 0;

#pragma unroll
    for (int i = 0; i < HELD; i++)
        beyond |= beyond_f16(raw->scales[i] - rows->near);
    raw->far = __any_sync(~0u, beyond);
    if (raw->far) {
#pragma unroll
        for (int i = 0; i < HELD; i++)
            raw->scales[i] = far_f16(raw->scales[i], low_of_near(rows->near), &over);
        mark_tile(s, rows->sequence, over);
        return;
    }
#pragma unroll
    for (int i = 0; i < HELD; i++)
        raw->scales[i] = four_f16(raw->scales[i] - rows->near);
}

/* Codes without a factor must be zeros. */
FN void narrow_zeros(const struct memory *s, const struct raw *raw, const struct rows *rows,
                     unsigned int digits)
{
    unsigned int any = 0;

#pragma unroll
    for (int i = 0; i < HELD; i++)
#pragma unroll
        for (int j = 0; j < $(words); j++)
            any |= permute(raw->scales[i], 0, digits) ? 0 : raw->word[i][j] & 0x7f7f7f7f;
    mark_tile(s, rows->sequence, any);
}

//$ -- of scales: does each step need another word, each stage, or not even each stage?
//$ local word_k, stage_k = in_word * b.scale.k, span * tile.k
FN void load_scales(struct raw *raw, const struct memory *s, const struct rows *rows, int x)
{
//$ if early then
    unsigned int beyond = 0;

//$ end
#pragma unroll
    for (int i = 0; i < HELD; i++)
        raw->scales[i] = word_b(s, rows->skips >> 8 * i, x, rows->row + 8 * i);
//$ if early then
#pragma unroll
    for (int i = 0; i < HELD; i++)
        beyond |= beyond_$(near)(raw->scales[i]);
    raw->beyond = __ballot_sync(~0u, beyond) != 0;
//$ end
}

//$ local late = few > 0 -- beside so many sums not all codes wait for their turn in registers
//$ if late then
enum { EARLY = HELD / $(either and 4 or 2) }; /* rows whose codes do */

//$ end
/* Codes of one half of a stage, of rows `first` .. `end` of a thread's. */
FN void load_codes(struct raw *raw, const struct memory *s, const struct rows *rows, int stage,
                   int half, int first, int end)
{
    const unsigned int codes = s->packed + (stage * SPAN + half) * PACKED_BYTES + rows->codes;

#pragma unroll
    for (int i = first; i < end; i++)
//$ if stored == 4 then
        load_shared_codes(codes + i * 8 * $(row_bytes), raw->word[i]);
//$ else
        load_shared_x4(codes + i * 8 * $(row_bytes), raw->word[i]);
//$ end
}

//$ local first = word_k < stage_k and "1" or "half == 0"
//$ first = word_k > stage_k and first .. " && x % B_WORD_K == 0" or first
//$ local parts = late and { "raw", "rest" } or { "raw" }
//$ for i, part in ipairs(parts) do
//$ if part == "rest" then
/* The others, for which there is room when one fragment's products are done. */
//$ else
/*
** Scales and codes of one half of the stage that begins at `x`: scales stay for as many steps as a
** word is for.$(late and " Some of them." or "")
*/
//$ end
//$ local scales = i == (either and #parts or 1)
FN void load_$(part)(struct raw *raw, const struct memory *s, const struct rows *rows,
                     int stage, $(scales and "int x, " or "")int half)
{
//$ if scales then
    if ($(first))
        load_scales(raw, s, rows, x + half * TILE_K);
//$ end
//$ local from, to = i == 1 and "0" or "EARLY", i == #parts and "HELD" or "EARLY"
    load_codes(raw, s, rows, stage, half, $(from), $(to));
}

//$ end
/* The values of one half of the stage that begins at `x`. */
FN void dequantize_raw(struct fragment *f, const struct raw *raw, const struct rows *rows,
                       $(word_k > stage_k and "int x, " or "")int half)
{
//$ local from = word_k > stage_k and "(x + half * TILE_K)" or "half * TILE_K"
//$ if in_word > 1 then
//$ local next = either and "0x1010" or "0x0101" -- digits; of either they are upper bytes
//$ if in_word == 2 then next = "0x2222" end
    const unsigned int digits =
        rows->digits + (unsigned int)($(from) / $(b.scale.k) % $(in_word)) * $(next);
    unsigned int scale[HELD]; /* in both halves */

#pragma unroll
    for (int i = 0; i < HELD; i++)
        scale[i] = permute(raw->scales[i], 0, digits)$(either and " >> 8" or "");
//$ else
    const unsigned int *const scale = raw->scales;

//$ if word_k > stage_k then
    (void)x;
//$ end
    (void)rows, (void)half;
//$ end
//$ if powers then
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
                dequantize_$(kind)_twice(f->pair[i] + $(each // 2) * j, raw->word[i][j],
                               twice_$(near)(scale[i]));
        return;
    }
//$ end
//$ local low = lowered > 0 and b.scale.type == "e4m3"
//$ local zero = b.scale.zeros and ", zero_" .. b.type .. "(scale[i])" or b.zero
//$ local mask = in_word == 4 and " & 255" or in_word == 2 and " & 0xffff" or ""
#pragma unroll
    for (int i = 0; i < HELD; i++)
#pragma unroll
        for (int j = 0; j < $(words); j++)
//$ if low then
            dequantize_$(kind)_twice(f->pair[i] + $(each // 2) * j, raw->word[i][j],
                           twice_e4m3_apart(scale[i] & 255));
//$ else
            dequantize_$(kind)(f->pair[i] + $(each // 2) * j, raw->word[i][j],
                     factor_$(b.scale.type)(scale[i]$(mask))$(zero));
//$ end
}

//$ if either then
/* The same as f16. */
FN void dequantize_narrow(const struct memory *s, struct fragment *f, struct raw *raw,
                          const struct rows *rows, int half)
{
    const unsigned int digits = rows->digits + half * 2 * 0x1010;

    if (half == 0) /* not before: until here both fragments are in use */
        narrow_scales(s, raw, rows);
    if (raw->far)
        narrow_zeros(s, raw, rows, digits);
#pragma unroll
    for (int i = 0; i < HELD; i++)
#pragma unroll
        for (int j = 0; j < $(words); j++)
            dequantize_$(b.type)_f16(f->pair[i] + $(each // 2) * j, raw->word[i][j],
                            permute(raw->scales[i], 0, digits));
}

//$ end
//$ local counts = few > 0 and { "_few", "" } or { "" } -- of rows
//$ local types = either and { "_f16", "" } or { "" }
//$ for _, count in ipairs(counts) do
//$ for _, type in ipairs(types) do
//$ local which = count == "_few" and ", of its first FEW rows" or ""
/* The products of one step of the ring, where A is at `a`$(which). */
FN void multiply$(count)$(type)(float sum[SUMS], const struct fragment *f, unsigned int a,
                              int accumulate)
{
    mma_begin();
#pragma unroll
    for (int step = 0; step < TILE_K / MMA_K; step++)
#pragma unroll
        for (int i = 0; i < HELD / 2; i++)
            mma$(count)$(type)(sum + i * (ROWS / 2), f->pair[2 * i][2 * step],
                f->pair[2 * i + 1][2 * step], f->pair[2 * i][2 * step + 1],
                f->pair[2 * i + 1][2 * step + 1], a + step * A_STEP / 16, accumulate || step > 0);
    mma_commit();
}

//$ end
//$ end
//$ if mixed then
/* The same of all rows that the tile has, as the tile is multiplied. */
FN void multiply_step(float sum[SUMS], const struct fragment *f, unsigned int a,
                      const struct rows *rows, int accumulate)
{
    if (rows->narrow && rows->of_a <= FEW)
        multiply_few_f16(sum, f, a, accumulate);
    else if (rows->narrow)
        multiply_f16(sum, f, a, accumulate);
    else if (rows->of_a <= FEW)
        multiply_few(sum, f, a, accumulate);
    else
        multiply(sum, f, a, accumulate);
}

//$ else
//$ for _, type in ipairs(types) do
/* The same of all rows that the tile has. */
FN void multiply_step$(type)(float sum[SUMS], const struct fragment *f, unsigned int a,
                          $(few > 0 and "const struct rows *rows, " or "")int accumulate)
{
//$ if few > 0 then
    if (rows->of_a <= FEW)
        multiply_few$(type)(sum, f, a, accumulate);
    else
//$ end
    multiply$(type)(sum, f, a, accumulate);
}

//$ end
//$ end
/* The last codes of a packed stage have been read: give it back. */
FN void packed_done(const struct memory *s, struct pipeline *p, int lane)
{
    copy_engine_fence(); /* the stage may be overwritten */
    __syncwarp();
    release_packed(s, p->stage, lane);
    pipeline_next(p, PACKED_STAGES);
}

//$ local type = either and not mixed and "_f16" or ""
//$ local function by(part, x) return (part == "rest") == (late and either) and ", " .. x or "" end
//$ local counted = (mixed or few > 0) and ", rows" or ""
//$ local at, at_next = word_k > stage_k and ", x" or "", word_k > stage_k and ", next" or ""
/*
** One stage: the products of each of its steps are begun, and the next step's values made, those of
** the next stage's first one at last. `p` is the place of the packed stages, `q` that of the ring.
*/
FN void multiply_stage(float sum[SUMS], struct fragment *even, struct fragment *odd,
                       struct raw *raw, const struct memory *s, struct pipeline *p,
                       struct pipeline *q, const struct line *line, const struct rows *rows,
                       int line_row, int x, int k, int lane)
{
    const int stage = q->stage, next = x + SPAN * TILE_K;
    const unsigned int ring = mma_operand(s->ring + stage * SPAN * STAGE_BYTES);

    load_raw(raw, s, rows, p->stage$(by("raw", "x")), 1);
    barrier_wait(s->full + stage * 8, q->parity);
    multiply_step$(type)(sum, even, ring$(counted), x > 0);
    mma_wait(1);
//$ if late then
    load_rest(raw, s, rows, p->stage$(by("rest", "x")), 1);
//$ end
    if (x > 0)
        release(s, (stage > 0 ? stage : STAGES) - 1, lane);
    pipeline_next(q, STAGES);
//$ if either then
//$ if mixed then
    if (rows->narrow)
//$ end
        dequantize_narrow(s, odd, raw, rows, 1);
//$ if mixed then
    else
        dequantize_raw(odd, raw, rows$(at), 1);
//$ end
//$ else
    dequantize_raw(odd, raw, rows$(at), 1);
//$ end
    packed_done(s, p, lane);
    if (next < k) {
        copy_wait(SF_AHEAD - 1);
        __syncwarp(); /* the scales of all lanes are there, and those of the stage before read */
        barrier_wait(s->packed_full + p->stage * 8, p->parity);
        load_raw(raw, s, rows, p->stage$(by("raw", "next")), 0);
    }
    multiply_step$(type)(sum, odd, ring + STAGE_BYTES / 16$(counted), 1);
    mma_wait(1);
    if (next < k) {
//$ if late then
        load_rest(raw, s, rows, p->stage$(by("rest", "next")), 0);
//$ end
//$ if either then
//$ if mixed then
        if (rows->narrow)
//$ end
            dequantize_narrow(s, even, raw, rows, 0);
//$ if mixed then
        else
            dequantize_raw(even, raw, rows$(at_next), 0);
//$ end
//$ else
        dequantize_raw(even, raw, rows$(at_next), 0);
//$ end
        fetch_ahead(s, line, next, line_row, lane);
    }
}

//$ if either and not mixed then
/* All of a tile as bf16, step by step: it is rare. */
FN void multiply_again(float sum[SUMS], const struct memory *s, struct pipeline *p,
                       struct pipeline *q, const struct line *line, const struct rows *rows,
                       int line_row, int k, int lane)
{
    struct fragment f;
    struct raw raw;

#pragma unroll 1
    for (int x = 0; x < k; x += SPAN * TILE_K) {
        const unsigned int ring = mma_operand(s->ring + q->stage * SPAN * STAGE_BYTES);

        if (x > 0)
            copy_wait(SF_AHEAD - 1);
        __syncwarp(); /* the scales of all lanes are there */
        barrier_wait(s->packed_full + p->stage * 8, p->parity);
        barrier_wait(s->full + q->stage * 8, q->parity);
#pragma unroll
        for (int half = 0; half < SPAN; half++) {
            load_raw(&raw, s, rows, p->stage$(by("raw", "x")), half);
            dequantize_raw(&f, &raw, rows$(at), half);
            multiply_step(sum, &f, ring + half * (STAGE_BYTES / 16)$(counted), x > 0 || half > 0);
            mma_wait(0);
        }
        packed_done(s, p, lane);
        release(s, q->stage, lane);
        pipeline_next(q, STAGES);
        if (x > 0)
            fetch_ahead(s, line, x, line_row, lane);
    }
    mma_finish(sum, SUMS);
}

//$ end
//$ if either then
/* The largest of all first scales of the warp's rows. */
FN unsigned int sample_scales(const struct memory *s, const struct rows *rows)
{
    unsigned int most = 0;

#pragma unroll
    for (int i = 0; i < HELD; i++)
        most = largest_of(most, word_b(s, rows->skips >> 8 * i, 0, rows->row + 8 * i));
    return __reduce_max_sync(~0u, most);
}

/* The factor that sums of f16 lack: a power of two for each warp that dequantizes, `lows` is of
   their rows. */
FN void raise_sums(float sum[SUMS], unsigned int low, unsigned int lows)
{
    float unit[4];

    for (int i = 0; i < 4; i++)
        unit[i] = unit_f16(lows >> 8 * i & 255, low);
#pragma unroll
    for (int i = 0; i < SUMS; i++) {
        const int eight = i % (ROWS / 2) / 4; /* rows of A */

        sum[i] *= unit[eight < 8 ? eight / 2 : eight - 8];
    }
}

//$ end
FN void multiply_tile(float sum[SUMS], const struct memory *s, struct pipeline *p,
                      struct pipeline *q, const struct scales *scales, const struct tile *t,
                      int first_row, int columns, int k, int lane)
{
    const int warp_row = threadIdx.x / 32 % 4 * LINES;
    const int line_row = first_row + warp_row + lane % LINES;
    const struct line line = line_b(scales, t, t->column + warp_row + lane % LINES, columns);
    struct fragment even, odd;
    struct raw raw;
    struct rows rows;
//$ local apiece = in_word == 2 and " * 0x2222 + " or " * 0x0101 + "
//$ local among = b.scale.k < 64 and "lane % 4 * 16 / " .. b.scale.k .. apiece or ""
//$ among = among .. (in_word == 2 and "0x1010" or "0x4040")
//$ if either then among = "lane % 4 * 16 / 32 * 0x1010 + 0x0404" end
    rows.digits = $(among);
    rows.row = first_row + warp_row + lane / 4;
//$ if either then
    rows.sequence = t->sequence;
//$ end
//$ if stored == 4 then
    rows.codes = A_PACKED + rows.row * 32 + (lane % 4 / 2 ^ lane / 16) * 16 + lane % 2 * 8;
//$ else
    rows.codes = A_PACKED + rows.row * 64 + (lane % 4 ^ lane / 8) * 16;
//$ end
    rows.skips = 0;
#pragma unroll
    for (int i = 0; i < HELD; i++)
        rows.skips |= (unsigned int)__shfl_sync(~0u, line.skip, 8 * i + lane / 4) << (8 * i + 3);
    rows.of_a = uniform((int)t->length - t->row);
    p->stage = uniform(p->stage);
    q->stage = uniform(q->stage);
    copy_wait(0); /* unneeded copies of the tile before may still land */
    __syncwarp();
    if (lane < LINES)
        fetch_b(s, &line, 0, line_row);
#pragma unroll 1
    for (int x = -SF_AHEAD * SPAN * TILE_K; x <= 0; x += SPAN * TILE_K)
        fetch_ahead(s, &line, x, line_row, lane);
    copy_wait(SF_AHEAD);
    __syncwarp();
//$ if either then
//$ if mixed then
    rows.narrow = t->as == AS_F16;
    if (rows.narrow)
        rows.near = near_f16(sampled_f16(sample_scales(s, &rows)));
//$ else
    if (t->as == AS_BF16) {
        multiply_again(sum, s, p, q, &line, &rows, line_row, k, lane);
        return;
    }
    rows.near = near_f16(sampled_f16(sample_scales(s, &rows)));
//$ end
//$ end
    barrier_wait(s->packed_full + p->stage * 8, p->parity);
    load_raw(&raw, s, &rows, p->stage$(by("raw", "0")), 0);
//$ if late then
    load_rest(&raw, s, &rows, p->stage$(by("rest", "0")), 0);
//$ end
//$ if either then
//$ if mixed then
    if (rows.narrow)
//$ end
        dequantize_narrow(s, &even, &raw, &rows, 0);
//$ if mixed then
    else
        dequantize_raw(&even, &raw, &rows$(word_k > stage_k and ", 0" or ""), 0);
//$ end
//$ else
    dequantize_raw(&even, &raw, &rows$(word_k > stage_k and ", 0" or ""), 0);
//$ end
#pragma unroll 1
    for (int x = 0; x < k; x += SPAN * TILE_K)
        multiply_stage(sum, &even, &odd, &raw, s, p, q, &line, &rows, line_row, x, k, lane);
    mma_wait(0);
//$ if either then
    unsigned int lows = 0;
    if (lane == 0) /* it gives the stage back, after which others' lows may replace them */
        lows = load_shared_word(lows_of(s, rows.sequence));
//$ end
    release(s, (q->stage > 0 ? q->stage : STAGES) - 1, lane);
    mma_finish(sum, SUMS);
//$ if either then
//$ if mixed then
    if (rows.narrow)
//$ end
    raise_sums(sum, low_of_near(rows.near), __shfl_sync(~0u, lows, 0));
//$ end
//$ if lowered > 0 then
    mma_raise(sum, SUMS);
//$ end
}
