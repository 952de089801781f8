//$ -- SPDX-License-Identifier: Apache-2.0
tensor_before_barrier();
//$ if pair then
/* No CTA leaves while the other one may still read its memory or arrive on its barriers. */
//$ end
$(pair and "cluster_sync" or "__syncthreads")();
tensor_after_barrier();
if (warp == 1)
    sums_give_back(sums);
