//$ -- SPDX-License-Identifier: Apache-2.0
//$ if of ~= "w" then
if (blockIdx.x == gridDim.x - 1 && warp == 0) /* it has the fewest tiles */
    check_sizes(first_dims, offsets, sizes_bytes, groups, (unsigned int)m, error, lane);
//$ end
