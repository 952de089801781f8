-- Recipes as a stranger writes them from docs/recipes.md: one choice each that none has.

-- A power of two for each row.

recipe "test_row_pow2" {
  element = { x = e4m3, w = e4m3, dy = e5m2 },
  scale   = blocked { type = e8m0, per = "row", rule = function (amax, of)
    return e8m0_up(amax * (1 / of.element.max))
  end },
  d       = { f32, bf16 },
}

-- Four bits with a power of two for 16 values, transforms of wgrad's operands, rounding by chance.

local function power (rounding, signs)
  return blocked { type = e8m0, per = { k = 16 }, hadamard = signs, rounding = rounding,
    rule = function (amax, of) return e8m0_up(amax * (1 / of.element.max)) end }
end

recipe "test_turned" {
  element = { x = e2m1, w = e2m1, dy = e2m1 },
  scale   = { x = power("nearest", "+-+-+-+-+-+-+-+-"), w = power "nearest",
              dy = power("stochastic", "+-+-+-+-+-+-+-+-") },
  d       = { f32, bf16 },
}

-- Transforms where one scale is of more than a block, and where it is any number.

local function any (amax, of)
  local s = min(of.element.max / amax, f32.max)
  s = select(eq(amax, 0) | isinf(amax), 1, s)
  return 1 / s, s
end

local function turned (per, rounding)
  return blocked { type = f32, per = per, rule = any, hadamard = "+++-+------+-+--",
                   rounding = rounding }
end

-- A scale that is kept as fp32, but has no more digits than e4m3.

local function coarse (amax, of)
  local s = from_e4m3(to_e4m3(max(amax / of.element.max, 0x1p-9)))
  return s, 1 / s
end

recipe "test_turned_row" {
  element = { x = e4m3, w = e4m3, dy = e4m3 },
  scale   = { x = turned "row", w = blocked { type = f32, per = "row", rule = coarse },
              dy = turned "row" },
  d       = { f32, bf16 },
}

recipe "test_turned_random" {
  element = { x = e4m3, w = e4m3, dy = e4m3 },
  scale   = { x = turned("row", "stochastic"),
              w = blocked { type = f32, per = "row", rule = any },
              dy = turned("group", "stochastic") },
  d       = { bf16 },
}

recipe "test_turned_any" {
  element = { x = e2m1, w = e2m1, dy = e2m1 },
  scale   = { x = turned({ k = 32 }, "stochastic"),
              w = blocked { type = f32, per = { k = 32 }, rule = any },
              dy = turned { k = 32 } },
  d       = { f32 },
}

-- Codes of four bits next to any number, which no kernel for few tokens converts.

recipe "test_e2m1_wide" {
  element = { x = bf16, w = e2m1, dy = bf16 },
  scale   = { x = "none", dy = "none",
              w = blocked { type = f32, per = { k = 32 }, copies = "both", rule = any } },
  d       = { f32, bf16 },
}

-- Rows of six bits, whose sums no recipe of values has, and no fp32.

recipe "test_rows6" {
  element = { x = e2m3, w = e2m3 },
  scale   = { x = blocked { type = f32, per = "row", rule = any },
              w = blocked { type = f32, per = "row", rule = any } },
  d       = { bf16 },
}

-- Packed weights next to f16, whose first type of D is none of dw, which wgrad fp16 makes.

local function half (amax)
  local b = to_f16(min(amax * (1 / 7), f16.max))
  return b, min(1 / from_f16(b), f32.max)
end

recipe "test_i4_f16" {
  element = { x = f16, w = i4, dy = f16 },
  scale   = { x = "none", dy = "none",
              w = blocked { type = f16, per = { k = 32 }, copies = "rowwise", rule = half } },
  d       = { bf16, f16, f32 },
}

-- A power of two for each group, and for blocks of integers.

local function up (amax, of) return e8m0_up(amax * (1 / of.element.max)) end

recipe "test_group_pow2" {
  element = { x = e5m2, w = e4m3, dy = e5m2 },
  scale   = blocked { type = e8m0, per = "group", rule = up },
  d       = { f32 },
}

recipe "test_int8_pow2" {
  element = { x = i8, w = i8, dy = i8 },
  scale   = blocked { type = e8m0, per = { k = 64 }, rule = up },
  d       = { f32 },
}

-- SPDX-License-Identifier: Apache-2.0
