-- Products of codes of four bits with FP8 on Hopper's FP8 tensor cores: codes become e4m3 in
-- registers, relative to a power of two for 128 values of k. Paths are chosen by a recipe's fields.

local AHEAD = 4 -- steps of 128 k for which scales are on their way
local SLOTS = 8 -- words of four scales that a row has on its way: a power of two, and AHEAD + 2

local function slab_row (v) return v.tile.n // 8 * v.d.bytes end

-- Bytes of shared memory: alignment, tile queue and barriers aside, slabs and scales; one stage.
local function fixed_memory (v)
  return 2 * KiB + 8 * v.slabs * 16 * slab_row(v) + v.tile.n * SLOTS * 4
end
local function stage_memory (v) return v.tile.m * v.tile.k + v.tile.n * v.tile.k // 2 end

-- y = x wᵀ: rows of A and D in groups, one matrix B for each.
kernels "sm90_rebased_m" {
  op = "fprop", element = { e4m3, e2m1 }, scale = { "row", "block" }, layout = "tn", ragged = "m",
  arch = "sm_90a", template = "sm90/gemm_rebased.cu",
  params = { "a_map", "b_map", "b_pointer_map", "d_map", "d_ragged_map", "b_pointers", "a_sf",
             "b_sf", "b_sf_stride", "b_sf_group_stride", "first_dims", "offsets", "sizes_bytes",
             "groups", "m", "n", "k", "band", "error", "noop" },

  axis "schedule" { "cooperative" },
  axis "tile"     { {32, 256, 128}, {64, 256, 128}, {128, 128, 128} },
  axis "cluster"  { {1, 1} },
  derive "addend" (function () return "none" end),
  derive "microbatches" (function () return 1 end),
  derive "scheduler_rolled" (function () return true end), -- see sm90_gemm.lua
  derive "rolled" (function () return false end),
  derive "whole" (function () return false end),
  derive "pair" (function () return false end),
  derive "turned" (function () return true end),
  derive "quantize" (function () return "pass" end),
  derive "gather" (function () return "none" end),
  derive "dequantize" (function () return "rebased" end),
  derive "wide" (function (v) return v.b.scale.as end),
  derive "factors" (function () return "row" end),
  derive "a_runs" (function () return false end),
  derive "b_strategy" (function () return "registers" end),
  derive "bytes" (function () return 1 end),
  derive "ahead" (function () return AHEAD end),
  derive "word_slots" (function () return { 0, SLOTS } end),

  derive "split" (function () return "n" end),
  derive "threads" (function () return 3 * 128 end),
  derive "mma_n" (function (v) return v.tile.m end),
  derive "registers" (function () return { 40, 232 } end),
  derive "store" (function () return "warps" end),
  derive "slabs" (function () return 2 end),
  derive "stages" (function (v)
    return math.min((227 * KiB - fixed_memory(v)) // stage_memory(v), 8)
  end),
  derive "smem" (function (v) return fixed_memory(v) + v.stages * stage_memory(v) end),
  -- As for tiles whose time is proportional to their tokens.
  derive "longest_first" (function () return 1 end),

  derive "a_box" (function (v) return { v.tile.k, v.tile.m } end),
  derive "b_box" (function (v) return { v.tile.k, v.tile.n } end),
  derive "d_box" (function (v) return { slab_row(v) // v.d.bytes, 16 } end),
  derive "d_swizzle" (function (v) return slab_row(v) end),
  derive "a_swizzle" (function () return 128 end),
  derive "b_swizzle" (function () return 64 end),

  requires "n % 8 == 0" "rows of D must start at multiples of 16 bytes",
  requires "m <= 2147483136" "rows of a tile are counted in 32 bits",
  requires "(m / 64 + groups) * (n / 128 + 1) < 2147483648" "tiles are counted in 31 bits",
  reject "only where a recipe says so (as = e4m3) are blocks near enough to become e4m3"
    (function (v) return not v.b.scale.as end),
  reject "A must be e4m3 with an fp32 scale for each row, and sums promoted every 128 steps of k"
    (function (v)
      local a = v.a.scale
      return v.a.type ~= "e4m3" or a.span ~= "row" or a.type ~= "f32" or v.promote ~= 128
    end),
  reject "a tile has 128 columns, or 256 if it has 64 rows at most, and 128 values of k"
    (function (v)
      local rows = v.tile.m % 8 == 0 and v.tile.m <= (v.tile.n == 256 and 64 or 128)
      return not rows or v.tile.n ~= 128 and v.tile.n ~= 256 or v.tile.k ~= 128
    end),
}

-- SPDX-License-Identifier: Apache-2.0
