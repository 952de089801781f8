//$ -- SPDX-License-Identifier: Apache-2.0
if (threadIdx.x == 0) {
    barriers_make(&s);
//$ for _, p in ipairs(params) do
//$ if p.kind == "map" then
    prefetch_map(&$(p.name));
//$ end
//$ end
//$ if microbatches > 1 then
    for (int i = 0; i < microbatch_count; i++) {
        prefetch_map(&microbatch_maps.part[i].a);
        prefetch_map(&microbatch_maps.part[i].b);
    }
//$ end
}
$(cluster.m * cluster.n > 1 and "cluster_sync" or "__syncthreads")();
