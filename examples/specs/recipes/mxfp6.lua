-- MXFP6: e2m3 values, one power-of-two scale for 32 values, rounded up.

recipe "mxfp6" {
  element = { x = e2m3, w = e2m3, dy = e2m3 },
  scale   = blocked { type = e8m0, per = { k = 32 }, rule = function (amax, of)
    return e8m0_up(amax * (1 / of.element.max))
  end },
  d       = { bf16, f32 },
}

-- SPDX-License-Identifier: Apache-2.0
