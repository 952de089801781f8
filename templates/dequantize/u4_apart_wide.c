//$ -- SPDX-License-Identifier: Apache-2.0
//$ once "dequantize/integers.c"
/* Eight codes, `zero` is that of 0, times a scale of 24 digits: code i and code i + 4 make
   a pair. */
FN void dequantize_u4_apart_wide(unsigned pair[4], unsigned codes, float factor, unsigned zero)
{
    pairs_of_codes_apart(pair, codes);
    scale_integers_wide(pair, factor, 0x43004300 + 0x10001 * zero);
}
