-- MXFP4: e2m1 values, two in a byte, one power-of-two scale for 32 values, rounded up.

recipe "mxfp4" {
  element = { x = e2m1, w = e2m1, dy = e2m1 },
  scale   = blocked { type = e8m0, per = { k = 32 }, rule = function (amax, of)
    return e8m0_up(amax * (1 / of.element.max))
  end },
  accum   = f32,
  d       = { bf16, f16, f32 },
}

-- SPDX-License-Identifier: Apache-2.0
