-- Recipes as a stranger writes them from specs/recipes/README.md: one choice each that none has.

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
