--@ specs/recipes/two.lua
-- Two recipes of sixteen bits.
-- A second line, which is no part of the short description.

recipe "bf16" {
  element = { x = bf16, w = bf16, dy = bf16 },
  accum   = f32,
  d       = { bf16, f32 },
}

recipe "f16" {
  element = { x = f16, w = f16, dy = f16 },
  d       = f16,
}
