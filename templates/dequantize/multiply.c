//$ -- SPDX-License-Identifier: Apache-2.0
//$ if arch == "host" then
//$   once "cast/to_bf16.c"
//$   once "cast/from_bf16.c"
/* Two products of bf16, each rounded once: they are exact in fp32 where bf16 has any bits left. */
FN unsigned multiply_bf16x2(unsigned x, unsigned y)
{
    return to_bf16_x2(mul_rn(from_bf16(x & 0xffff), from_bf16(y & 0xffff)),
                      mul_rn(from_bf16(x >> 16), from_bf16(y >> 16)));
}
//$ else
/* Two products of bf16, each rounded once, denormals and all. */
FN unsigned multiply_bf16x2(unsigned x, unsigned y)
{
    unsigned product;

    asm("mul.rn.bf16x2 %0, %1, %2;" : "=r"(product) : "r"(x), "r"(y));
    return product;
}
//$ end
