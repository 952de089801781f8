//$ -- SPDX-License-Identifier: Apache-2.0
//$ once "cast/arith.c"
//$ if arch == "host" then
/* fp32 to bf16, to nearest even; overflow becomes infinity, NaN 0x7fff. */
FN unsigned to_bf16(float x)
{
    const unsigned bits = bits_of(x);

    return x == x ? (bits + 0x7fff + (bits >> 16 & 1)) >> 16 : 0x7fff;
}

/* Two of them; lo in the low half. */
FN unsigned to_bf16_x2(float lo, float hi)
{
    return to_bf16(lo) | to_bf16(hi) << 16;
}
//$ else
/* Two fp32 to bf16, to nearest even; overflow becomes infinity, NaN 0x7fff; lo in the low half. */
FN unsigned to_bf16_x2(float lo, float hi)
{
    unsigned pair;

    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(hi), "f"(lo));
    return pair;
}

FN unsigned to_bf16(float x)
{
    return to_bf16_x2(x, 0) & 0xffff;
}
//$ end
