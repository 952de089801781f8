-- FP8, one scale for each tensor, from the largest values of the calls before (delayed scaling).

local margin = 0 -- powers of two that are kept free above the largest value

recipe "fp8_tensor_delayed" {
  element = { x = e4m3, w = e4m3, dy = e5m2 },
  scale   = blocked {
    type    = f32,
    per     = "tensor",
    delayed = { history = 1024, amax = "max" },
    rule    = function (amax, of)
      local s = min(of.element.max / (1 << margin) / amax, f32.max)
      s = select(lt(0, amax) & ~isinf(amax), s, of.previous)
      return 1 / s, s
    end,
  },
  accum   = f32,
  promote = "never",
  d       = { bf16, f16, f32 },
}

-- SPDX-License-Identifier: Apache-2.0
