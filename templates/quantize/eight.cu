//$ -- SPDX-License-Identifier: Apache-2.0
/*
** Eight neighbouring codes, and their values: a scale has at least sixteen, so that these share
** theirs.
*/
//$ local bits = element.bits == 4 and 4 or 8 -- in memory
//$ local words = input.bits // 4
enum {
    CODE_WORDS = $(bits // 4),
    WORDS = $(words), /* of eight values */
    PIECE = $(128 // input.bits) /* values that are stored together */
};

typedef $(input.bits == 16 and "unsigned short" or "unsigned int") out_element;

struct codes {
    unsigned word[CODE_WORDS];
};

struct eight {
    unsigned word[WORDS];
};

/* The address of value `at` of a quantized tensor; `at` is a multiple of eight. */
FN const unsigned char *codes_at(const unsigned char *data, long long at)
{
    return data + $(bits == 4 and "(at >> 1)" or "at");
}

FN struct codes read_codes(const unsigned char *at)
{
    struct codes c;

//$ if bits == 4 then
    c.word[0] = *(const unsigned *)at;
//$ else
    const uint2 both = *(const uint2 *)at;
    c.word[0] = both.x;
    c.word[1] = both.y;
//$ end
    return c;
}

/* Their values, without their scale. */
//$ if element.type == "e2m1" then
//$ once "dequantize/permute.c"
/* Magnitudes are looked up as bf16 has them: the upper bytes, then the lower ones. */
FN void values_of(float x[8], const struct codes *c)
{
    const unsigned codes = c->word[0], even = codes << 4;

#pragma unroll
    for (int i = 0; i < 2; i++) {
        const unsigned digits = (codes & 0x77777777) >> 16 * i;
        const unsigned signs = permute(codes, even, i ? 0xbfae : 0x9d8c) & 0x80808080;
        const unsigned upper = permute(0x3f3f3f00, 0x40404040, digits) | signs;
        const unsigned lower = permute(0xc0800000, 0xc0804000, digits);
        const unsigned first = permute(lower, upper, 0x5140);
        const unsigned second = permute(lower, upper, 0x7362);

        x[4 * i] = float_of(first << 16);
        x[4 * i + 1] = float_of(first & 0xffff0000);
        x[4 * i + 2] = float_of(second << 16);
        x[4 * i + 3] = float_of(second & 0xffff0000);
    }
}
//$ elseif (element.type == "e4m3" or element.type == "e5m2") and arch ~= "sm_80" then
//$ once("dequantize/pair_" .. element.type .. ".c")
FN void values_of(float x[8], const struct codes *c)
{
#pragma unroll
    for (int i = 0; i < 4; i++)
        pair_$(element.type)(c->word[i / 2] >> 16 * (i % 2), &x[2 * i], &x[2 * i + 1]);
}
//$ else
//$ local word = bits == 4 and "c->word[0] >> 4 * i & 15" or "c->word[i / 4] >> 8 * (i % 4) & 255"
//$ local zero = scale.zeros and ", int zero" or ""
FN void values_of(float x[8], const struct codes *c$(zero))
{
#pragma unroll
    for (int i = 0; i < 8; i++)
        x[i] = from_$(element.type)($(word)$(element.zero));
}
//$ end

//$ local second = scale.global and ", float global" or ""
/* One rounding for each factor, and one to the stored type. */
//$ if scale.zeros then
//$ once("dequantize/zero_" .. element.type .. ".c")
FN struct eight multiplied(const struct codes *c, unsigned word)
{
    const float sf = from_$(scale.type)(word);
    struct eight v;
    float x[8];

    values_of(x, c, zero_$(element.type)(word));
//$ else
FN struct eight multiplied(const struct codes *c, float sf$(second))
{
    struct eight v;
    float x[8];

    values_of(x, c);
//$ end
#pragma unroll
    for (int i = 0; i < 8; i++)
//$ if scale.global then
        x[i] = mul_rn(mul_rn(x[i], sf), global);
//$ else
        x[i] = mul_rn(x[i], sf);
//$ end
#pragma unroll
    for (int i = 0; i < WORDS; i++)
//$ if input.bits == 16 then
        v.word[i] = to_$(input.type)_x2(x[2 * i], x[2 * i + 1]);
//$ else
        v.word[i] = bits_of(x[i]);
//$ end
    return v;
}

//$ -- One product in bf16 has the bits of one in fp32 that is rounded to it; integers have no such
//$ -- code.
//$ local exact = input.type == "bf16" and scale.bytes == 1 and arch ~= "sm_80"
//$     and not element.integer
//$ if exact then
//$ once("dequantize/factor_" .. scale.type .. ".c")
//$ once("dequantize/" .. element.type .. ".c")
/* The same without scales of the second level. */
FN struct eight dequantized(const struct codes *c, sf_element sf)
{
    const float factor = factor_$(scale.type)(sf);
    struct eight v;

    dequantize_$(element.type)(v.word, c->word[0], factor);
//$ if bits == 8 then
    dequantize_$(element.type)(v.word + 2, c->word[1], factor);
//$ end
    return v;
}

//$ end
//$ if scale.global then
/* A scale of the second level, or none. */
struct level {
    int exists;
    float value;
};

FN struct level level_of(const float *global, int group)
{
    const struct level l = { global != 0, global ? global[group] : 1 };

    return l;
}

//$ end
//$ local level = scale.global and ", struct level global" or ""
FN struct eight scaled(const struct codes *c, sf_element sf$(level))
{
//$ if exact and scale.global then
    if (!global.exists)
        return dequantized(c, sf);
//$ elseif exact then
    return dequantized(c, sf);
//$ end
//$ if scale.zeros then
    return multiplied(c, sf);
//$ elseif scale.global or not exact then
    return multiplied(c, from_$(scale.type)(sf)$(scale.global and ", global.value" or ""));
//$ end
}

/* The first `count` of a piece; `whole`: rows begin at multiples of 16 bytes. */
FN void store_piece(out_element *to, uint4 piece, int count, int whole)
{
    const unsigned word[4] = { piece.x, piece.y, piece.z, piece.w };

    if (whole && count >= PIECE) {
        *(uint4 *)to = piece;
        return;
    }
#pragma unroll
    for (int i = 0; i < PIECE; i++)
        if (i < count)
//$ if input.bits == 16 then
            to[i] = (out_element)(word[i / 2] >> 16 * (i % 2));
//$ else
            to[i] = word[i];
//$ end
}

/* The first `count` of eight. */
FN void store_eight(out_element *to, struct eight v, int count, int whole)
{
#pragma unroll
    for (int i = 0; i < WORDS; i += 4)
        store_piece(to + i / 4 * PIECE,
                    make_uint4(v.word[i], v.word[i + 1], v.word[i + 2], v.word[i + 3]),
                    count - i / 4 * PIECE, whole);
}
