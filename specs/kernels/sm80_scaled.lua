-- Quantized products with mma.sync, for operands that wgmma and TMA do not support, and for GPUs
-- before and after Hopper: codes are dequantized to 16 bits in registers. One operand may be bf16
-- or f16 as it is.

local params = { "a", "b", "c", "d", "a_stride", "b_stride", "c_stride", "d_stride",
                 "a_sf", "b_sf", "a_sf_stride", "b_sf_stride", "a_sf_group_stride",
                 "b_sf_group_stride", "a_global", "b_global", "alpha", "beta", "scalar_step",
                 "first_dims", "offsets", "sizes_bytes", "groups", "m", "n", "k", "band", "error",
                 "noop" }

local function dequantizes (o)
  return o.scale and o.scale.of_values
end

local function is_factor (o)
  local s = o.scale
  return s.type == "f32" and not s.global
end

-- Bits that a value takes in memory: six have a byte, too.
local function stored (o) return o.bits == 6 and 8 or o.bits end

-- D has a matrix for each group where these split k, else B has. Rows of D may be anywhere, in
-- other GPUs' memory, too.
local function grid (ops, ragged, more, scatter)
  kernels("sm80_scaled_" .. ragged .. (scatter and "_scatter" or "")) {
    op       = ops,
    element  = scatter and { e4m3, e5m2, i8 }
               or { e4m3, e5m2, e2m3, e3m2, e2m1, i8, i4, u4, u8, bf16, f16 },
    scale    = scatter and "blocked" or { "none", "blocked" },
    layout   = ragged == "m" and not scatter and { "tn", "nn" } or "tn", -- nn: w's rowwise tensor
    ragged   = ragged,
    epilogue = "scale",
    arch     = { "sm_80", "sm_90a", "sm_100f", "sm_120a" },
    template = "sm80/gemm_scaled.cu",
    params   = table.join(params, more, scatter or {}),

    axis "tile" { {64, 128, 64} },
    scatter and axis "scatter" { "scatter_d" }
             or derive "scatter" "none",
    derive "scales" "expanded", -- "native": see sm120_scaled.lua

    -- 2 x 2 warps.
    derive "threads" (4 * 32),
    derive "warp"    (function (v) return { v.tile.m // 2, v.tile.n // 2 } end),
    derive "turned"  (false),

    -- The type of dequantized codes: that of values as they are; scaled ones need bf16's range, and
    -- f16 holds all others.
    derive "dequantized" (function (v)
      if v.a.type == "f16" or v.b.type == "f16" then return "f16" end
      local wide = v.a.type == "bf16" or v.b.type == "bf16" or dequantizes(v.a) or dequantizes(v.b)
      return wide and "bf16" or "f16"
    end),

    derive "stages" (3),
    derive "smem"   (function (v)
      return v.stages * (v.tile.m * (v.tile.k * stored(v.a) // 8 + 16) +
                         (v.b.major == "mn" and v.tile.k * (v.tile.n * stored(v.b) // 8 + 16)
                          or v.tile.n * (v.tile.k * stored(v.b) // 8 + 16)))
    end),
    derive "ctas"   (2),
    without "a_global" (function (v) return not v.a.scale or not v.a.scale.global end),
    without "b_global" (function (v) return not v.b.scale or not v.b.scale.global end),
    reject "rows that go anywhere are of codes with scales in fp32, of one level"
      (function (v) return scatter ~= nil and not (is_factor(v.a) and is_factor(v.b)) end),
  }
end

grid({ "fprop", "dgrad" }, "m", { "b_group_stride" })
grid({ "fprop", "dgrad" }, "m", { "b_group_stride" }, { "scatter", "addresses" })
grid("wgrad", "k", { "c_group_stride", "d_group_stride", "c_pointers", "d_pointers" })

-- SPDX-License-Identifier: Apache-2.0
