-- Scales row by row: [rows][blocks of a row].

storage "plain" { order = "rows" }

-- SPDX-License-Identifier: Apache-2.0
