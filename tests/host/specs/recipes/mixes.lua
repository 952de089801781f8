-- Mixes that quern's own recipes do not have: products follow only from the fields.

local function fp32 (per, storage)
  return blocked { type = f32, per = per, storage = storage or "plain", rule = function (amax, of)
    local s = min(of.element.max / amax, f32.max)
    s = select(eq(amax, 0) | isinf(amax), 1, s)
    return 1 / s, s
  end }
end

local function power (storage, per)
  return blocked { type = e8m0, per = per or { k = 32 }, storage = storage or "plain",
    rule = function (amax, of) return e8m0_up(amax * (1 / of.element.max)) end }
end

-- Six bits of two kinds, scales in tiles of 128 x 4.

recipe "test_mx6" {
  element = { x = e2m3, w = e3m2, dy = e2m3 },
  scale   = power "tiles",
  d       = { f32, bf16 },
}

-- Integers: sums of 32 bits.

recipe "test_int8" {
  element = { x = i8, w = i8, dy = i8 },
  scale   = fp32 "row",
  d       = { f32, bf16 },
}

-- Weights of four bits with unquantized values; wgrad has no scales.

recipe "test_w4" {
  element = { x = bf16, w = e2m1, dy = bf16 },
  scale   = { x = "none", dy = "none", w = power() },
  d       = { f32, bf16 },
}

-- Another block and another storage for each tensor; sums that end where any block does.

recipe "test_blocks" {
  element = { x = e4m3, w = e4m3, dy = e5m2 },
  scale   = { x = fp32({ k = 64 }, "apart"), dy = fp32({ k = 32, m = 32 }, "wide"),
              w = fp32({ k = 128 }, "mn") },
  promote = 96,
  d       = { f32, bf16 },
}

-- Dequantized values with scaled values.

recipe "test_mixed" {
  element = { x = e4m3, w = e2m1, dy = e5m2 },
  scale   = { x = fp32 "row", w = power "tiles", dy = fp32({ k = 32, m = 32 }, "tiles") },
  d       = { f32, bf16 },
}

-- Squares of weights, whose scales each row repeats in tiles and none does without.

for name, storage in pairs { test_square_tiles = "tiles", test_square_plain = "plain" } do
  recipe(name) {
    element = { x = e4m3, w = e4m3, dy = e4m3 },
    scale   = { x = power(storage), w = power(storage, { k = 32, n = 32 }), dy = power(storage) },
    d       = { f32, bf16 },
  }
end

-- Unquantized weights with quantized values: no MLP, whose dgrad would read w along its rows.

recipe "test_w16" {
  element = { x = e4m3, w = bf16, dy = e5m2 },
  scale   = { x = power(), w = "none", dy = power() },
  d       = { f32, bf16 },
}

-- Integers of four and eight bits, of which some codes are around another one than 0; 16-bit scales.

local function sixteen (most, storage)
  return function (per, zero)
    return blocked { type = f16, per = per, zero = zero, storage = storage,
      rule = function (amax)
        local b = to_f16(min(amax * (1 / most), f16.max))
        return b, min(1 / from_f16(b), f32.max)
      end }
  end
end

recipe "test_integers" {
  element = { x = u8, w = i4, dy = u4 },
  scale   = { x = sixteen(77, "mn")({ k = 16 }, 77), w = sixteen(7, "plain")({ k = 64, n = 64 }),
              dy = sixteen(5, "tiles")({ k = 32 }, 5) },
  d       = { f32, bf16 },
}

-- Zero points next to scales.

recipe "test_zeros" {
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
