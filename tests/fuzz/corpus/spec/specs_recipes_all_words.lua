--@ specs/recipes/all_words.lua
-- Every operator and word of rules, to see them printed.
recipe "all_words" {
  element = { x = e4m3, w = e4m3, dy = e4m3 },
  scale   = blocked { type = f32, per = { k = 128, n = 128 }, rule = function (amax, of)
    local u = (bits(amax) << 1 | 3) ~ (bits(-amax) >> 4) & ~bits(amax + 1)
    local small = lt(amax, 1e-40) & ~le(2, amax) ~ eq(u, 7)
    local f = select(small, max(amax - 0.5, of.element.max), abs(amax) / 3)
    local odd = select(isnan(f), 1 / 0, f * frombits(u - 1 + bits(f)))
    local s = of.element.max / max(amax, 1e-30) -- what it comes to, amax never being NaN
    return select(isnan(amax), odd, 1 / s), select(isnan(amax), min(f, of.input.max), s)
  end },
  d = bf16,
}
