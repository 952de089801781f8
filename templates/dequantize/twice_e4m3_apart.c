//$ -- SPDX-License-Identifier: Apache-2.0
//$ once "dequantize/factor_e4m3.c"
//$ once "dequantize/permute.c"
//$ once "cast/arith.c"
/*
** A scale as both halves of a word of bf16, 2^117 times its value: as much as bf16 can hold of the
** 2^126 that dequantize_e2m1_apart_twice wants. The result is 2^9 too small.
*/
FN unsigned twice_e4m3_apart(unsigned code)
{
    return permute(bits_of(mul_rn(factor_e4m3(code), 0x1p117f)), 0, 0x3232);
}
