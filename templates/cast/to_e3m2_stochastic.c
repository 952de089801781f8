//$ -- SPDX-License-Identifier: Apache-2.0
//$ once "cast/to_narrow_stochastic.c"
/* fp32 to E3M2, rounded by chance; saturating, NaN 28. */
FN unsigned to_e3m2_stochastic(float x, unsigned random_byte)
{
    return to_narrow_stochastic(x, random_byte, 28, 6, 2, 125);
}
