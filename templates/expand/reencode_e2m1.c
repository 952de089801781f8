//$ once "expand/permute.c"
/*
** Codes of e2m1 under a power-of-two scale as codes of e4m3 under another one: a value times 2^r is
** one of e4m3 for each r from REENCODE_LEAST, where 0.5 is its least denormal, to REENCODE_MOST,
** where 6 is 384 of its 448.
*/
enum { REENCODE_LEAST = -8, REENCODE_MOST = 6 };

FN int reencode_fits(int r)
{
    return r >= REENCODE_LEAST && r <= REENCODE_MOST;
}

/* The eight magnitudes times 2^r, a byte each. */
struct magnitudes {
    unsigned low, high;
};

/* Eight to a power of two, a step of e4m3's exponent; below 2^-6 values are multiples of 2^-9. */
FN struct magnitudes magnitudes_of(int r)
{
    const unsigned steps = (unsigned)r;
    struct magnitudes m = { 0x3c383000 + steps * 0x08080800, 0x4c484440 + steps * 0x08080808 };

    if (r < -5)
        m.low = 0x03020100u << (r - REENCODE_LEAST & 3);
    if (r < -7)
        m.high = 0x0c080604;
    return m;
}

/* Eight codes, the first in the lowest bits. */
FN void reencode_e2m1(unsigned to[2], unsigned codes, const struct magnitudes *m)
{
    const unsigned digits = codes & 0x77777777, even = codes << 4;

    for (int i = 0; i < 2; i++) {
        const unsigned signs = permute(even, codes, i ? 0x7362 : 0x5140) & 0x80808080;

        to[i] = permute(m->low, m->high, digits >> 16 * i) | signs;
    }
}
