-- MXFP8: e4m3 values, one power-of-two scale for 32 values, rounded up: nothing saturates.

recipe "mxfp8" {
  element = { x = e4m3, w = e4m3, dy = e4m3 },
  scale   = blocked { type = e8m0, per = { k = 32 }, rule = function (amax, of)
    return e8m0_up(amax * (1 / of.element.max))
  end },
  accum   = f32,
  d       = { bf16, f16, f32 },
}

-- SPDX-License-Identifier: Apache-2.0
