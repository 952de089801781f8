-- Recipes that are not shipped: MXFP8 and NVFP4 with scales as Blackwell's tensor cores read them,
-- int8, six bits, and integers under 16-bit scales. There is no other file of them.

recipe "mxfp8_tiles" {
  element = { x = e4m3, w = e4m3, dy = e4m3 },
  scale   = blocked { type = e8m0, per = { k = 32 }, storage = "tiles", rule = function (amax, of)
    return e8m0_up(amax * (1 / of.element.max))
  end },
  d       = bf16,
}

local function global (amax)
  local special = eq(amax, 0) | isinf(amax)
  return select(special, 1, amax / 2688), select(special, 1, min(2688 / amax, f32.max))
end

recipe "nvfp4_tiles" {
  element = { x = e2m1, w = e2m1, dy = e2m1 },
  scale   = blocked { type = e4m3, per = { k = 16 }, storage = "tiles", global = global,
    rule = function (amax, of)
      local b = to_e4m3(amax * (of.global * (1 / 6)))
      return b, min(1 / (from_e4m3(b) * (1 / of.global)), f32.max)
    end },
  d       = bf16,
}

-- A tile of 128 x 4 scales that a group's 128 rows or tokens do not fill.

local function power (per)
  return blocked { type = e8m0, per = per, storage = "tiles", rule = function (amax, of)
    return e8m0_up(amax * (1 / of.element.max))
  end }
end

recipe "tiles_of_few" {
  element = { x = e2m1, w = e4m3, dy = e4m3 },
  scale   = { x = power { k = 16, m = 16 }, w = power { k = 64 }, dy = power { k = 128 } },
  d       = bf16,
}

local function divided (amax, of)
  local s = min(of.element.max / amax, f32.max)
  s = select(eq(amax, 0) | isinf(amax), 1, s)
  return 1 / s, s
end

recipe "int8" {
  element = { x = i8, w = i8, dy = i8 },
  scale   = blocked { type = f32, per = { k = 64 }, rule = divided },
  d       = bf16,
}

-- OCP's rule: floor(log2(amax)) less the exponent of the element's largest value.
local function floored (emax)
  return function (amax)
    return e8m0_down(frombits(bits(amax) & 0x7f800000) * 2.0 ^ -emax)
  end
end

recipe "mxfp6" {
  element = { x = e2m3, w = e2m3, dy = e3m2 },
  scale   = {
    x  = blocked { type = e8m0, per = { k = 32 }, rule = floored(2) },
    w  = blocked { type = e8m0, per = { k = 32, n = 32 }, rule = floored(2) },
    dy = blocked { type = e8m0, per = { k = 32 }, rule = floored(4), rounding = "stochastic" },
  },
  d       = bf16,
}

-- Integers with and without a sign, under scales of 16 bits.

local function by_bf16 (most)
  return function (amax)
    local b = to_bf16(amax * (1 / most))
    return b, min(1 / from_bf16(b), f32.max)
  end
end

local function by_f16 (most)
  return function (amax)
    local b = to_f16(min(amax * (1 / most), f16.max))
    return b, min(1 / from_f16(b), f32.max)
  end
end

recipe "w4a16_around_8" {
  element = { x = bf16, w = u4 },
  scale   = { x = "none",
              w = blocked { type = bf16, per = { k = 128 }, zero = 8, rule = by_bf16(7) } },
  d       = { bf16, f32 },
}

-- Scales in fp32 that multiply values, since the other operand has none.
recipe "w4a16_rows" {
  element = { x = bf16, w = u4 },
  scale   = { x = "none", w = blocked { type = f32, per = "row", zero = 7,
                                        rule = function (amax)
    local s = min(7 / amax, f32.max)
    s = select(eq(amax, 0) | isinf(amax), 1, s)
    return 1 / s, s
  end } },
  d       = { bf16, f32 },
}

recipe "integers" {
  element = { x = u4, w = i4, dy = u8 },
  scale   = {
    x  = blocked { type = bf16, per = { k = 32, m = 32 }, zero = 5, storage = "tiles",
                   rule = by_bf16(5) },
    w  = blocked { type = f16, per = { k = 64 }, rule = by_f16(7) },
    dy = blocked { type = bf16, per = { k = 16 }, zero = 77, storage = "mn", rule = by_bf16(77) },
  },
  d       = { bf16, f32 },
}

-- SPDX-License-Identifier: Apache-2.0
