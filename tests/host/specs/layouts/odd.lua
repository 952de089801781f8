-- Groups by themselves, padded to other multiples than the tiles.

storage "apart" { order = "columns", pad = { rows = 8 }, groups = "apart" }

storage "wide" { order = "rows", pad = { rows = 4, columns = 4 }, groups = "apart" }

-- SPDX-License-Identifier: Apache-2.0
