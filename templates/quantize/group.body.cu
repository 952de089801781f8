//$ -- SPDX-License-Identifier: Apache-2.0
g.number = t.group;
//$ if of == "w" then
g.start = 0;
g.length = m;
g.first = 0;
//$ else
g.start = t.start;
g.length = (int)t.length;
g.first = (int)((w.next - w.stride) / w.across) - t.row / TILE_M; /* COUPLED: bands */
if ((unsigned int)(g.first + t.row / TILE_M) >= (unsigned int)most_tiles(&all))
    continue; /* groups that overlap would not fit into the columnwise tensor */
//$ end
