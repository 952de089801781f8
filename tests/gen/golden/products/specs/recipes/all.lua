local function rule (amax, of)
  local s = of.element.max / max(amax, 0x1p-100)
  return 1 / s, s
end

local function scale (per, storage)
  return blocked { type = f32, per = per, storage = storage or "plain", rule = rule }
end

-- Another scale for each tensor, and gradients of another type.

recipe "each" {
  element = { x = e4m3, w = e4m3, dy = e5m2 },
  scale   = { x = scale({ k = 128 }, "mn"), w = scale { k = 64, n = 64 }, dy = scale "row" },
  promote = 128,
  d       = { bf16, f32 },
}

-- Weights alone: there is no wgrad of it.

recipe "weights" {
  element = { x = bf16, w = e2m1, dy = bf16 },
  scale   = { x = "none", dy = "none",
              w = blocked { type = e8m0, per = { k = 32 }, rule = function (amax) return e8m0_up(amax) end } },
  d       = bf16,
}

-- No scales at all.

recipe "values" { element = { x = bf16, w = bf16, dy = bf16 }, d = bf16 }

-- One for all.

recipe "whole" { element = { x = e4m3, w = e4m3, dy = e4m3 }, scale = scale "tensor", d = f32 }
