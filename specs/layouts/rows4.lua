-- Scales of blocks in both directions: [blocks of rows][blocks of a row, to a multiple of 4].

storage "rows4" { order = "rows", pad = { columns = 4 } }

-- SPDX-License-Identifier: Apache-2.0
