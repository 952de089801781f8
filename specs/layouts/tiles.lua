-- Tiles of 128 rows by 4 scales, 512 bytes each, as Blackwell's tensor cores read them. Each group
-- is padded by itself. If several rows share a scale, each of them has it.

storage "tiles" { order = "tiles" }

-- SPDX-License-Identifier: Apache-2.0
