//$ -- SPDX-License-Identifier: Apache-2.0
//$ once "dequantize/f16.c"
/*
** Scales as f16 where those who multiply look at each themselves. The tile's first scales determine
** the base, which may become F16_SPARE powers of two larger before one is too large.
**
** Four are in a word. Above near_f16 of `low` by NEAR_F16 or less they are near, and four_f16 of
** their difference from it has their factors, each the upper byte of one in f16.
*/
enum { F16_SPARE = 5, NEAR_F16 = 15 };

/* From the largest of the first: the largest code that becomes 0. */
FN unsigned sampled_f16(unsigned most)
{
    return low_f16(most < F16_MOST - F16_SPARE ? most + F16_SPARE : F16_MOST);
}

FN unsigned near_f16(unsigned low)
{
    return (low + F16_SCALES - NEAR_F16) * 0x01010101u;
}

FN unsigned low_of_near(unsigned near)
{
    return (near & 255) - (F16_SCALES - NEAR_F16);
}

/* Not 0 if one of four is not near. */
FN unsigned beyond_f16(unsigned above)
{
    return above & ~(NEAR_F16 * 0x01010101u);
}

FN unsigned four_f16(unsigned above)
{
    return (above << 2) + ((F16_SCALES - NEAR_F16) << 2) * 0x01010101u;
}

/* Any four scales, 0 where f16 has none; `over` becomes not 0 if a scale is too large. */
FN unsigned far_f16(unsigned codes, unsigned low, unsigned *over)
{
    unsigned four = 0;

    for (int i = 0; i < 32; i += 8) {
        const unsigned code = codes >> i & 255, above = code > low ? code - low : 0;

        *over |= above > F16_SCALES;
        four |= (above > F16_SCALES ? 0 : above << 2) << i;
    }
    return four;
}
