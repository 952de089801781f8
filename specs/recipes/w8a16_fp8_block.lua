-- Weights in FP8 with activations in BF16: e4m3, one fp32 scale for 128x128 of them.

local function rule (amax, of)
  local s = of.element.max / amax
  s = select(isinf(s), of.input.max, s)
  s = select(eq(amax, 0) | isinf(amax), 1, s)
  return 1 / s, s
end

recipe "w8a16_fp8_block" {
  element = { x = bf16, w = e4m3, dy = bf16 },
  scale   = {
    x = "none", dy = "none",
    w = blocked { type = f32, per = { k = 128, n = 128 }, copies = "rowwise", rule = rule },
  },
  accum   = f32,
  d       = { bf16, f32 },
}

-- SPDX-License-Identifier: Apache-2.0
