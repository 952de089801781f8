-- Rows of A and D belong to groups; B has one matrix for each group.

ragged "m" { a = "m", d = "m" }

-- SPDX-License-Identifier: Apache-2.0
