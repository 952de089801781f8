-- Scales of 128 x 128 tiles read a column at once: [blocks of a row][rows, to a multiple of 4]. The
-- columnwise tensor has such a matrix for each group, since its blocks end with the group's tokens.

storage "mn" { order = "columns", pad = { rows = 4 } }

-- SPDX-License-Identifier: Apache-2.0
