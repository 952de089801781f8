//$ -- SPDX-License-Identifier: Apache-2.0
//$ if arch == "host" then
//$   once "cast/to_bf16.c"
//$   once "cast/from_bf16.c"
/* x * y + z of both halves, rounded once: of integers of four bits, a scale's upper digits and a
   product of its lower ones fp32 holds the exact sum. */
FN unsigned multiply_add_bf16x2(unsigned x, unsigned y, unsigned z)
{
    return to_bf16_x2(mul_rn(from_bf16(x & 0xffff), from_bf16(y & 0xffff)) + from_bf16(z & 0xffff),
                      mul_rn(from_bf16(x >> 16), from_bf16(y >> 16)) + from_bf16(z >> 16));
}

FN unsigned subtract_bf16x2(unsigned x, unsigned y)
{
    return to_bf16_x2(from_bf16(x & 0xffff) - from_bf16(y & 0xffff),
                      from_bf16(x >> 16) - from_bf16(y >> 16));
}
//$ else
/* x * y + z of both halves, rounded once. */
FN unsigned multiply_add_bf16x2(unsigned x, unsigned y, unsigned z)
{
    unsigned sum;

    asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(sum) : "r"(x), "r"(y), "r"(z));
    return sum;
}

FN unsigned subtract_bf16x2(unsigned x, unsigned y)
{
    unsigned difference;

    asm("sub.rn.bf16x2 %0, %1, %2;" : "=r"(difference) : "r"(x), "r"(y));
    return difference;
}
//$ end
