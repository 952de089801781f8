-- FP8, one scale for each group, from its own largest value (current scaling).

recipe "fp8_tensor" {
  element = { x = e4m3, w = e4m3, dy = e5m2 },
  scale   = blocked { type = f32, per = "group", rule = function (amax, of)
    local s = min(of.element.max / amax, f32.max)
    s = select(eq(amax, 0) | isinf(amax), 1, s)
    return 1 / s, s
  end },
  accum   = f32,
  promote = "never",
  d       = { bf16, f16, f32 },
}

-- SPDX-License-Identifier: Apache-2.0
