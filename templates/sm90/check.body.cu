//$ -- SPDX-License-Identifier: Apache-2.0
//$ if microbatches > 1 then
} else if (warp == 1 && blockIdx.x == 0) {
    check_microbatches(&microbatches, microbatch_count, groups, error, lane);
//$ elseif ragged ~= "none" then
} else if (warp == 1 && blockIdx.x == 0) {
    check_sizes(first_dims, offsets, sizes_bytes, groups, (unsigned int)$(ragged), error, lane);
//$ end
