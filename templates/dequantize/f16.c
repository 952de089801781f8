//$ -- SPDX-License-Identifier: Apache-2.0
/*
** Scales of e8m0 as f16. A tensor's largest one becomes 2^7, since 448 * 2^7 is below 65504, and
** the other F16_SCALES - 1, which are smaller, a value as far from that: the last one 2^-14, under
** which f16 has the least value, 2^-9, as it has all others. Smaller scales become 0: zeros may
** have any. The multiplied value is then 2^(112 - low) times the true one.
**
** Largest scales are from code F16_LEAST to F16_MOST, or counted as if, so that the product of two
** such factors is a normal number of fp32, and bf16 has all the values, too.
**                                                            COUPLED: f16 -> common/range.cu
*/
enum { F16_SCALES = 22, F16_LEAST = 74, F16_MOST = 194 };

/* The largest scale's code that becomes 0. */
FN unsigned low_f16(unsigned most)
{
    return (most < F16_LEAST ? F16_LEAST : most) - F16_SCALES;
}

/* May all scales be had? */
FN int fits_f16(unsigned most, unsigned least)
{
    return most <= F16_MOST && least > low_f16(most);
}

/* A scale in both halves of a word, from its code and `low`, which both halves have, too. */
FN unsigned twice_f16(unsigned codes, unsigned low)
{
    return ((codes > low ? codes : low) - low) << 10;
}
