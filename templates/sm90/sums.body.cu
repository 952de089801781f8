//$ -- SPDX-License-Identifier: Apache-2.0
registers_take($(registers[2]));
//$ local slab_of = store == "warps" and "(warp - 4)" or "(warpgroup - 1)"
struct slabs slabs = { s.slabs + $(slab_of) * SLABS * SLAB_BYTES, 0 };
float sum[SUMS];
//$ if addend == "read" then
struct raw_slab added[AHEAD + 1];
//$ elseif addend == "fetch" then
slabs.arrived = s.arrived + (warp - 4) * SLABS * 8;
//$ end
