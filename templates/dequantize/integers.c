//$ -- SPDX-License-Identifier: Apache-2.0
//$ once "dequantize/permute.c"
//$ once "dequantize/multiply.c"
//$ once "dequantize/multiply_add.c"
//$ once "cast/to_bf16.c"
//$ once "cast/arith.c"
/*
** Eight integers of four bits, the first in the lowest ones, as bf16, times a scale: the upper one
** of a pair is 16 bits after the lower one. A code in the last bits of 128 is 128 more than it;
** 128 and the code that stands for 0 are taken away.
**
** A scale of at most 16 digits has two parts of bf16. Codes times the lower one, of at most four
** digits, are exact in bf16, so that their sum with codes times the upper one is rounded once, as
** the product in fp32 would be.
*/
struct integer_scale {
    unsigned high, low; /* both parts, twice in a word */
    float factor;
    unsigned zero; /* 128 and the code that stands for 0, likewise */
};

FN struct integer_scale integer_scale(float factor, unsigned zero)
{
    const unsigned bits = bits_of(factor);
    const float upper = float_of(bits & 0xffff0000);
    /* Infinity has no lower digits; a NaN's are of no importance. */
    const unsigned rest = bits & 0xffff ? bits_of(factor - upper) : 0;
    const struct integer_scale s = { permute(bits, 0, 0x3232), permute(rest, 0, 0x3232), factor,
                                     zero };
    return s;
}

/* Two codes in the last bits of 128. */
FN unsigned scale_integer(unsigned pair, const struct integer_scale *s)
{
    const unsigned values = subtract_bf16x2(pair, s->zero);

    return multiply_add_bf16x2(values, s->high, multiply_bf16x2(values, s->low));
}

/* The same where the scale has eight digits at most. */
FN unsigned scale_integer_short(unsigned pair, const struct integer_scale *s)
{
    return multiply_bf16x2(subtract_bf16x2(pair, s->zero), s->high);
}

FN void scale_integers(unsigned pair[4], float factor, unsigned zero)
{
    const struct integer_scale s = integer_scale(factor, zero);

    for (int i = 0; i < 4; i++)
        pair[i] = scale_integer(pair[i] | 0x43004300, &s);
}

/* The same where the scale has 24 digits. */
FN unsigned scale_integer_wide(unsigned pair, const struct integer_scale *s)
{
    const unsigned values = subtract_bf16x2(pair, s->zero);

    return to_bf16_x2(mul_rn(float_of(values << 16), s->factor),
                      mul_rn(float_of(values & 0xffff0000), s->factor));
}

FN void scale_integers_wide(unsigned pair[4], float factor, unsigned zero)
{
    const struct integer_scale s = integer_scale(factor, zero);

    for (int i = 0; i < 4; i++)
        pair[i] = scale_integer_wide(pair[i] | 0x43004300, &s);
}

/* A word's lowest codes of both halves; bits that `flip` has are then turned over. */
FN unsigned pair_of_word(unsigned codes, unsigned flip)
{
//$ if arch == "host" then
    return (codes & 0x000f000f) ^ flip;
//$ else
    unsigned pair; /* one instruction, which the compiler makes two of */

    asm("lop3.b32 %0, %1, %2, %3, 0x6a;"
        : "=r"(pair) : "r"(codes), "r"(0x000f000f), "r"(flip));
    return pair;
//$ end
}

/* The two codes of a byte, likewise. */
FN unsigned pair_of_byte(unsigned codes, unsigned flip)
{
    return pair_of_word(codes * 0x1001, flip);
}

/* Codes i and i + 1 of each byte. */
FN void pairs_of_codes(unsigned pair[4], unsigned codes)
{
    for (int i = 0; i < 4; i++)
        pair[i] = permute(codes, codes >> 4, 0x0400 + 0x0101 * i) & 0x000f000f;
}

/* Codes i and i + 4. */
FN void pairs_of_codes_apart(unsigned pair[4], unsigned codes)
{
    for (int i = 0; i < 4; i++)
        pair[i] = codes >> 4 * i & 0x000f000f;
}

//$ for _, type in ipairs { "i4", "u4" } do
//$ local signed = type == "i4"
//$ local zero = signed and "" or ", unsigned zero"
//$ local low = signed and "0x43084308" or "0x43004300"
//$ local of_zero = signed and low or low .. " + 0x10001 * zero"
//$ local what = signed and "Eight codes" or "Eight codes, `zero` is that of 0"
//$ for _, wide in ipairs { "", "_wide", "_short" } do
//$ local digits = wide == "" and "at most 16" or wide == "_wide" and "24" or "at most 8"
//$ for _, apart in ipairs(wide == "_short" and {} or { "", "_apart" }) do
/* $(what), times a scale of $(digits) digits: code i and code i + $(apart == "" and 1 or 4)
   make a pair. */
FN void dequantize_$(type)$(apart)$(wide)(unsigned pair[4], unsigned codes, float factor$(zero))
{
    pairs_of_codes$(apart)(pair, codes$(signed and " ^ 0x88888888" or ""));
    scale_integers$(wide)(pair, factor, $(of_zero));
}

//$ end
/* The two codes of a byte, times a scale of $(digits) digits, as a pair. */
FN unsigned dequantize_$(type)_byte$(wide)(unsigned codes, struct integer_scale s)
{
    return scale_integer$(wide)(pair_of_byte(codes, $(low)), &s);
}

//$ end
/* A scale$(signed and "" or "; `zero` is the code of 0"). */
FN struct integer_scale scale_of_$(type)(float factor$(zero))
{
    return integer_scale(factor, $(of_zero));
}

//$ end
