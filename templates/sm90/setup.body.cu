//$ -- SPDX-License-Identifier: Apache-2.0
const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
const int warpgroup = uniform(warp / 4);
const unsigned int clusters = gridDim.x / CTAS, cluster = blockIdx.x / CTAS;
struct scheduler w;
struct pipeline p = { 0, 0 };
unsigned int sequence = 0; /* number of the next tile */
struct tile t;

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
//$ include "common/enter.body.cu"
//$ for _, p in ipairs(params) do
//$ if p.kind == "map" then
maps.$(p.member) = &$(p.name);
//$ end
//$ end
//$ if ragged ~= "none" then
maps.base = error;
//$ end
//$ if microbatches > 1 then
maps.microbatches = &microbatches;
maps.plain = &microbatch_maps;
maps.groups = groups;
w.microbatches = &microbatches;
w.count = microbatch_count;
//$ end
