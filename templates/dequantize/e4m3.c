//$ -- SPDX-License-Identifier: Apache-2.0
//$ once "dequantize/four_e4m3.c"
//$ once "dequantize/permute.c"
//$ once "dequantize/multiply.c"
//$ once "cast/to_bf16.c"
//$ once "cast/arith.c"
/* Four codes, the first in the lowest bits, as bf16, times a scale, both halves of a word. */
FN void dequantize_e4m3_twice(unsigned pair[2], unsigned codes, unsigned twice)
{
    float value[4];

    four_e4m3(codes, value);
    for (int i = 0; i < 2; i++) /* the first rounding is exact */
        pair[i] = multiply_bf16x2(to_bf16_x2(value[2 * i], value[2 * i + 1]), twice);
}

FN void dequantize_e4m3(unsigned pair[2], unsigned codes, float factor)
{
    dequantize_e4m3_twice(pair, codes, permute(bits_of(factor), 0, 0x3232));
}
