//$ -- SPDX-License-Identifier: Apache-2.0
//$ if arch == "host" then
//$   once "cast/from_e4m3.c"
//$ end
/* The four values whose codes a word holds; its upper half is read where it is. */
FN void four_e4m3(unsigned codes, float value[4])
{
//$ if arch == "host" then
    for (int i = 0; i < 4; i++)
        value[i] = from_e4m3(codes >> 8 * i & 255);
//$ else
    asm("{\n"
        ".reg .b32 both;\n"
        ".reg .b16 first, last, lo, hi;\n"
        "mov.b32 {first, last}, %4;\n"
        "cvt.rn.f16x2.e4m3x2 both, first;\n"
        "mov.b32 {lo, hi}, both;\n"
        "cvt.f32.f16 %0, lo;\n"
        "cvt.f32.f16 %1, hi;\n"
        "cvt.rn.f16x2.e4m3x2 both, last;\n"
        "mov.b32 {lo, hi}, both;\n"
        "cvt.f32.f16 %2, lo;\n"
        "cvt.f32.f16 %3, hi;\n"
        "}" : "=f"(value[0]), "=f"(value[1]), "=f"(value[2]), "=f"(value[3]) : "r"(codes));
//$ end
}
