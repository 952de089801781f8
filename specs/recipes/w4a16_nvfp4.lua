-- Weights in NVFP4: e2m1, an e4m3 scale for 16 values, fp32 above these, with activations in BF16.

local function global (amax)
  local special = eq(amax, 0) | isinf(amax)
  return select(special, 1, amax / 2688), select(special, 1, min(2688 / amax, f32.max))
end

local function rule (amax, of)
  local b = to_e4m3(amax * (of.global * (1 / 6)))
  return b, min(1 / (from_e4m3(b) * (1 / of.global)), f32.max)
end

recipe "w4a16_nvfp4" {
  element = { x = bf16, w = e2m1, dy = bf16 },
  scale   = {
    x = "none", dy = "none",
    w = blocked { type = e4m3, per = { k = 16 }, global = global,
                  copies = "rowwise", rule = rule },
  },
  accum   = f32,
  d       = { bf16, f32 },
}

-- SPDX-License-Identifier: Apache-2.0
