//$ -- SPDX-License-Identifier: Apache-2.0
//$ local four, s = b.bits == 4, b.scale
//$ local each = 4 // s.bytes -- scales in a word, as the caller gave them
//$ local blocks = math.max(tile.k // s.k, 1) -- scales of a row in a stage
//$ local parts = s.zeros and 2 or 1 -- words of a prepared one
//$ local f16 = a.type == "f16" -- values of tokens, and so of weights
//$ local wide = s.type == "f32" or f16 and s.type ~= "f16" and s.type ~= "e4m3"
//$ local held = four and (half_words and "_apart" or "_byte") or ""
//$ local kind = b.type .. held .. (wide and "_wide" or "")
//$ local integer = four and b.integer
//$ local short = integer and s.type ~= "f16" and not wide
//$ local to = integer and f16 and "_f16" or short and "_short" or ""
//$ to = to .. (wide and "_wide" or "")
//$ local exact = b.type == "e2m1" and s.type == "e8m0" -- 16 bits hold all but the largest scales
//$ local low = lowered > 0
//$ if f16 then
//$ once("dequantize/" .. (integer and "integers_f16" or b.type .. "_half") .. ".c")
//$ else
//$ once("dequantize/" .. (integer and "integers" or kind) .. ".c")
//$ end
//$ once("dequantize/factor_" .. s.type .. ".c")
//$ once "dequantize/permute.c"
//$ if s.zeros then once("dequantize/zero_" .. b.type .. ".c") end
//$ if exact then once "dequantize/twice_e8m0_apart.c" end
//$ if low and not f16 then once "dequantize/twice_e4m3_apart.c" end
//$ local twice_e8m0 = f16 and "twice_e8m0_half" or "twice_e8m0_apart"
//$ local vector = math.min(blocks * parts, 4)
/*
** The codes of a warp's rows as values. A lane has rows l / 4 and each that is a multiple of 8
** below it.
//$ if four and not half_words then
** It has the two of 16 steps of k from 2 (l % 4) on, which are a byte, and the two that are 8 after
** them.
//$ else
** It has the four of 16 steps of k from 4 (l % 4) on. The tensor cores add the products of 16 steps
** in any order, so tokens take the same four.
//$ if half_words then
** The four are half a word. Two halves, of 16 steps each, make a word with the first and the third
** of four 16 bits apart, and the second and the fourth: as the tensor cores want a pair.
//$ end
//$ end
**
** Scales are prepared for a stage, a lane for each row, and shared by the lanes that have its
** codes: VECTOR words of a row together, those of the next row after them.
*/
enum {
    HELD = WARP_N / 8, /* rows of b of which a lane has codes */
    VECTOR = $(vector),
    VECTORS = $(blocks * parts // vector),
    VECTOR_K = TILE_K / VECTORS /* steps of k that a vector is for */
};

struct factors {
    unsigned int word[HELD][VECTOR];
};

FN unsigned int factor_slot(const struct memory *s, int vector, int row)
{
    return s->factors + (vector * TILE_N + row) * VECTOR * 4;
}

/* Vector `vector` of a lane's rows. */
FN void load_factors(struct factors *f, const struct memory *s, int row, int vector)
{
#pragma unroll
    for (int i = 0; i < HELD; i++) {
        const unsigned int from = factor_slot(s, vector, row + 8 * i);
        unsigned int *word = f->word[i];

//$ if vector == 1 then
        word[0] = load_shared_word(from);
//$ elseif vector == 2 then
        asm volatile("ld.shared.v2.b32 {%0, %1}, [%2];"
                     : "=r"(word[0]), "=r"(word[1]) : "r"(from) : "memory");
//$ else
        load_shared_x4(from, word);
//$ end
    }
}

FN void store_factors(unsigned int to, const unsigned int word[VECTOR])
{
//$ if vector == 1 then
    asm volatile("st.shared.b32 [%0], %1;" : : "r"(to), "r"(word[0]) : "memory");
//$ elseif vector == 2 then
    store_shared_x2(to, word[0], word[1]);
//$ else
    store_shared_x4(to, word);
//$ end
}

//$ local factor = "factor_" .. s.type .. "(code" .. (s.zeros and " & 0xffff" or "") .. ")"
//$ local zero = s.zeros and ", zero_" .. b.type .. "(code)" or b.zero
/* The words of the scale whose code is the lowest bits of `code`. */
FN void prepare(unsigned int *word, unsigned int code)
{
//$ if s.bytes < 4 and not s.zeros then
    code &= $(s.bytes == 1 and "255" or "0xffff");
//$ end
//$ if integer then
//$ local of_f16 = f16 and "_f16" or ""
    const struct integer_scale$(of_f16) scale = scale_of_$(b.type)$(of_f16)($(factor)$(zero));

//$ if wide then
    word[0] = bits_of(scale.factor);
//$ elseif f16 then
    word[0] = scale.twice;
//$ else
    word[0] = permute(scale.high, scale.low, 0x5410);
//$ end
//$ if s.zeros then
    word[1] = scale.zero;
//$ end
//$ elseif low then
    word[0] = twice_e4m3_$(f16 and "half" or "apart")(code);
//$ else
    word[0] = bits_of($(factor));
//$ end
}

//$ local skewed = each * s.k > tile.k
//$ local words = skewed and 1 or tile.k // (each * s.k)
//$ if exact then
/* Prepare the scales of the warp's rows for the stage that begins at `x`. Does one of them need
   care? */
FN int prepare_factors(const struct memory *s, const struct rows *r, int x)
//$ else
/* Prepare the scales of the warp's rows for the stage that begins at `x`. */
FN void prepare_factors(const struct memory *s, const struct rows *r, int x)
//$ end
{
    const int own = threadIdx.x % 32 < WARP_N;
    unsigned int word[VECTORS][VECTOR], codes[$(words)] = { 0 };

    if (own) {
        unsigned int near = load_shared_word(slot_b(s, x / B_WORD_K, r->line_row));

#pragma unroll
        for (int i = 0; i < $(words); i++) {
            const unsigned int far =
                load_shared_word(slot_b(s, x / B_WORD_K + 1 + i, r->line_row));

            codes[i] = __funnelshift_r(near, far, 8 * r->line.skip);
            near = far;
        }
    }
//$ local code = "codes[" .. (words > 1 and "i / " .. each or "0") .. "]"
//$ local place = skewed and "(x / " .. s.k .. " + i) % " .. each or "i % " .. each
//$ local shift = each == 1 and "" or " >> " .. 8 * s.bytes .. " * (" .. place .. ")"
//$ local near = skewed and "(" .. place .. ")" or place
//$ if exact then
    unsigned int all = 0;
#pragma unroll
    for (int i = 0; i < $(words); i++)
        all |= beyond_e8m0_apart(codes[i]);
    const int beyond = __ballot_sync(~0u, all) != 0;
    if (!beyond) {
#pragma unroll
        for (int i = 0; i < $(blocks); i++)
            word[i / VECTOR][i % VECTOR] =
                $(twice_e8m0)(permute($(code), 0, 0x4040 + $(near) * 0x0101));
    } else
//$ end
#pragma unroll
    for (int i = 0; i < $(blocks); i++)
        prepare(&word[i * $(parts) / VECTOR][i * $(parts) % VECTOR], $(code)$(shift));
    if (own)
#pragma unroll
        for (int i = 0; i < VECTORS; i++)
            store_factors(factor_slot(s, i, r->line_row), word[i]);
    __syncwarp();
//$ if exact then
    return beyond;
//$ end
}

//$ local n = f16 and 1024 or 128
//$ local of_128 = f16 and "0x64006400" or "0x43004300"
//$ local flip = b.type == "i4" and (f16 and "0x64086408" or "0x43084308") or of_128
//$ local codes = half_words and "codes" or "codes * 0x1001"
//$ if half_words then
/* The lowest codes of both halves of a word in the last bits of $(n). `nibbles` is 0x000f000f: as
   the compiler does not know it, this is one instruction. */
//$ else
/* The two codes of a byte in the last bits of $(n). `nibbles` is 0x000f000f: as the compiler does
   not know it, this is one instruction. */
//$ end
FN unsigned int pair_of_codes(unsigned int codes, unsigned int nibbles)
{
    unsigned int pair;

    asm("lop3.b32 %0, %1, %2, %3, 0x6a;"
        : "=r"(pair) : "r"($(codes)), "r"(nibbles), "r"($(flip)));
    return pair;
}

//$ local byte = "load_shared_byte(from + 4 * j)"
//$ local pair = half_words and "word >> 4 * j" or byte -- its codes
//$ local apart, one = f16 and "half" or "apart", f16 and "half_byte" or "byte"
//$ local bits = half_words and "bits_e2m1_" .. apart .. "(word, j)"
//$              or "bits_e2m1_" .. one .. "(" .. byte .. ")"
//$ for _, form in ipairs(exact and { "near", "any" } or { "all" }) do
//$ local name = form == "all" and "" or "_" .. form
//$ local twice = low or form == "near"
/* Row i's values of the 32 steps from y on. `codes`: of its first ones. */
FN void dequantize_row$(name)(unsigned int value[2][WARP_N / 16][4], const struct factors *f,
                          unsigned int codes, const struct rows *r, int i, int y)
{
//$ if four then
    const unsigned int from = (codes ^ y / 2) + i * 8 * B_ROW;
//$ if half_words then
    const unsigned int word = permute(load_shared_half(from), load_shared_half(from + 8), 0x5140);
//$ end

    (void)r;
#pragma unroll
    for (int j = 0; j < 4; j++) { /* pairs, two of each 16 steps */
        unsigned int *to = &value[j / 2][i / 2][i % 2 + j % 2 * 2];
        const unsigned int *scale = &f->word[i][(y + j / 2 * 16) % VECTOR_K / $(s.k) * $(parts)];
//$ if integer then
//$ local none = "scale_of_" .. b.type .. (f16 and "_f16" or "") .. "(0.0f" .. b.zero .. ").zero"
//$ local zero = s.zeros and "scale[1]" or none
//$ if f16 then
        const struct integer_scale_f16 by = { *scale, float_of(*scale), $(zero) };
//$ elseif wide then
        const struct integer_scale by = { 0, 0, float_of(*scale), $(zero) };
//$ else
        const struct integer_scale by = { permute(*scale, 0, 0x1010), permute(*scale, 0, 0x3232),
                                          0, $(zero) };
//$ end

        *to = scale_integer$(to)(pair_of_codes($(pair), r->nibbles), &by);
//$ elseif twice then

        *to = multiply_$(f16 and "f16" or "bf16")x2($(bits), *scale);
//$ elseif f16 then

        *to = scale_e2m1_half($(bits), float_of(*scale));
//$ else

        *to = multiply_bf16x2(multiply_bf16x2($(bits), 0x7e807e80), permute(*scale, 0, 0x3232));
//$ end
    }
//$ else
    (void)r;
#pragma unroll
    for (int j = 0; j < 2; j++) {
        const unsigned int from = (codes ^ (y + 16 * j)) + i * 8 * B_ROW;
        unsigned int pair[2];

        dequantize_$(f16 and b.type .. "_half" or kind)(pair, load_shared_word(from),
                     float_of(f->word[i][(y + 16 * j) % VECTOR_K / $(s.k)]));
        value[j][i / 2][i % 2] = pair[0];
        value[j][i / 2][i % 2 + 2] = pair[1];
    }
//$ end
}

//$ end
//$ local raised = low and "sum[i][j][c] * 0x1p" .. lowered .. "f" or "sum[i][j][c]"
/* The factor of whole sums$(low and ", and the powers of two that they lack" or ""). */
FN void finish_sums(float sum[WARP_N / 16][TILE_M / 8][4], float factor)
{
#pragma unroll
    for (int i = 0; i < WARP_N / 16; i++)
#pragma unroll
        for (int j = 0; j < TILE_M / 8; j++)
#pragma unroll
            for (int c = 0; c < 4; c++)
                sum[i][j][c] = __fmul_rn($(raised), factor);
}
