//$ -- SPDX-License-Identifier: Apache-2.0
//$ once "cast/arith.c"
/*
** fp32 to one of the integers from -zero to 255 - zero, to nearest even, as a code of a byte of
** which `zero` stands for 0: NaN becomes 0.
*/
FN unsigned to_u8(float x, int zero)
{
    const float v = x == x ? bounded(x, (float)-zero, (float)(255 - zero)) : 0;

    /* fp32 rounds to integers up there */
    return (bits_of(add_rn(v, 0x1.8p23f)) + (unsigned)zero) & 255;
}

/* Two of them; lo in the low byte. */
FN unsigned to_u8_x2(float lo, float hi, int zero)
{
    return to_u8(lo, zero) | to_u8(hi, zero) << 8;
}
