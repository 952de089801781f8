//$ -- SPDX-License-Identifier: Apache-2.0
//$ if arch == "host" then
//$   once "cast/from_e4m3.c"
//$   once "cast/from_f16.c"
//$   once "cast/to_f16.c"
//$   once "cast/arith.c"
//$ end
/*
** Four codes, the first in the lowest bits, as f16, times a scale that is both halves of a word:
** exact where f16 has such values.
*/
FN void dequantize_e4m3_f16(unsigned pair[2], unsigned codes, unsigned twice)
{
//$ if arch == "host" then
    for (int i = 0; i < 2; i++) {
        const unsigned both = codes >> 16 * i;

        pair[i] = to_f16_x2(mul_rn(from_e4m3(both & 255), from_f16(twice & 0xffff)),
                            mul_rn(from_e4m3(both >> 8 & 255), from_f16(twice >> 16)));
    }
//$ else
    asm("{\n"
        ".reg .b16 first, last;\n"
        ".reg .b32 lower, upper;\n"
        "mov.b32 {first, last}, %2;\n"
        "cvt.rn.f16x2.e4m3x2 lower, first;\n"
        "cvt.rn.f16x2.e4m3x2 upper, last;\n"
        "mul.rn.f16x2 %0, lower, %3;\n"
        "mul.rn.f16x2 %1, upper, %3;\n"
        "}" : "=r"(pair[0]), "=r"(pair[1]) : "r"(codes), "r"(twice));
//$ end
}
