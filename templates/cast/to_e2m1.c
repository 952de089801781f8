//$ -- SPDX-License-Identifier: Apache-2.0
//$ once "cast/to_narrow.c"
/* fp32 to E2M1, in the low four bits: saturating, NaN 6. */
FN unsigned to_e2m1(float x)
{
    return to_narrow(x, 6, 4, 1, 127);
}

//$ local has_pairs = { sm_90a = true, sm_100f = true, sm_120a = true } -- of 16 bits each
//$ if has_pairs[arch] then
/* A pair of fp32, each times `scale`, to fp16: below 2^-13 these are whole multiples of 2^-24. */
FN unsigned whole_numbers(float lo, float hi, float scale)
{
    unsigned pair;

    asm("cvt.rn.f16x2.f32 %0, %1, %2;"
        : "=r"(pair) : "f"(mul_rn(hi, scale)), "f"(mul_rn(lo, scale)));
    return pair;
}

FN unsigned least_of(unsigned a, unsigned b)
{
    unsigned least;

    asm("min.u16x2 %0, %1, %2;" : "=r"(least) : "r"(a), "r"(b));
    return least;
}

FN unsigned sum_of(unsigned a, unsigned b)
{
    unsigned sum;

    asm("add.u16x2 %0, %1, %2;" : "=r"(sum) : "r"(a), "r"(b));
    return sum;
}

/*
** Two of them in a byte; lo, the even element, in the low half. Codes count the format's values: up
** to 2 they are 1/2 apart, up to 4 they are 1, then 2. So the code of |x| is the least of 2|x|, |x|
** + 2, |x|/2 + 4 and 7, and as rounding keeps order, each may be rounded by itself: to nearest
** even, by the cast to the denormals of fp16. Infinity and NaN are above all.
*/
FN unsigned to_e2m1_x2(float lo, float hi)
{
    const unsigned halves = whole_numbers(lo, hi, 0x1p-23f);
    const unsigned ones = whole_numbers(magnitude(lo), magnitude(hi), 0x1p-24f);
    const unsigned twos = whole_numbers(magnitude(lo), magnitude(hi), 0x1p-25f);
    unsigned codes = least_of(sum_of(ones, 0x20002), halves & 0x7fff7fff);

    codes = least_of(least_of(sum_of(twos, 0x40004), codes), 0x70007);
    codes |= halves >> 12 & 0x80008;
    return (codes | codes >> 12) & 0xff;
}

/*
** x * times + 1024 + plus: from 1024 on fp16 has only integers, so the sum is rounded to
** nearest even, as x * times would be: its last bits are that and `plus`, which is even.
*/
FN unsigned counted(unsigned x, unsigned times, unsigned plus)
{
    unsigned sum;

    asm("fma.rn.f16x2 %0, %1, %2, %3;"
        : "=r"(sum) : "r"(x), "r"(times), "r"(0x64006400 + plus));
    return sum;
}

FN unsigned lesser_of(unsigned a, unsigned b)
{
    unsigned less;

    asm("min.f16x2 %0, %1, %2;" : "=r"(less) : "r"(a), "r"(b));
    return less;
}

/*
** The same codes of a value that fp16 holds exactly, except values below 1/4 in it: of a
** 16-bit value times a power of two.
*/
FN unsigned to_e2m1_x2_of_f16(float lo, float hi)
{
    const unsigned seven = 0x64076407;
    unsigned pair, x, codes;

    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(hi), "f"(lo));
    x = pair & 0x7fff7fff;
    codes = lesser_of(lesser_of(counted(x, 0x40004000, 0), counted(x, 0x3c003c00, 0x20002)),
                      lesser_of(counted(x, 0x38003800, 0x40004), seven));
    codes = (codes & 0x70007) | (pair >> 12 & 0x80008);
    return (codes | codes >> 12) & 0xff;
}
//$ else
/* Two of them in a byte; lo, the even element, in the low half. */
FN unsigned to_e2m1_x2(float lo, float hi)
{
    return to_e2m1(lo) | to_e2m1(hi) << 4;
}
//$ end
