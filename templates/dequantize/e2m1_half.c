//$ -- SPDX-License-Identifier: Apache-2.0
//$ once "dequantize/factor_e4m3.c"
//$ once "dequantize/multiply_f16.c"
//$ once "dequantize/wide_f16.c"
//$ once "cast/to_f16.c"
//$ once "cast/arith.c"
/*
** Two codes as a pair of f16, `codes` having them 16 bits apart, from bit 4 i on. The three bits
** next to the sign become the lowest of the exponent and the highest of the fraction, where they
** stand for a value 2^14 too small; the sign, next to them, is three bits off, and goes on.
*/
FN unsigned bits_e2m1_half(unsigned codes, int i)
{
    const unsigned two = (i < 2 ? codes : codes >> 8) & (i % 2 ? 0x00f000f0 : 0x000f000f);
    const unsigned bits = two * (i % 2 ? 0x20 : 0x200);

    return (bits & 0x10001000) * 7 + bits;
}

/* The two codes of a byte. */
FN unsigned bits_e2m1_half_byte(unsigned codes)
{
    return bits_e2m1_half(codes * 0x1001, 0);
}

/* A pair of them times any scale. */
FN unsigned scale_e2m1_half(unsigned bits, float factor)
{
    return scale_pair_f16(multiply_f16x2(bits, 0x74007400), factor);
}

/* A scale of e8m0, 2^14 times its value, in both halves of a word: up to the code of 2, f16 has no
   larger ones. It is zero if each code times the scale is. */
FN unsigned twice_e8m0_half(unsigned code)
{
    const float factor = float_of(((code & 255) + 14) << 23);

    return to_f16_x2(factor, factor);
}

/* A scale of e4m3, 2^5 times its value: results are 2^9 too small. */
FN unsigned twice_e4m3_half(unsigned code)
{
    const float factor = mul_rn(factor_e4m3(code), 32);

    return to_f16_x2(factor, factor);
}
