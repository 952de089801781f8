//$ -- SPDX-License-Identifier: Apache-2.0
/*
** Scales as both halves of a word of bf16, without the care that some of them need: up to code
** MOST_E8M0, since the next is NaN. `codes` has the code in both halves, too.
*/
enum { MOST_E8M0 = 254 };

FN unsigned twice_e8m0(unsigned codes)
{
    const unsigned twice = codes * 0x80;

    return twice > 0x00400040 ? twice : 0x00400040; /* 2^-127 is no normal number */
}
