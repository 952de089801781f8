//$ -- SPDX-License-Identifier: Apache-2.0
//$ once "dequantize/permute.c"
//$ once "dequantize/multiply.c"
//$ once "cast/arith.c"
/*
** Two codes of a byte, the first in the lower bits, as a pair of bf16. A product of integers puts
** them 16 bits apart, another one moves the sign of both to bf16's and the other three bits to the
** lowest of its exponent and the highest of its fraction, where they stand for a value 2^126 too
** small.
*/
FN unsigned bits_e2m1_byte(unsigned codes)
{
    return (codes * 0x1001 & 0x000f000f) * 0x1040 & 0x81c081c0;
}

/* Times a scale that is 2^126 too large, which both halves of a word hold. */
FN unsigned dequantize_e2m1_byte_twice(unsigned codes, unsigned twice)
{
    return multiply_bf16x2(bits_e2m1_byte(codes), twice);
}

/* Times any scale. */
FN unsigned dequantize_e2m1_byte(unsigned codes, float factor)
{
    const unsigned twice = permute(bits_of(factor), 0, 0x3232);

    return multiply_bf16x2(multiply_bf16x2(bits_e2m1_byte(codes), 0x7e807e80), twice);
}
