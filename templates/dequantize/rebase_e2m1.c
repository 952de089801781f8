//$ -- SPDX-License-Identifier: Apache-2.0
//$ once "dequantize/requantize_e2m1.c"
//$ once "cast/from_e8m0.c"
/*
** Codes of e2m1 as those of e4m3 under a common power of two of 128 values of k: the largest of
** their four e8m0 scales, at which 6 becomes 384. A scale that is 2^d of it becomes magnitudes
** times 2^(6 - d), which are values of e4m3 up to d = 14; beyond, some are, and others become NaN.
*/
enum { REBASED = 6 };

/* The largest of four scales. */
FN unsigned rebase_base(unsigned scales)
{
    const unsigned a = scales & 255, b = scales >> 8 & 255, c = scales >> 16 & 255;
    const unsigned d = scales >> 24, ab = a > b ? a : b, cd = c > d ? c : d;

    return ab > cd ? ab : cd;
}

/* The steps from each to it, a byte each. */
FN unsigned rebase_distances(unsigned scales, unsigned base)
{
    return base * 0x01010101u - scales;
}

/* Not zero if one of them is so far that values become denormal. */
FN unsigned rebase_far(unsigned distances)
{
    return (((distances & 0x7f7f7f7f) + 0x74747474) | distances) & 0x80808080;
}

/* The eight magnitudes, a byte each, at a distance that is not far. */
FN struct magnitudes rebase_near(unsigned distance)
{
    const struct magnitudes m = { 0x6c686000 - distance * 0x08080800,
                                  0x7c787470 - distance * 0x08080808 };
    return m;
}

/* At any distance. */
FN struct magnitudes rebase_any(unsigned distance)
{
    return magnitudes_of(REBASED - (int)distance);
}

/* The factor of sums of such values. */
FN float rebase_factor(unsigned base)
{
    return mul_rn(from_e8m0(base), 0x1p-6f);
}
