//$ -- SPDX-License-Identifier: Apache-2.0
//$ if arch == "host" then
//$   once "cast/to_f16.c"
//$   once "cast/from_f16.c"
//$   once "cast/arith.c"
/* Two products of f16, each rounded once: they are exact in fp32. */
FN unsigned multiply_f16x2(unsigned x, unsigned y)
{
    return to_f16_x2(mul_rn(from_f16(x & 0xffff), from_f16(y & 0xffff)),
                     mul_rn(from_f16(x >> 16), from_f16(y >> 16)));
}

FN unsigned subtract_f16x2(unsigned x, unsigned y)
{
    return to_f16_x2(from_f16(x & 0xffff) - from_f16(y & 0xffff),
                     from_f16(x >> 16) - from_f16(y >> 16));
}
//$ else
/* Two products of f16, each rounded once, denormals and all. */
FN unsigned multiply_f16x2(unsigned x, unsigned y)
{
    unsigned product;

    asm("mul.rn.f16x2 %0, %1, %2;" : "=r"(product) : "r"(x), "r"(y));
    return product;
}

FN unsigned subtract_f16x2(unsigned x, unsigned y)
{
    unsigned difference;

    asm("sub.rn.f16x2 %0, %1, %2;" : "=r"(difference) : "r"(x), "r"(y));
    return difference;
}
//$ end
