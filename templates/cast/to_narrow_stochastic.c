//$ -- SPDX-License-Identifier: Apache-2.0
//$ once "cast/arith.c"
/*
** As to_narrow, but rounded by chance: x is between two neighbours, 256 steps apart. With s whole
** steps from the one nearer to zero, the other is taken if s + random_byte >= 256: for s of 256
** bytes. So the mean over all bytes is x cut to those steps. Values of the format stay,
** and so does `most`; larger values and NaN become `most`.
*/
FN unsigned to_narrow_stochastic(float x, unsigned random_byte, float most, int width, int fraction,
                                 unsigned least)
{
    const float v = clamp(x, most);
    const unsigned e = bits_of(v) >> 23 & 0xff, place = e > least ? e : least;
    const unsigned shift = 15 - fraction + (place - e);
    const unsigned steps = ((bits_of(v) & 0x7fffff) | 0x800000) >> (shift < 31 ? shift : 31);
    const unsigned code = ((steps + random_byte) >> 8) + ((place - least) << fraction);

    return code | (bits_of(v) >> (32 - width) & 1u << (width - 1));
}
