-- Weights of four bits with activations in BF16: integers around 8, a bf16 scale for 128 of them.

local function rule (amax)
  local b = to_bf16(amax * (1 / 7))
  return b, min(1 / from_bf16(b), f32.max)
end

recipe "w4a16_int4" {
  element = { x = bf16, w = u4 },
  scale   = { x = "none",
              w = blocked { type = bf16, per = { k = 128 }, zero = 8, rule = rule } },
  accum   = f32,
  d       = { bf16, f32 },
}

-- SPDX-License-Identifier: Apache-2.0
