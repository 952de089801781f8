//$ -- SPDX-License-Identifier: Apache-2.0
//$ once "cast/arith.c"
/*
** The value of a float of `width` bits, `fraction` of them below the leading one: exact. Its bits
** stand in fp32 2^bias too low, denormals as denormals; `scale` is 2^bias. Knows neither infinity
** nor NaN.
*/
FN float from_narrow(unsigned code, int width, int fraction, float scale)
{
    const unsigned bits = (code & ((1u << (width - 1)) - 1)) << (23 - fraction);

    return float_of(bits_of(mul_rn(float_of(bits), scale)) | (code >> (width - 1) & 1) << 31);
}
