-- Weights of four bits next to BF16 activations, for serving: there is no dy.

recipe "test_serve" {
  element = { x = bf16, w = e2m1 },
  scale   = { x = "none", w = blocked { type = e8m0, per = { k = 32 }, rule = function (amax, of)
    return e8m0_up(amax * (1 / of.element.max))
  end } },
  d       = { bf16 },
}

-- fp32 scales on one side, which mma.sync takes next to BF16 and FP16.

local function rule (amax, of)
  local s = min(of.element.max / amax, f32.max)
  s = select(eq(amax, 0) | isinf(amax), 1, s)
  return 1 / s, s
end

for name, x in pairs { test_next_bf16 = bf16, test_next_f16 = f16 } do
  recipe(name) {
    element = { x = x, w = e4m3 },
    scale   = { x = "none", w = blocked { type = f32, per = "row", rule = rule } },
    d       = x,
  }
end

-- Four bits of floats under scales of 11 digits, which bf16 does not hold.

recipe "test_digits" {
  element = { x = bf16, w = e2m1 },
  scale   = { x = "none", w = blocked { type = f16, per = { k = 32 }, rule = function (amax)
    local b = to_f16(min(amax * (1 / 6), f16.max))
    return b, min(1 / from_f16(b), f32.max)
  end } },
  d       = { bf16 },
}

-- SPDX-License-Identifier: Apache-2.0
