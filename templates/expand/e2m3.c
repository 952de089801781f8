//$ once "expand/pair_e4m3.c"
//$ once "cast/to_bf16.c"
/*
** Four codes, the first in the lowest bits, times a scale, as bf16. Where E4M3 has its bits they
** stand for values that are 2^6 too small.
*/
FN void expand_e2m3(unsigned pair[2], unsigned codes, float factor)
{
    const unsigned bits = (codes & 0x1f1f1f1f) | (codes & 0x20202020) << 2;

    for (int i = 0; i < 2; i++) {
        float lo, hi;

        pair_e4m3(bits >> 16 * i, &lo, &hi);
        lo = mul_rn(lo, 0x1p6f);
        hi = mul_rn(hi, 0x1p6f);
        pair[i] = to_bf16_x2(mul_rn(lo, factor), mul_rn(hi, factor));
    }
}
