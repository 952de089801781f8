//$ once "expand/pair_e4m3.c"
//$ once "cast/to_bf16.c"
/* Four codes, the first in the lowest bits, times a scale, as bf16. */
FN void expand_e4m3(unsigned pair[2], unsigned codes, float factor)
{
    for (int i = 0; i < 2; i++) {
        float lo, hi;

        pair_e4m3(codes >> 16 * i, &lo, &hi);
        pair[i] = to_bf16_x2(mul_rn(lo, factor), mul_rn(hi, factor));
    }
}
