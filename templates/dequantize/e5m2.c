//$ -- SPDX-License-Identifier: Apache-2.0
//$ once "dequantize/pair_e5m2.c"
//$ once "dequantize/permute.c"
//$ once "dequantize/multiply.c"
//$ once "cast/to_bf16.c"
//$ once "cast/arith.c"
/* Four codes, the first in the lowest bits, as bf16, times a scale, both halves of a word. */
FN void dequantize_e5m2_twice(unsigned pair[2], unsigned codes, unsigned twice)
{
    for (int i = 0; i < 2; i++) {
        float lo, hi;

        pair_e5m2(codes >> 16 * i, &lo, &hi);
        pair[i] = multiply_bf16x2(to_bf16_x2(lo, hi), twice); /* the first is exact */
    }
}

FN void dequantize_e5m2(unsigned pair[2], unsigned codes, float factor)
{
    dequantize_e5m2_twice(pair, codes, permute(bits_of(factor), 0, 0x3232));
}
