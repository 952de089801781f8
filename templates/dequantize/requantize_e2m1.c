//$ -- SPDX-License-Identifier: Apache-2.0
//$ once "dequantize/permute.c"
/*
** Codes of e2m1 under a power-of-two scale as codes of e4m3 under another one: a value times 2^r is
** one of e4m3 for each r from -8, where 0.5 is its least denormal, to 6, where 6 is 384 of its 448.
** Below, down to -11, some are. Other values become NaN, which no code means.
*/
FN int requantize_always(int r)
{
    return r >= -8 && r <= 6;
}

/* The eight magnitudes times 2^r, a byte each. */
struct magnitudes {
    unsigned low, high;
};

/* For eight values that do not all fit. */
FN struct magnitudes magnitudes_of_few(int r)
{
    const struct magnitudes none = { 0x7f7f7f00, 0x7f7f7f7f };
    const struct magnitudes even = { 0x7f017f00, 0x06040302 };
    const struct magnitudes four = { 0x7f7f7f00, 0x03027f01 };
    const struct magnitudes last = { 0x7f7f7f00, 0x7f017f7f };

    return r == -9 ? even : r == -10 ? four : r == -11 ? last : none;
}

/* Eight to a power of two, a step of e4m3's exponent; below 2^-6 values are multiples of 2^-9. */
FN struct magnitudes magnitudes_of(int r)
{
    const unsigned steps = (unsigned)r;
    struct magnitudes m = { 0x3c383000 + steps * 0x08080800, 0x4c484440 + steps * 0x08080808 };

    if (!requantize_always(r))
        return magnitudes_of_few(r);
    if (r < -5)
        m.low = 0x03020100u << ((r + 8) & 3);
    if (r < -7)
        m.high = 0x0c080604;
    return m;
}

/* Eight codes, the first in the lowest bits. */
FN void requantize_e2m1(unsigned to[2], unsigned codes, const struct magnitudes *m)
{
    const unsigned digits = codes & 0x77777777, even = codes << 4;

    for (int i = 0; i < 2; i++) {
        const unsigned signs = permute(even, codes, i ? 0x7362 : 0x5140) & 0x80808080;

        to[i] = permute(m->low, m->high, digits >> 16 * i) | signs;
    }
}

/* Is a code among four a NaN? */
FN int requantize_nan(unsigned word)
{
    return (((word & 0x7f7f7f7f) + 0x01010101) & 0x80808080) != 0;
}
