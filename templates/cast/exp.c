//$ -- SPDX-License-Identifier: Apache-2.0
//$ once "cast/arith.c"
/* e^x is 2^whole * (1 + part) with part within -0.3 .. 0.42. */
struct power { int whole; float part; };

/* For x within -110 .. 110; NaN gives a part that is NaN. */
FN struct power exp_parts(float x)
{
    const float anchor = 0x1.8p23f; /* its last place is 1: rounds x / ln(2) to an integer */
    const float shifted = fma_rn(x, 0x1.715476p+0f, anchor), n = add_rn(shifted, -anchor);
    const float r = fma_rn(n, 0x1.05c61p-29f, fma_rn(n, -0x1.62e43p-1f, x)); /* x - n ln(2) */
    struct power e;
    float t;

    t = fma_rn(r, 0x1.6d758cp-10f, 0x1.120ba6p-7f);
    t = fma_rn(t, r, 0x1.5554b8p-5f);
    t = fma_rn(t, r, 0x1.5554dcp-3f);
    t = fma_rn(t, r, 0.5f);
    e.part = fma_rn(t, mul_rn(r, r), r);
    e.whole = (int)(bits_of(shifted) - bits_of(anchor));
    return e;
}

/* 2^n for n within -126 .. 127. */
FN float power_of_two(int n)
{
    return float_of((unsigned)(n + 127) << 23);
}
