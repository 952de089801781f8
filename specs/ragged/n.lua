-- Columns of B and D belong to groups; A has one matrix for each group.

ragged "n" { b = "n", d = "n" }

-- SPDX-License-Identifier: Apache-2.0
