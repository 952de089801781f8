-- Weights in MXFP4 with activations in FP8, one scale for each token: scales of weights within 128
-- values of k are so near that e4m3 holds each value, relative to the largest.

local function token (amax, of)
  local s = min(of.element.max / amax, f32.max)
  s = select(eq(amax, 0) | isinf(amax), 1, s)
  return 1 / s, s
end

recipe "w4a8_mxfp4" {
  element = { x = e4m3, w = e2m1 },
  scale   = {
    x = blocked { type = f32, per = "row", rule = token },
    w = blocked { type = e8m0, per = { k = 32 }, copies = "rowwise", as = e4m3,
                  rule = function (amax, of) return e8m0_up(amax * (1 / of.element.max)) end },
  },
  accum   = f32,
  promote = 128,
  d       = { bf16, f32 },
}

-- SPDX-License-Identifier: Apache-2.0
