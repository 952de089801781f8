-- FP8, one scale for 1x128 activations and 128x128 weights, a power of two.

local function scale (per, storage)
  return blocked { type = f32, per = per, storage = storage, rule = function (amax, of)
    local s = of.element.max / amax
    s = select(isinf(s), of.input.max, s)
    s = select(eq(amax, 0) | isinf(amax), 1, s)
    s = frombits(bits(s) & 0x7f800000) -- down to a power of two
    return 1 / s, s
  end }
end

recipe "fp8_block" {
  element = { x = e4m3, w = e4m3, dy = e4m3 },
  scale   = { x = scale({ k = 128 }, "mn"), dy = scale({ k = 128 }, "mn"),
              w = scale({ n = 128, k = 128 }, "rows4") },
  accum   = f32,
  promote = 128,
  d       = { bf16, f16, f32 },
}

-- SPDX-License-Identifier: Apache-2.0
