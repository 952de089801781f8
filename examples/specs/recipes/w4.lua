-- Weights of four bits with unscaled activations, for serving.

recipe "w4" {
  element = { x = bf16, w = e2m1 },
  scale   = { x = "none", w = blocked { type = e8m0, per = { k = 32 },
    rule = function (amax, of) return e8m0_up(amax * (1 / of.element.max)) end } },
  d       = { bf16 },
}

-- SPDX-License-Identifier: Apache-2.0
