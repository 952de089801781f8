//$ -- SPDX-License-Identifier: Apache-2.0
//$ if arch == "host" then
//$   once "cast/from_e5m2.c"
//$ end
/* The two values whose codes a 16-bit word holds. */
FN void pair_e5m2(unsigned codes, float *lo, float *hi)
{
//$ if arch == "host" then
    *lo = from_e5m2(codes & 255);
    *hi = from_e5m2(codes >> 8 & 255);
//$ else
    asm("{\n"
        ".reg .b32 both;\n"
        ".reg .b16 lo, hi;\n"
        "cvt.rn.f16x2.e5m2x2 both, %2;\n"
        "mov.b32 {lo, hi}, both;\n"
        "cvt.f32.f16 %0, lo;\n"
        "cvt.f32.f16 %1, hi;\n"
        "}" : "=f"(*lo), "=f"(*hi) : "h"((unsigned short)codes));
//$ end
}
