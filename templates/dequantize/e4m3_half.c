//$ -- SPDX-License-Identifier: Apache-2.0
//$ once "dequantize/wide_f16.c"
//$ once "cast/to_f16.c"
//$ once "cast/from_e4m3.c"
/* Four codes, the first in the lowest bits, times a scale in fp32, rounded to f16. */
FN void dequantize_e4m3_half(unsigned pair[2], unsigned codes, float factor)
{
//$ if arch == "host" then
    for (int i = 0; i < 2; i++)
        pair[i] = scale_pair_f16(to_f16_x2(from_e4m3(codes >> 16 * i & 255),
                                           from_e4m3(codes >> (16 * i + 8) & 255)), factor);
//$ else
    unsigned value[2];

    asm("{\n"
        ".reg .b16 first, last;\n"
        "mov.b32 {first, last}, %2;\n"
        "cvt.rn.f16x2.e4m3x2 %0, first;\n"
        "cvt.rn.f16x2.e4m3x2 %1, last;\n"
        "}" : "=r"(value[0]), "=r"(value[1]) : "r"(codes));
    for (int i = 0; i < 2; i++)
        pair[i] = scale_pair_f16(value[i], factor);
//$ end
}
