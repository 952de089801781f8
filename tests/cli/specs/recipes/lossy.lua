-- Rules that lose more than their format does.

-- Values beyond a quarter to a half of the largest are cut.

recipe "test_cut" {
  element = { x = e4m3, w = e4m3, dy = e4m3 },
  scale   = blocked { type = e8m0, per = { k = 32 },
    rule = function (amax, of) return e8m0_up(amax * (0.25 / of.element.max)) end },
  d       = { bf16, f32 },
}

-- Rounded by chance, all of them.

recipe "test_chance" {
  element = { x = e5m2, w = e5m2, dy = e5m2 },
  scale   = blocked { type = e8m0, per = { k = 32 }, rounding = "stochastic",
    rule = function (amax, of) return e8m0_up(amax * (1 / of.element.max)) end },
  d       = { bf16, f32 },
}

-- SPDX-License-Identifier: Apache-2.0
