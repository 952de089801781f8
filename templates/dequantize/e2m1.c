//$ -- SPDX-License-Identifier: Apache-2.0
//$ once "dequantize/permute.c"
//$ once "dequantize/multiply.c"
//$ once "cast/arith.c"
/*
** Eight codes, the first in the lowest bits, as bf16, times a scale that is both halves of a word,
** since bf16 holds each one exactly. The magnitudes are looked up by three bits each: the upper
** bytes of bf16, then the lower ones. The sign is every fourth bit, of even codes where `even` has
** it.
*/
FN void dequantize_e2m1_twice(unsigned pair[4], unsigned codes, unsigned twice)
{
    const unsigned magnitudes = codes & 0x77777777, even = codes << 4;

    for (int i = 0; i < 2; i++) {
        const unsigned digits = magnitudes >> 16 * i;
        const unsigned signs = permute(codes, even, i ? 0xbfae : 0x9d8c) & 0x80808080;
        const unsigned upper = permute(0x3f3f3f00, 0x40404040, digits) | signs;
        const unsigned lower = permute(0xc0800000, 0xc0804000, digits);

        pair[2 * i] = multiply_bf16x2(permute(lower, upper, 0x5140), twice);
        pair[2 * i + 1] = multiply_bf16x2(permute(lower, upper, 0x7362), twice);
    }
}

FN void dequantize_e2m1(unsigned pair[4], unsigned codes, float factor)
{
    dequantize_e2m1_twice(pair, codes, permute(bits_of(factor), 0, 0x3232));
}
