//$ -- SPDX-License-Identifier: Apache-2.0
//$ once "cast/to_narrow_stochastic.c"
/* fp32 to E2M1, rounded by chance; saturating, NaN 6. */
FN unsigned to_e2m1_stochastic(float x, unsigned random_byte)
{
    return to_narrow_stochastic(x, random_byte, 6, 4, 1, 127);
}
