//$ -- SPDX-License-Identifier: Apache-2.0
//$ once "dequantize/four_e4m3.c"
//$ once "cast/to_bf16.c"
//$ once "cast/arith.c"
/* Four codes, the first in the lowest bits, times a scale in fp32, rounded to bf16. */
FN void dequantize_e4m3_wide(unsigned pair[2], unsigned codes, float factor)
{
    float value[4];

    four_e4m3(codes, value);
    for (int i = 0; i < 2; i++)
        pair[i] = to_bf16_x2(mul_rn(value[2 * i], factor), mul_rn(value[2 * i + 1], factor));
}
