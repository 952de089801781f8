-- Codes without scales, which no product takes.

recipe "test_raw" {
  element = { x = e4m3, w = e4m3, dy = e4m3 },
  d       = { bf16, f32 },
}

-- SPDX-License-Identifier: Apache-2.0
