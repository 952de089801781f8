//$ -- SPDX-License-Identifier: Apache-2.0
//$ once "cast/arith.c"
/* fp32 to a signed integer of four bits, to nearest even: -7 .. 7, NaN 0. */
FN unsigned to_i4(float x)
{
    const float v = x == x ? clamp(x, 7) : 0;

    return bits_of(add_rn(v, 0x1.8p23f)) & 15; /* fp32 rounds to integers up there */
}

/* Two of them in a byte; lo, the even element, in the low half. */
FN unsigned to_i4_x2(float lo, float hi)
{
    return to_i4(lo) | to_i4(hi) << 4;
}
