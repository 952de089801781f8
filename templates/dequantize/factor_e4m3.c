//$ -- SPDX-License-Identifier: Apache-2.0
//$ once "dequantize/pair_e4m3.c"
/* A block's scale. */
FN float factor_e4m3(unsigned code)
{
    float factor, none;

    pair_e4m3(code, &factor, &none);
    return factor;
}
