-- Products of values with a scale for each block on Blackwell's tensor cores, which take codes and
-- scales as they are. Paths are chosen by a recipe's fields, never by its name.

-- Bytes of a row of a stage; words of four scales that it has.
local ROW = 128
local function words (v) return v.tile.k // (4 * v.a.scale.k) end

-- The kind of product, or nil where there is none.
local function kind (v)
  local a, b = v.a.scale, v.b.scale
  if a.type ~= b.type or a.k ~= b.k or v.a.bits ~= v.b.bits then return nil end
  if a.type == "e4m3" then return v.a.bits == 4 and a.k == 16 and "mxf4nvf4" or nil end
  if a.type ~= "e8m0" or a.k ~= 32 then return nil end
  return v.a.bits == 4 and "mxf4" or "mxf8f6f4"
end

-- Bytes of shared memory: alignment and barriers aside, the slabs; one stage of A and B, and of
-- scales of 128 lines and as many spots.
local function slab_memory (v) return 1 * KiB + 4 * v.slabs * 16 * v.d_swizzle + 512 end
local function stage_memory (v) return (v.tile.m + v.tile.n) * ROW + 2 * words(v) * 512 end

local function common ()
  return
  derive "kind" (function (v) return kind(v) or "none" end),
  derive "scales" (function () return "native" end),
  derive "cluster" (function () return { 1, 1 } end),
  derive "schedule" (function () return "overlapped" end), -- stores behind products
  derive "gather" (function () return "none" end),
  derive "quantize" (function () return "pass" end),
  derive "dequantize" (function () return "none" end),
  derive "microbatches" (function () return 1 end),
  derive "factors" (function (v)
    return (v.a.scale.global or v.b.scale.global) and "global" or "none"
  end),
  derive "rolled" (function () return true end), -- see sm90_gemm.lua
  derive "scheduler_rolled" (function () return true end),
  derive "whole" (function () return false end),
  derive "store" (function () return "warps" end),
  derive "turned" (function (v) return v.ragged == "m" end), -- see sm100_gemm.lua

  -- Scales of a rowwise tensor that begin anew with each group: where, follows from the groups
  -- before.
  derive "a_runs" (function (v)
    return v.ragged == "m" and (v.a.scale.apart or v.a.scale.rows > 1)
  end),

  -- Warps that copy, multiply, check sizes; four that store; four that fetch scales.
  derive "threads" (function () return 12 * 32 end),

  -- Words of the tensor cores' memory: two tiles' sums, and a stage's scales.
  derive "tensor_words" (function (v)
    return (v.turned and v.tile.m or v.tile.n) <= 64 and 256 or 512
  end),

  derive "d_box" (function (v) return { v.turned and 32 or 128 // v.d.bytes, 16 } end),
  derive "d_swizzle" (function (v) return v.d_box[1] * v.d.bytes end),
  derive "slabs" (function () return 4 end),
  derive "stages" (function (v) return (227 * KiB - slab_memory(v)) // stage_memory(v) end),
  derive "smem" (function (v) return slab_memory(v) + v.stages * stage_memory(v) end),

  -- The longest first, so that the last tiles are short.
  derive "longest_first" (function () return 1 end),

  derive "a_box" (function (v) return { v.tile.k, v.tile.m } end),
  derive "b_box" (function (v) return { v.tile.k, v.tile.n } end),

  requires "n % 8 == 0" "rows of D must start at multiples of 16 bytes",

  without "a_global" (function (v) return not v.a.scale.global end),
  without "b_global" (function (v) return not v.b.scale.global end),

  reject "tensor cores take e8m0 scales of 32 values, and e4m3 ones of 16 values of e2m1"
    (function (v) return v.kind == "none" end),
  reject "a row of a stage has 128 bytes"
    (function (v) return v.tile.k * v.a.bits ~= 8 * ROW end),
  reject "of 128 rows the tensor cores have room for two tiles' sums of 64 or 128 columns, and scales"
    (function (v)
      local lines, spots = v.tile.m, v.tile.n
      if v.turned then lines, spots = spots, lines end
      return lines ~= 128 or spots ~= 64 and spots ~= 128
    end)
end

-- Six bits would have to be packed, not one in a byte.
local element = { e4m3, e5m2, e2m1 }
local sizes = { "first_dims", "offsets", "sizes_bytes", "groups", "m", "n", "k", "band", "error",
                "noop" }
local added = { "c", "c_pointers", "c_stride", "c_group_stride" }
local scalars = { "alpha", "beta", "scalar_step" }
local sf = { "a_sf", "a_sf_stride", "a_sf_group_stride", "a_global",
             "b_sf", "b_sf_stride", "b_sf_group_stride", "b_global" }

local join = table.join

-- y = x wᵀ and dx = dy w: rows of A and D in groups, one matrix B for each.
local rows = { "a_map", "b_map", "b_pointer_map", "d_map", "d_ragged_map", "b_pointers" }

for epilogue, more in pairs { store = {}, scale = join(added, scalars) } do
  kernels("sm100_scaled_m_" .. epilogue) {
    op = { "fprop", "dgrad" }, element = element, scale = "block", layout = "tn", ragged = "m",
    epilogue = epilogue, arch = "sm_100f", template = "sm100/gemm_scaled.cu",
    params = join(rows, sf, more, sizes),

    axis "tile" { {64, 128, 128}, {128, 128, 128}, {64, 128, 256}, {128, 128, 256} },
    derive "addend" (function () return epilogue == "store" and "none" or "read" end),

    requires "m <= 2147483136" "rows of a tile are counted in 32 bits",
    requires "(m / 64 + groups) * (n / 128 + 1) < 2147483648" "tiles are counted in 31 bits",
    common()
  }
end

-- dw = dyᵀ x: k in groups that begin at multiples of 128, one matrix D for each.
local tokens = { "a_map", "b_map", "d_map", "d_pointer_map", "d_pointers" }

for name, one in pairs { add   = { { "store", "add" }, added },
                         scale = { "scale", join(added, scalars) } } do
  kernels("sm100_scaled_k_" .. name) {
    op = "wgrad", element = element, scale = "block", layout = "tn", ragged = "k",
    epilogue = one[1], arch = "sm_100f", template = "sm100/gemm_scaled.cu",
    params = join(tokens, sf, one[2], sizes),

    axis "tile" { {128, 64, 128}, {128, 128, 128}, {128, 64, 256}, {128, 128, 256} },
    derive "addend" (function (v)
      if v.epilogue == "store" then return "none" end
      return v.epilogue == "add" and v.d.bytes == 4 and "reduce" or "read"
    end),
    without "c c_pointers c_stride c_group_stride" (function (v) return v.addend ~= "read" end),

    requires "k <= 2147352576" "steps of k are counted in 32 bits",
    requires "groups * (m / 128 + 1) * (n / 64 + 1) < 2147483648" "tiles are counted in 31 bits",
    common()
  }
end

-- SPDX-License-Identifier: Apache-2.0
