--@ specs/recipes/two_levels.lua
-- An e4m3 scale below an fp32 scale.

recipe "two_levels" {
  element = { x = e2m1, w = e2m1, dy = e2m1 },
  scale   = blocked {
    type   = e4m3,
    per    = { k = 16 },
    global = function (amax)
      local s = 2688 / max(amax, 0x1p-100)
      return 1 / s, s
    end,
    rule   = function (amax, of)
      local b = to_e4m3(amax * (of.global * (1 / 6)))
      return b, min(of.global / from_e4m3(b), f32.max)
    end,
  },
  d       = bf16,
}
