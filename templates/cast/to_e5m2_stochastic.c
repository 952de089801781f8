//$ -- SPDX-License-Identifier: Apache-2.0
//$ once "cast/to_narrow_stochastic.c"
/* fp32 to E5M2, rounded by chance; saturating, NaN 0x7f. */
FN unsigned to_e5m2_stochastic(float x, unsigned random_byte)
{
    return x == x ? to_narrow_stochastic(x, random_byte, 57344, 8, 2, 113) : 0x7f;
}
