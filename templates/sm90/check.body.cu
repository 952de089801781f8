//$ -- SPDX-License-Identifier: Apache-2.0
//$ local by = arch == "sm_90a" and 1 or 2 -- a warp with nothing else to do
//$ if microbatches > 1 then
} else if (warp == $(by) && blockIdx.x == 0) {
    check_microbatches(&microbatches, microbatch_count, groups, error, lane);
//$ elseif ragged ~= "none" then
} else if (warp == $(by) && blockIdx.x == 0) {
    check_sizes(first_dims, offsets, sizes_bytes, groups, (unsigned int)$(ragged), error, lane);
//$ end
