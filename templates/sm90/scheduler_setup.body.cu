//$ -- SPDX-License-Identifier: Apache-2.0
//$ if ragged ~= "none" and microbatches == 1 then
w.first_dims = first_dims;
w.offsets = offsets;
w.sizes_bytes = sizes_bytes;
w.total = (unsigned int)$(ragged);
//$ end
w.groups = groups;
w.band = (unsigned int)band;
//$ if ragged ~= "none" then
w.pointers = $(ragged == "m" and "b_pointers" or "(const void *const *)d_pointers");
//$ end
//$ if ragged ~= "m" then
w.tile_rows = (unsigned int)((m + TILE_M - 1) / TILE_M);
//$ end
//$ if cluster.n > 1 then
w.tile_columns = (unsigned int)((n + CTAS * TILE_N - 1) / (CTAS * TILE_N));
//$ else
w.tile_columns = (unsigned int)((n + TILE_N - 1) / TILE_N);
//$ end
