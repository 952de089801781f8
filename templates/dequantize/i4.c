//$ -- SPDX-License-Identifier: Apache-2.0
//$ once "dequantize/integers.c"
/* Eight codes, times a scale of at most 16 digits: code i and code i + 1 make a pair. */
FN void dequantize_i4(unsigned pair[4], unsigned codes, float factor)
{
    pairs_of_codes(pair, codes ^ 0x88888888);
    scale_integers(pair, factor, 0x43084308);
}
