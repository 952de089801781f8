-- FP8, one scale for each row of activations and weights; columnwise tensor: for each feature of a
-- group.

recipe "fp8_row" {
  element = { x = e4m3, w = e4m3, dy = e4m3 },
  scale   = blocked { type = f32, per = "row", rule = function (amax, of)
    local s = min(of.element.max / amax, f32.max)
    s = select(eq(amax, 0) | isinf(amax), 1, s)
    return 1 / s, s
  end },
  accum   = f32,
  promote = 128,
  d       = { bf16, f16, f32 },
}

-- SPDX-License-Identifier: Apache-2.0
