--@ specs/recipes/mxfp8.lua
-- MXFP8: e4m3 values, one power-of-two scale per 32 values along k.

recipe "mxfp8" {
  element = { x = e4m3, w = e4m3, dy = e4m3 },
  scale   = blocked { type = e8m0, per = { k = 32 }, rule = function (amax) return e8m0_up(amax * (1 / e4m3.max)) end },
  accum   = f32,
  d       = { bf16, f32 },
}
