//$ -- SPDX-License-Identifier: Apache-2.0
/* The sum over all lanes of a warp, in the host's order.        COUPLED: dprob */
FN float sum_lanes(float sum)
{
#pragma unroll
    for (int distance = 16; distance > 0; distance /= 2)
        sum = add_rn(sum, __shfl_xor_sync(~0u, sum, distance));
    return sum;
}
