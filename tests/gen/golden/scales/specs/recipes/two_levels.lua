-- An e4m3 scale below an fp32 scale.

recipe "two_levels" {
  element = { x = e2m1, w = e2m1, dy = e2m1 },
  scale   = blocked {
    type   = e4m3,
    per    = { k = 16 },
    global = function (amax) return amax / 2688, 2688 / amax end,
    rule   = function (amax, of)
      local b = to_e4m3(amax * of.global)
      return b, 1 / from_e4m3(b)
    end,
  },
  d       = bf16,
}
