//$ -- SPDX-License-Identifier: Apache-2.0
//$ local s = b.scale
//$ local float = b.type == "e2m1"
//$ local f16 = a.type == "f16" -- values of tokens, and so of weights
//$ local care = float and s.type == "e8m0" -- as neither has the largest ones
//$ local held = s.type == "f16" or s.type == "e4m3" -- does f16 have each scale?
/*
** Weights whose rows are steps of k: for each 16 of them the tensor cores want from lane l those
** from 2 (l % 4) on, and those that are 8 after them, of row l / 4 and of the row 8 below. Which of
** D's columns these rows are is free: they are two neighbours, whose codes a byte holds. Each step
** of k has a scale of its own; a lane fetches those of two, and gives them to the lanes that need
** them.
*/
//$ local floats = f16 and "e2m1_half" or "e2m1_apart"
//$ if f16 then once "dequantize/permute.c" end
//$ once("dequantize/" .. (float and floats or f16 and "integers_f16" or "integers") .. ".c")
//$ once("dequantize/factor_" .. s.type .. ".c")
//$ if s.zeros then once("dequantize/zero_" .. b.type .. ".c") end
//$ if care then once "dequantize/twice_e8m0_apart.c" end
/* The factors of two rows' codes, as a pair. */
struct factor {
//$ if f16 then
    unsigned int twice; /* f16, of which codes may want one that is 2^$(14 - lowered) too large;
                           the scales' codes where f16 may not hold them */
//$ if not float then
    unsigned int zero; /* 1024 and the codes that stand for 0 */
//$ end
//$ elseif float then
    unsigned int twice; /* bf16, of which codes may want one that is 2^$(126 - lowered) too large */
//$ else
    struct integer_scale of; /* its words differ in both halves */
//$ end
};

/* The position of a thread's codes, and the scales of the two rows of a step that it fetches. */
struct rows {
    unsigned int codes; /* in a stage of B */
    unsigned int words; /* the lane's, of those that are on their way */
    struct {
        const unsigned char *from; /* the word that holds the scale that is fetched next */
        int bytes;                 /* of that word, in the tensor */
        int bits;                  /* of that word, before the scale */
    } scale[2];
    long long stride;     /* in bytes, from a step's scales to the next one's */
    int k;                /* rows */
    struct factor factor; /* the lane's two rows' */
//$ if care then
    int beyond; /* may one of the warp's need care? */
//$ end
};

FN unsigned int slot(const struct rows *r, int x)
{
    return r->words + (unsigned int)(x / TILE_K) % B_SLOTS * TILE_K * 4;
}

/* Ask for the scales that are needed SF_AHEAD steps after `x`: zeros past k. */
FN void fetch_ahead(const struct memory *s, struct rows *r, int x, int lane)
{
    x += SF_AHEAD * TILE_K;
    (void)s;
#pragma unroll
    for (int i = 0; i < 2; i++) {
        const int is_there = x + 2 * lane + i < r->k;

        copy_word(slot(r, x) + i * 4, r->scale[i].from, is_there ? r->scale[i].bytes : 0);
        r->scale[i].from += x + TILE_K + 2 * lane + i < r->k ? r->stride : 0;
    }
    copy_commit();
}

/* Before the first step. `columns` are D's, all of them. */
FN void rows_begin(struct rows *r, const struct memory *s, const struct scales *scales,
                   const struct tile *t, int first_row, int columns, int lane)
{
    const int warp = threadIdx.x / 32 % 4, column = first_row + warp * 16;
    const struct scale_group g = group_of(scales, t);
    const struct scale_place p = place_b(&g, columns, scales->b_stride, scales->b_group_stride);
    const int first = (t->column + warp * 16) / $(s.k) * $(s.bytes);
    const int end = (columns + $(s.k - 1)) / $(s.k) * $(s.bytes); /* of a row's scales */

    r->codes =
        lane % 4 * 2 * B_ROW + (column / 32 ^ lane % 4) * 16 + column / 16 % 2 * 8 + lane / 4;
    r->words = s->words + (threadIdx.x / 32 - 4) * (B_SLOTS * TILE_K * 4) + lane * 8;
    r->stride = p.stride * $(s.bytes) * TILE_K;
    r->k = scales->k;
#pragma unroll
    for (int i = 0; i < 2; i++) {
        const int row = 2 * lane + i < r->k ? 2 * lane + i : 0;
        const u64 at = (u64)scales->b + (p.base + row * p.stride) * $(s.bytes) + first;
        const int left = end - first + (int)(at & 3);

        r->scale[i].from = (const unsigned char *)(at & ~(u64)3);
        r->scale[i].bytes = left < (int)(at & 3) ? 0 : left < 4 ? left : 4;
        r->scale[i].bits = (int)(at & 3) * 8;
    }
}

//$ local mask = s.bytes == 1 and " & 255" or s.bytes == 2 and " & 0xffff" or ""
/* The lane's factors of the step at `x`. */
FN void load_scales(struct rows *r, const struct memory *s, int x)
{
    unsigned int first, second;

    (void)s;
    load_shared_words(slot(r, x), &first, &second);
    first = first >> r->scale[0].bits$(mask);
    second = second >> r->scale[1].bits$(mask);
//$ local less = lowered > 0 and " * 0x1p" .. 126 - lowered .. "f" or ""
//$ if care then
    r->beyond = __any_sync(~0u, beyond_e8m0_apart(first | second));
    if (!r->beyond) {
//$ if f16 then
        r->factor.twice = permute(twice_e8m0_half(first), twice_e8m0_half(second), 0x5410);
//$ else
        r->factor.twice = twice_e8m0_apart(first | second << 16);
//$ end
        return;
    }
//$ end
//$ if f16 then
//$ local bits = s.zeros and " & 0xffff" or ""
//$ if not held then
    r->factor.twice = first$(bits) | second << 16;
//$ elseif lowered > 0 then
    r->factor.twice = permute(twice_e4m3_half(first), twice_e4m3_half(second), 0x5410);
//$ else
    r->factor.twice = to_f16_x2(factor_$(s.type)(first$(bits)), factor_$(s.type)(second$(bits)));
//$ end
//$ if s.zeros then
    r->factor.zero = 0x64006400 + (unsigned int)zero_$(b.type)(first) +
                     ((unsigned int)zero_$(b.type)(second) << 16);
//$ elseif not float then
    r->factor.zero = $(b.type == "i4" and "0x64086408" or "0x64006400 + 0x10001 * " .. s.zero);
//$ end
//$ elseif float then
    r->factor.twice = permute(bits_of(factor_$(s.type)(first)$(less)),
                              bits_of(factor_$(s.type)(second)$(less)), 0x7632);
//$ else
//$ local bits = s.zeros and " & 0xffff" or ""
    const struct integer_scale one = integer_scale(factor_$(s.type)(first$(bits)), 0);
    const struct integer_scale two = integer_scale(factor_$(s.type)(second$(bits)), 0);

    r->factor.of.high = permute(one.high, two.high, 0x5410);
    r->factor.of.low = permute(one.low, two.low, 0x5410);
//$ if s.zeros then
    r->factor.of.zero = 0x43004300 + (unsigned int)zero_$(b.type)(first) +
                        ((unsigned int)zero_$(b.type)(second) << 16);
//$ else
    r->factor.of.zero = $(b.type == "i4" and "0x43084308" or "0x43004300 + 0x10001 * " .. s.zero);
//$ end
//$ end
}

/* Those of the rows that lane `from` has the scales of. */
FN struct factor factor_from(const struct rows *r, int from)
{
    struct factor f = r->factor;

//$ if float or f16 then
    f.twice = __shfl_sync(~0u, f.twice, from);
//$ if s.zeros and f16 then
    f.zero = __shfl_sync(~0u, f.zero, from);
//$ end
//$ else
    f.of.high = __shfl_sync(~0u, f.of.high, from);
    f.of.low = __shfl_sync(~0u, f.of.low, from);
//$ if s.zeros then
    f.of.zero = __shfl_sync(~0u, f.of.zero, from);
//$ end
//$ end
    return f;
}

//$ if f16 then
/* Two values, each times the scale of its code. */
FN unsigned int scale_two(unsigned int pair, unsigned int codes)
{
    return to_f16_x2(mul_rn(from_f16(pair & 0xffff), factor_$(s.type)(codes & 0xffff)),
                     mul_rn(from_f16(pair >> 16), factor_$(s.type)(codes >> 16)));
}

//$ end
//$ if float then
/* All values of a step, whose stage of B is at `stage`, by factors that lack 2^126 if `any`. */
FN void dequantize_rows(struct fragment *f, const struct rows *r, unsigned int stage, int any)
//$ else
/* All values of a step, whose stage of B is at `stage`. */
FN void dequantize_rows(struct fragment *f, const struct rows *r, unsigned int stage)
//$ end
{
#pragma unroll
    for (int y = 0; y < TILE_K / 8; y++) {
        const struct factor factor = factor_from(r, 4 * y + threadIdx.x % 4);
        const unsigned int from = stage + r->codes + y * 8 * B_ROW;
        const unsigned int codes =
            load_shared_byte(from) | load_shared_byte(from + B_ROW) << 16;

//$ if float and f16 then
#pragma unroll
        for (int i = 0; i < 2; i++) {
            const unsigned int pair = bits_e2m1_half(codes, i);

//$ local raised = "multiply_f16x2(pair, 0x74007400)"
//$ local far = (held and "multiply_f16x2(" or "scale_two(") .. raised .. ", factor.twice)"
            f->pair[i][y] = any ? $(far) : multiply_f16x2(pair, factor.twice);
        }
//$ elseif float then
#pragma unroll
        for (int i = 0; i < 2; i++) {
            const unsigned int pair = bits_e2m1_apart(codes, i);

            f->pair[i][y] =
                multiply_bf16x2(any ? multiply_bf16x2(pair, 0x7e807e80) : pair, factor.twice);
        }
//$ else
//$ local zero = f16 and "0x64006400" or "0x43004300"
//$ local flip = b.type == "i4" and (f16 and "0x64086408" or "0x43084308") or zero
//$ local short = s.type ~= "f16" and "_short" or ""
//$ for i = 0, 1 do
//$ local codes = "pair_of_word(codes" .. (i > 0 and " >> 4" or "") .. ", " .. flip .. ")"
//$ if f16 then
        f->pair[$(i)][y] = $(held and "multiply_f16x2" or "scale_two")(
            subtract_f16x2($(codes), factor.zero), factor.twice);
//$ else
        f->pair[$(i)][y] = scale_integer$(short)($(codes), &factor.of);
//$ end
//$ end
//$ end
    }
}

/* The same of the step at `x`. */
FN void dequantize_step(struct fragment *f, const struct rows *r, unsigned int stage, int x)
{
    (void)x;
//$ if care then
    if (r->beyond)
        dequantize_rows(f, r, stage, 1);
    else
        dequantize_rows(f, r, stage, 0);
//$ elseif float then
    dequantize_rows(f, r, stage, $(lowered > 0 and 0 or 1));
//$ else
    dequantize_rows(f, r, stage);
//$ end
}
