//$ -- SPDX-License-Identifier: Apache-2.0
if (threadIdx.x == 0) {
    barriers_make(&s);
//$ for _, p in ipairs(params) do
//$ if p.kind == "map" then
    prefetch_map(&$(p.name));
//$ end
//$ end
//$ if parts > 1 then
    for (int i = 0; i < part_count; i++) {
        prefetch_map(&part_maps.part[i].a);
        prefetch_map(&part_maps.part[i].b);
    }
//$ end
}
$(cluster.m * cluster.n > 1 and "cluster_sync" or "__syncthreads")();
