//$ -- SPDX-License-Identifier: Apache-2.0
//$ once "cast/arith.c"
/*
** fp32 to one of the integers from -zero to 15 - zero, to nearest even, as a code of four bits of
** which `zero` stands for 0: NaN becomes 0.
*/
FN unsigned to_u4(float x, int zero)
{
    const float v = x == x ? bounded(x, (float)-zero, (float)(15 - zero)) : 0;

    /* fp32 rounds to integers up there */
    return (bits_of(add_rn(v, 0x1.8p23f)) + (unsigned)zero) & 15;
}

/* Two of them in a byte; lo, the even element, in the low half. */
FN unsigned to_u4_x2(float lo, float hi, int zero)
{
    return to_u4(lo, zero) | to_u4(hi, zero) << 4;
}
