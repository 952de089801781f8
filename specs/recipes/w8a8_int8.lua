-- Integers of 8 bits, one scale for each row of activations and weights: sums are exact.

recipe "w8a8_int8" {
  element = { x = i8, w = i8 },
  scale   = blocked { type = f32, per = "row", rule = function (amax, of)
    local s = min(of.element.max / amax, f32.max)
    s = select(eq(amax, 0) | isinf(amax), 1, s)
    return 1 / s, s
  end },
  accum   = f32,
  d       = { bf16, f32 },
}

-- SPDX-License-Identifier: Apache-2.0
