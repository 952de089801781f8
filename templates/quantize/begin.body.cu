//$ -- SPDX-License-Identifier: Apache-2.0
w.groups = groups;
//$ if of == "w" then
w.strips = (unsigned int)ceil_div(m, TILE_M);
//$ else
w.first_dims = first_dims;
w.offsets = offsets;
w.sizes_bytes = sizes_bytes;
w.total = (unsigned int)m;
//$ end
w.across = (unsigned int)ceil_div(k, TILE_N);
w.band = BAND;
//$ local by_lane = of == "w" and "" or ", lane"
scheduler_begin(&w, blockIdx.x, gridDim.x$(by_lane));
