-- BF16: values as they are, products summed in fp32.

recipe "bf16" {
  element = { x = bf16, w = bf16, dy = bf16 },
  accum   = f32,
  d       = { bf16, f32 },
}

-- SPDX-License-Identifier: Apache-2.0
