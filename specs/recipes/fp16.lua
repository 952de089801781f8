-- FP16: values as they are, products summed in fp32.

recipe "fp16" {
  element = { x = f16, w = f16, dy = f16 },
  accum   = f32,
  d       = { f16, f32 },
}

-- SPDX-License-Identifier: Apache-2.0
