//$ -- SPDX-License-Identifier: Apache-2.0
if (warp == 1)
    sums_take(s.sums);
tensor_before_barrier();
$(pair and "cluster_sync" or "__syncthreads")();
tensor_after_barrier();
sums = load_shared_word(s.sums);
