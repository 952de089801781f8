//$ -- SPDX-License-Identifier: Apache-2.0
//$ once "dequantize/permute.c"
/* Eight codes of a byte: the i-th and the one 4 after it side by side. */
FN void codes_apart(unsigned word[2])
{
    const unsigned first = word[0], second = word[1];

    word[0] = permute(first, second, 0x5140);
    word[1] = permute(first, second, 0x7362);
}

/* The same of eight values of bf16. */
FN void pairs_apart(unsigned pair[4])
{
    const unsigned first = pair[0], second = pair[1];

    pair[0] = permute(first, pair[2], 0x5410);
    pair[1] = permute(first, pair[2], 0x7632);
    pair[2] = permute(second, pair[3], 0x5410);
    pair[3] = permute(second, pair[3], 0x7632);
}
