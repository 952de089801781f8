//$ -- SPDX-License-Identifier: Apache-2.0
tensor_before_barrier();
$(pair and "cluster_sync" or "__syncthreads")();$(pair and " /* no CTA leaves while another may still read its memory or arrive */" or "")
tensor_after_barrier();
if (warp == 1)
    tensor_give_back(sums, SUMS_WORDS);
