//$ -- SPDX-License-Identifier: Apache-2.0
//$ local has_cvt = { sm_89 = true, sm_90a = true, sm_100f = true, sm_120a = true }
//$ if has_cvt[arch] then
/* Two fp32 to E4M3, to nearest even, saturating, NaN 0x7f; lo in the low byte. */
FN unsigned to_e4m3_x2(float lo, float hi)
{
    unsigned short pair;

    asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(pair) : "f"(hi), "f"(lo));
    return pair;
}

FN unsigned to_e4m3(float x)
{
    return to_e4m3_x2(x, 0) & 0xff;
}
//$ else
//$ once "cast/to_narrow.c"
/* fp32 to E4M3: saturating, NaN 0x7f. */
FN unsigned to_e4m3(float x)
{
    return x == x ? to_narrow(x, 448, 8, 3, 121) : 0x7f;
}

/* Two of them; lo in the low byte. */
FN unsigned to_e4m3_x2(float lo, float hi)
{
    return to_e4m3(lo) | to_e4m3(hi) << 8;
}
//$ end
