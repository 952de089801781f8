-- Weights of four bits with activations in FP16: integers, an f16 scale for 128 of them.

local function rule (amax)
  local b = to_f16(min(amax * (1 / 7), f16.max))
  return b, min(1 / from_f16(b), f32.max)
end

recipe "w4a16_int4_fp16" {
  element = { x = f16, w = i4, dy = f16 },
  scale   = {
    x = "none", dy = "none",
    w = blocked { type = f16, per = { k = 128 }, copies = "rowwise", rule = rule },
  },
  accum   = f32,
  d       = { f16, f32 },
}

-- SPDX-License-Identifier: Apache-2.0
