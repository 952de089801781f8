//$ -- SPDX-License-Identifier: Apache-2.0
//$ -- The beginning of a kernel with a tile scheduler w; total: the ragged axis, an expression;
//$ -- first: this CTA's first tile, likewise.
//$ local across = ragged == "n" and "m" or "n"
//$ include "common/enter.body.cu"
if ($((ragged == "k" or ragged == "none") and "m == 0 || " or "")$(across) == 0)
    return; /* D has no element, and a strip no tiles */
w.groups = groups;
w.band = (unsigned int)band;
//$ if ragged ~= "none" then
w.first_dims = first_dims;
w.offsets = offsets;
w.sizes_bytes = sizes_bytes;
w.total = $(total);
//$ end
//$ if ragged == "k" or ragged == "none" then
w.strips = ((unsigned int)m + TILE_M - 1) / TILE_M;
//$ end
w.across = ((unsigned int)$(across) + TILE_$(across:upper()) - 1) / TILE_$(across:upper());
scheduler_begin(&w, $(first), gridDim.x$(ragged == "none" and "" or ", lane"));
