recipe "bf16" { element = { x = bf16, w = bf16, dy = bf16 }, d = bf16 }

-- SPDX-License-Identifier: Apache-2.0
