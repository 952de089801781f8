-- Weights of four bits with activations in FP16: 128 of them share an f16 scale and a zero point.

local function rule (span)
  local b = to_f16(min(span * (1 / 15), f16.max))
  return b, min(1 / from_f16(b), f32.max)
end

recipe "w4a16_int4_zeros_fp16" {
  element = { x = f16, w = u4, dy = f16 },
  scale   = {
    x = "none", dy = "none",
    w = blocked { type = f16, zero = "stored", per = { k = 128 }, copies = "rowwise", rule = rule },
  },
  accum   = f32,
  d       = { f16, f32 },
}

-- SPDX-License-Identifier: Apache-2.0
