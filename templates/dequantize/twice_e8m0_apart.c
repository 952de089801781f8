//$ -- SPDX-License-Identifier: Apache-2.0
/*
** Scales as both halves of a word of bf16, 2^126 times their values, as dequantize_e2m1_apart_twice
** wants them: up to code MOST_E8M0_APART, which stands for 2; bf16 has no larger ones. `codes` has
** the code in both halves, too.
*/
enum { MOST_E8M0_APART = 128 };

/* Not zero if one of four codes is that or more: more may be said to be beyond than are. */
FN unsigned beyond_e8m0_apart(unsigned codes)
{
    return codes & 0x80808080;
}

FN unsigned twice_e8m0_apart(unsigned codes)
{
    return codes * 0x80 + 0x3f003f00;
}
