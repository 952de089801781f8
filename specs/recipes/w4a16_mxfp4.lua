-- Weights in MXFP4: e2m1, a power of two for 32 values, with activations in BF16.

recipe "w4a16_mxfp4" {
  element = { x = bf16, w = e2m1, dy = bf16 },
  scale   = {
    x = "none", dy = "none",
    w = blocked { type = e8m0, per = { k = 32 }, copies = "rowwise", rule = function (amax, of)
      return e8m0_up(amax * (1 / of.element.max))
    end },
  },
  accum   = f32,
  d       = { bf16, f32 },
}

-- SPDX-License-Identifier: Apache-2.0
