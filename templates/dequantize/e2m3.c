//$ -- SPDX-License-Identifier: Apache-2.0
//$ once "dequantize/pair_e4m3.c"
//$ once "dequantize/permute.c"
//$ once "dequantize/multiply.c"
//$ once "cast/to_bf16.c"
//$ once "cast/arith.c"
/*
** Four codes, the first in the lowest bits, as bf16, times a scale that is both halves of a word.
** In E4M3's bit positions they stand for values that are 2^6 too small.
*/
FN void dequantize_e2m3_twice(unsigned pair[2], unsigned codes, unsigned twice)
{
    const unsigned bits = (codes & 0x1f1f1f1f) | (codes & 0x20202020) << 2;

    for (int i = 0; i < 2; i++) {
        float lo, hi;

        pair_e4m3(bits >> 16 * i, &lo, &hi);
        pair[i] = multiply_bf16x2(to_bf16_x2(mul_rn(lo, 0x1p6f), mul_rn(hi, 0x1p6f)), twice);
    }
}

FN void dequantize_e2m3(unsigned pair[2], unsigned codes, float factor)
{
    dequantize_e2m3_twice(pair, codes, permute(bits_of(factor), 0, 0x3232));
}
