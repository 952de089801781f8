--@ specs/recipes/mxfp8_floor.lua
-- The rule of the OCP standard: floor(log2(amax)) - 8, the exponent of the largest e4m3.
recipe "mxfp8_floor" {
  element = { x = e4m3, w = e4m3, dy = e4m3 },
  scale   = blocked { type = e8m0, per = { k = 32 }, rule = function (amax)
    return e8m0_down(amax * 0x1p-8)
  end },
  d       = bf16,
}
