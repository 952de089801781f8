//$ -- SPDX-License-Identifier: Apache-2.0
/* The largest over `LANES` neighbouring lanes, in all of them. */
template <int LANES> FN float reduce_lanes(float most)
{
#pragma unroll
    for (int mask = LANES / 2; mask > 0; mask /= 2)
        most = larger(most, __shfl_xor_sync(~0u, most, mask));
    return most;
}
