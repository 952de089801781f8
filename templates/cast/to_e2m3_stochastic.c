//$ -- SPDX-License-Identifier: Apache-2.0
//$ once "cast/to_narrow_stochastic.c"
/* fp32 to E2M3, rounded by chance; saturating, NaN 7.5. */
FN unsigned to_e2m3_stochastic(float x, unsigned random_byte)
{
    return to_narrow_stochastic(x, random_byte, 7.5f, 6, 3, 127);
}
