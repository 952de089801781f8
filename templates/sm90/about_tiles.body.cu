//$ -- SPDX-License-Identifier: Apache-2.0
//$ if schedule == "cooperative" then
** they share each tile of D by $(split == "m" and "rows" or "columns").
//$ else
** each has tiles of its own, and one stores while the other multiplies.
//$ end
//$ if cluster.n > 1 then
** $(cluster.n) CTAs side by side along n share the rows of A: each loads a part for all.
//$ elseif cluster.m > 1 then
** Two CTAs one above the other share the columns of B: each loads a half for both. Where a group's
** last row of tiles has none below it, they stand side by side and share the rows of A.
//$ end
