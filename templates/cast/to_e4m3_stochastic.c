//$ -- SPDX-License-Identifier: Apache-2.0
//$ once "cast/to_narrow_stochastic.c"
/* fp32 to E4M3, rounded by chance; saturating, NaN 0x7f. */
FN unsigned to_e4m3_stochastic(float x, unsigned random_byte)
{
    return x == x ? to_narrow_stochastic(x, random_byte, 448, 8, 3, 121) : 0x7f;
}
