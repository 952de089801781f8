//$ -- SPDX-License-Identifier: Apache-2.0
//$ once "cast/to_narrow.c"
/* fp32 to E3M2, in the low six bits of a byte: saturating, NaN 28. */
FN unsigned to_e3m2(float x)
{
    return to_narrow(x, 28, 6, 2, 125);
}

/* Two of them; lo in the low byte. */
FN unsigned to_e3m2_x2(float lo, float hi)
{
    return to_e3m2(lo) | to_e3m2(hi) << 8;
}
