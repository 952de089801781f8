-- Products whose tensor cores take the scales of blocks, by mma.sync of sm_120a: codes are
-- multiplied as they are. Paths are chosen by a recipe's fields, never by its name.

local params = { "a", "b", "c", "d", "a_stride", "b_stride", "c_stride", "d_stride",
                 "a_sf", "b_sf", "a_sf_stride", "b_sf_stride", "a_sf_group_stride",
                 "b_sf_group_stride", "a_global", "b_global", "alpha", "beta", "scalar_step",
                 "first_dims", "offsets", "sizes_bytes", "groups", "m", "n", "k", "band", "error",
                 "noop" }

-- Bytes of a row of a stage, and of its scales: one word for four of them.
local ROW = 128
local function bits (o) return o.bits == 4 and 4 or 8 end -- six have a byte, too
local function words (v) return v.tile.k // (4 * v.a.scale.k) end

-- The kind of product, or nil where there is none.
local function kind (v)
  local a, b = v.a.scale, v.b.scale
  if a.type ~= b.type or a.k ~= b.k or bits(v.a) ~= bits(v.b) then return nil end
  if a.type == "e4m3" then return bits(v.a) == 4 and a.k == 16 and "mxf4nvf4" or nil end
  if a.type ~= "e8m0" or a.k ~= 32 then return nil end
  return bits(v.a) == 4 and "mxf4" or "mxf8f6f4"
end

-- D has a matrix for each group where these split k, else B has.
local function grid (ops, ragged, more)
  kernels("sm120_scaled_" .. ragged) {
    op       = ops,
    element  = { e4m3, e5m2, e2m3, e3m2, e2m1 },
    scale    = "block",
    layout   = "tn",
    ragged   = ragged,
    epilogue = "scale",
    arch     = "sm_120a",
    template = "sm80/gemm_scaled.cu",
    params   = table.join(params, more),

    axis "scales" { "native" }, -- "expanded": see sm80_scaled.lua
    axis "tile"   { {64, 128, 128}, {128, 128, 128}, {64, 128, 256}, {128, 128, 256} },

    derive "kind" (function (v) return kind(v) or "none" end),
    derive "dequantized" "none",
    derive "dequantize"  "none",

    -- 2 x 4 warps. The sums of each have 32 columns: one word of scales of B in each lane, and
    -- one of A for 32 rows.
    derive "threads" (8 * 32),
    derive "warp"    (function (v) return { v.tile.m // 2, v.tile.n // 4 } end),
    derive "turned"  (false),

    -- A CTA has the 99 KiB of shared memory that one may have there.
    derive "stages" (function (v) return v.tile.m == 64 and 3 or 2 end),
    derive "smem"   (function (v)
      return v.stages * (v.tile.m + v.tile.n) * (ROW + 16 + 4 * words(v))
    end),
    derive "ctas"   (1),
    without "a_global" (function (v) return not v.a.scale.global end),
    without "b_global" (function (v) return not v.b.scale.global end),

    reject "tensor cores take e8m0 scales of 32 values, and e4m3 ones of 16 values of e2m1"
      (function (v) return v.kind == "none" end),
    reject "a stage has 128 bytes of each row"
      (function (v) return v.tile.k * bits(v.a) ~= 8 * ROW end),
    reject "a tile has 64 or 128 rows and 128 columns"
      (function (v) return v.tile.m ~= 64 and v.tile.m ~= 128 or v.tile.n ~= 128 end),
  }
end

grid({ "fprop", "dgrad" }, "m", { "b_group_stride" })
grid("wgrad", "k", { "c_group_stride", "d_group_stride", "c_pointers", "d_pointers" })

-- SPDX-License-Identifier: Apache-2.0
