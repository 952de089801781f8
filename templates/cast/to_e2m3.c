//$ -- SPDX-License-Identifier: Apache-2.0
//$ once "cast/to_narrow.c"
/* fp32 to E2M3, in the low six bits of a byte: saturating, NaN 7.5. */
FN unsigned to_e2m3(float x)
{
    return to_narrow(x, 7.5f, 6, 3, 127);
}

/* Two of them; lo in the low byte. */
FN unsigned to_e2m3_x2(float lo, float hi)
{
    return to_e2m3(lo) | to_e2m3(hi) << 8;
}
