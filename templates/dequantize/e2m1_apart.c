//$ -- SPDX-License-Identifier: Apache-2.0
//$ once "dequantize/permute.c"
//$ once "dequantize/multiply.c"
//$ once "cast/arith.c"
/*
** Eight codes, the first in the lowest bits: code i and code i + 4 make a pair of bf16, since they
** are 16 bits apart. A product of integers moves the sign of both to bf16's and the other
** three bits to the lowest of its exponent and the highest of its fraction, where they stand for
** a value 2^126 too small.
*/
FN unsigned bits_e2m1_apart(unsigned codes, int i)
{
    const unsigned two = (i < 2 ? codes : codes >> 8) & (i % 2 ? 0x00f000f0 : 0x000f000f);

    return two * (i % 2 ? 0x104 : 0x1040) & 0x81c081c0;
}

/* Times a scale that is 2^126 too large, which both halves of a word hold. */
FN void dequantize_e2m1_apart_twice(unsigned pair[4], unsigned codes, unsigned twice)
{
    for (int i = 0; i < 4; i++)
        pair[i] = multiply_bf16x2(bits_e2m1_apart(codes, i), twice);
}

/* Times any scale. */
FN void dequantize_e2m1_apart(unsigned pair[4], unsigned codes, float factor)
{
    const unsigned twice = permute(bits_of(factor), 0, 0x3232);

    for (int i = 0; i < 4; i++)
        pair[i] = multiply_bf16x2(multiply_bf16x2(bits_e2m1_apart(codes, i), 0x7e807e80), twice);
}
