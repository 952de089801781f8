-- MXFP8 with the scale of the OCP standard: floor(log2(amax)) - 8, which may saturate a block.

recipe "mxfp8_ocp" {
  element = { x = e4m3, w = e4m3, dy = e4m3 },
  scale   = blocked { type = e8m0, per = { k = 32 }, rule = function (amax)
    local power = frombits(bits(amax) & 0x7f800000) -- at or below amax
    return e8m0_down(power * 0x1p-8)
  end },
  accum   = f32,
  d       = { bf16, f16, f32 },
}

-- SPDX-License-Identifier: Apache-2.0
