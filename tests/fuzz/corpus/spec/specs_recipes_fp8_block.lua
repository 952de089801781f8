--@ specs/recipes/fp8_block.lua
-- One fp32 scale per 1x128 values, a power of two.
local FLT_MAX = f32.max

recipe "fp8_block" {
  element = { x = e4m3, w = e4m3, dy = e4m3 },
  scale   = blocked {
    type = f32,
    per  = { k = 128 },
    rule = function (amax)
      local s = min(e4m3.max / amax, FLT_MAX)
      s = frombits(bits(s) & 0x7f800000)
      s = select(eq(amax, 0) | isinf(amax) | isnan(amax), 1, s)
      return 1 / s, s
    end,
  },
  d = { bf16, f32 },
}
