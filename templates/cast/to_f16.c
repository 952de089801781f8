//$ -- SPDX-License-Identifier: Apache-2.0
//$ once "cast/arith.c"
//$ if arch == "host" then
/* fp32 to fp16, to nearest even; overflow becomes infinity, NaN 0x7fff. */
FN unsigned to_f16(float x)
{
    const unsigned sign = bits_of(x) >> 16 & 0x8000, rest = bits_of(x) & 0x7fffffff;
    unsigned code;

    if (rest > 0x7f800000)
        return 0x7fff;
    if (rest >= 0x47800000) /* 65536 and above */
        code = 0x7c00;
    else if (rest < 0x38800000) /* below 2^-14: let fp32 round at 2^-24 */
        code = bits_of(add_rn(float_of(rest), 0.5f)) - 0x3f000000;
    else
        code = (rest - 0x38000000 + 0xfff + (rest >> 13 & 1)) >> 13;
    return sign | code;
}

/* Two of them; lo in the low half. */
FN unsigned to_f16_x2(float lo, float hi)
{
    return to_f16(lo) | to_f16(hi) << 16;
}
//$ else
/* Two fp32 to fp16, to nearest even; overflow becomes infinity, NaN 0x7fff; lo in the low half. */
FN unsigned to_f16_x2(float lo, float hi)
{
    unsigned pair;

    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(hi), "f"(lo));
    return pair;
}

FN unsigned to_f16(float x)
{
    return to_f16_x2(x, 0) & 0xffff;
}
//$ end
