//$ -- SPDX-License-Identifier: Apache-2.0
//$ once "cast/arith.c"
/* The power of two at or above v >= 0, in E8M0; from infinity on 0xfe, NaN 0xff. */
FN unsigned e8m0_up(float v)
{
    const unsigned bits = bits_of(v) & 0x7fffffff, e = bits >> 23, f = bits & 0x7fffff;

    if (e == 0xff)
        return f ? 0xff : 0xfe;
    return e + (f > (e ? 0u : 0x400000u) && e != 0xfe);
}

/* The power of two at or below v >= 0, or the smallest; infinity 0xfe, NaN 0xff. */
FN unsigned e8m0_floor(float v)
{
    const unsigned bits = bits_of(v) & 0x7fffffff, e = bits >> 23, f = bits & 0x7fffff;

    return e == 0xff && !f ? 0xfe : e;
}

/* The multiplier before the cast: 2^(127 - code), a denormal for 254; 255 is NaN. */
FN float e8m0_multiplier(unsigned code)
{
    return float_of(code == 0xfe ? 0x400000 : code == 0xff ? 0x7fffffff : (0xfe - code) << 23);
}
