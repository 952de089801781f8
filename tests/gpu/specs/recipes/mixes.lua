-- Weights with scales of blocks and other values: recipes that quern itself has none of, so that
-- what is dequantized on one side only, in the mainloop and by a pass, meets the suite's problems.

local function power ()
  return blocked { type = e8m0, per = { k = 32 },
    rule = function (amax, of) return e8m0_up(amax * (1 / of.element.max)) end }
end

-- Four bits and bf16.

recipe "mix_16_4" {
  element = { x = bf16, w = e2m1, dy = bf16 },
  scale   = { x = "none", dy = "none", w = power() },
  d       = { bf16 },
}

-- Eight bits and bf16.

recipe "mix_16_8" {
  element = { x = bf16, w = e4m3, dy = bf16 },
  scale   = { x = "none", dy = "none", w = power() },
  d       = { f32 },
}

-- Eight bits with scales in fp32, as served: for rows, for squares, for all of a tensor; and bf16.

local function fitted (amax, of)
  local s = select(eq(amax, 0) | isinf(amax), 1, min(of.element.max / amax, f32.max))
  return 1 / s, s
end

for name, per in pairs { rows = "row", squares = { n = 128, k = 128 }, all = "tensor" } do
  recipe("mix_16_8_" .. name) {
    element = { x = bf16, w = e4m3, dy = bf16 },
    scale   = { x = "none", dy = "none", w = blocked { type = f32, per = per, rule = fitted } },
    d       = { bf16, f32 },
  }
end

-- Four bits and eight.

recipe "mix_8_4" {
  element = { x = e4m3, w = e2m1, dy = e5m2 },
  scale   = power(),
  d       = { bf16 },
}

-- Four bits and FP8 in blocks, to which they may be requantized.

local function lines ()
  return blocked { type = f32, per = { k = 128 }, storage = "mn", rule = function (amax, of)
    local s = select(eq(amax, 0), 1, min(of.element.max / amax, f32.max))
    return 1 / s, s
  end }
end

recipe "mix_blocks_4" {
  element = { x = e4m3, w = e2m1, dy = e4m3 },
  scale   = { x = lines(), dy = lines(), w = power() },
  promote = 128,
  d       = { bf16, f32 },
}

-- Squares of activations, powers of two below a second level, and columnwise ones.

local function whole (amax)
  local s = select(eq(amax, 0) | isinf(amax), 1, amax)
  return s, 1 / max(s, 0x1p-126)
end

local function below (amax, of)
  local v = max(min(amax * of.global, 1), 0x1p-60) * (1 / of.element.max)
  local e = (bits(v) + 0x7fffff) >> 23
  return e8m0_bits(e), min(of.global * frombits((254 - e) << 23), f32.max)
end

recipe "mix_strange" {
  element = { x = e2m1, w = e2m1, dy = e4m3 },
  scale   = {
    x  = blocked { type = e8m0, per = { k = 32, m = 32 },
                   rule = function (amax, of) return e8m0_up(amax * (1 / of.element.max)) end },
    w  = blocked { type = e8m0, per = { k = 16 }, global = whole, rule = below },
    dy = blocked { type = e8m0, per = { k = 32 }, storage = "mn",
                   rule = function (amax, of) return e8m0_up(amax * (1 / of.element.max)) end },
  },
  d       = { bf16 },
}

-- Integers around a code in the middle, with scales of 16 bits: with bf16, and on both sides.

local function sixteen (most, zero, per, storage)
  return blocked { type = f16, per = per, zero = zero, storage = storage, rule = function (amax)
    local b = to_f16(min(amax * (1 / most), f16.max))
    return b, min(1 / from_f16(b), f32.max)
  end }
end

recipe "mix_16_u8" {
  element = { x = bf16, w = u8, dy = bf16 },
  scale   = { x = "none", dy = "none", w = sixteen(127, 128, { k = 64 }, "plain") },
  d       = { bf16 },
}

recipe "mix_integers" {
  element = { x = u8, w = i4, dy = u4 },
  scale   = { x = sixteen(77, 77, { k = 16 }, "mn"), w = sixteen(7, nil, { k = 64, n = 64 }),
              dy = sixteen(5, 5, { k = 32 }, "tiles") },
  d       = { f32, bf16 },
}

-- Integers under two levels of scales, whose sums lack no powers of two, as those of e2m1 do.

local function to_seven (amax, of)
  local s = to_e4m3(amax * (of.global * (1 / of.element.max)))
  return s, min(1 / (from_e4m3(s) * (1 / of.global)), f32.max)
end

recipe "mix_16_i4" {
  element = { x = bf16, w = i4, dy = bf16 },
  scale   = { x = "none", dy = "none",
              w = blocked { type = e4m3, per = { k = 64 }, copies = "rowwise", rule = to_seven,
                            global = function (amax)
    local none = eq(amax, 0) | isinf(amax)
    return select(none, 1, amax / 3136), select(none, 1, min(3136 / amax, f32.max))
  end } },
  d       = { bf16, f32 },
}

-- Integers under powers of two, which need a product that is rounded, as floats do not.

recipe "mix_16_u4_powers" {
  element = { x = bf16, w = u4, dy = bf16 },
  scale   = { x = "none", dy = "none",
              w = blocked { type = e8m0, per = { k = 32 }, zero = 8, copies = "rowwise",
                            rule = function (amax) return e8m0_up(amax * (1 / 7)) end } },
  d       = { bf16, f32 },
}

-- Zero points next to scales.

recipe "mix_16_zeros" {
  element = { x = bf16, w = u8, dy = bf16 },
  scale   = { x = "none", dy = "none",
              w = blocked { type = bf16, zero = "stored", per = { k = 32 }, copies = "rowwise",
                            rule = function (span)
    local b = to_bf16(span * (1 / 255))
    return b, min(1 / from_bf16(b), f32.max)
  end } },
  d       = { bf16, f32 },
}

-- SPDX-License-Identifier: Apache-2.0
