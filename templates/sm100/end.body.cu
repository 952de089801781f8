//$ -- SPDX-License-Identifier: Apache-2.0
tensor_before_barrier();
__syncthreads();
tensor_after_barrier();
if (warp == 1)
    tensor_give_back(sums, SUMS_WORDS);
