-- The summed axis belongs to groups (wgrad): D has one matrix for each group.

ragged "k" { a = "k", b = "k" }

-- SPDX-License-Identifier: Apache-2.0
