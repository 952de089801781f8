//$ -- SPDX-License-Identifier: Apache-2.0
//$ once "cast/arith.c"
/* fp32 to a signed byte, to nearest even: -127 .. 127, NaN 0. */
FN unsigned to_i8(float x)
{
    const float v = x == x ? clamp(x, 127) : 0;

    return bits_of(add_rn(v, 0x1.8p23f)) & 0xff; /* fp32 rounds to integers up there */
}

/* Two of them; lo in the low byte. */
FN unsigned to_i8_x2(float lo, float hi)
{
    return to_i8(lo) | to_i8(hi) << 8;
}
