//$ -- SPDX-License-Identifier: Apache-2.0
/*
** The sum over 32 lanes: of lanes l and l + 16, of l and l + 8, .. l + 1. In fp32.
**                                                                      COUPLED: dprob
*/
static float sum_lanes(float sum[32])
{
    for (int distance = 16; distance > 0; distance /= 2)
        for (int i = 0; i < distance; i++)
            sum[i] = add_rn(sum[i], sum[i + distance]);
    return sum[0];
}
