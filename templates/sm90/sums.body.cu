//$ -- SPDX-License-Identifier: Apache-2.0
registers_take($(registers[2]));
//$ local slab_of = store == "warps" and "(warp - 4)" or "(warpgroup - 1)"
struct slabs slabs = { s.slabs + $(slab_of) * SLABS * SLAB_BYTES, 0 };
//$ if params.scatter then
slabs.d = (char *)d;
slabs.pitch = d_stride * 2;
slabs.scatter = scatter;
slabs.addresses = addresses;
slabs.rows = m;
slabs.columns = n;
//$ end
float sum[SUMS];
//$ if addend == "read" then
struct raw_slab added[AHEAD + 1];
//$ elseif addend == "fetch" then
slabs.arrived = s.arrived + (warp - 4) * SLABS * 8;
//$ end
