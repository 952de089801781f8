//$ -- SPDX-License-Identifier: Apache-2.0
//$ once "dequantize/integers.c"
/* Eight codes, times a scale of 24 digits: code i and code i + 1 make a pair. */
FN void dequantize_i4_wide(unsigned pair[4], unsigned codes, float factor)
{
    pairs_of_codes(pair, codes ^ 0x88888888);
    scale_integers_wide(pair, factor, 0x43084308);
}
