-- NVFP4: e2m1 values, an e4m3 scale for 16 of them, an fp32 scale above these for each group.

local function global (amax)
  local special = eq(amax, 0) | isinf(amax)
  return select(special, 1, amax / 2688), select(special, 1, min(2688 / amax, f32.max))
end

local function rule (amax, of)
  local b = to_e4m3(amax * (of.global * (1 / 6)))
  return b, min(1 / (from_e4m3(b) * (1 / of.global)), f32.max)
end

local signs = "+++-+------+-+--" -- wgrad's operands are transformed along the tokens

recipe "nvfp4" {
  element = { x = e2m1, w = e2m1, dy = e2m1 },
  scale   = {
    x  = blocked { type = e4m3, per = { k = 16 }, global = global, rule = rule, hadamard = signs },
    w  = blocked { type = e4m3, per = { k = 16, n = 16 }, global = global, rule = rule },
    dy = blocked { type = e4m3, per = { k = 16 }, global = global, rule = rule, hadamard = signs,
                   rounding = "stochastic" },
  },
  d       = { bf16, f16, f32 },
}

-- SPDX-License-Identifier: Apache-2.0
