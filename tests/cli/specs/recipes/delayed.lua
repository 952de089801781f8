-- Delayed scaling of types that differ in what they hold.

local function rule (amax, of)
  local s = min(of.element.max / amax, f32.max)
  s = select(lt(0, amax) & ~isinf(amax), s, of.previous)
  return 1 / s, s
end

for _, w in ipairs { "e2m1", "i4" } do
  recipe("test_delayed_" .. w) {
    element = { x = e4m3, w = w == "i4" and i4 or e2m1, dy = e5m2 },
    scale   = blocked { type = f32, per = "tensor", delayed = { history = 16, amax = "max" },
                        rule = rule },
    promote = "never",
    d       = { bf16 },
  }
end

-- SPDX-License-Identifier: Apache-2.0
