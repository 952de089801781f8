-- Products of packed weights on Hopper's tensor cores, which take them from registers: the weights
-- are the tensor cores' rows, the tokens are multiplied as they are copied. Next to tokens in bf16
-- or f16 codes become that; next to FP8 those of four bits become e4m3, relative to a power of two
-- for 128 values of k. Paths are chosen by a recipe's fields.

local AHEAD = 8 -- steps of 64 k for which scales are on their way
local SLABS = 2

local function along (v) return v.b.major == "k" end

-- Words of scales that a row has on its way, and those that a step needs: a power of two, so that
-- nothing is divided. Across, each step's rows have one.
local function word_slots (v)
  if not v.b.scale then return 0 end
  local k, slots = along(v) and 4 // v.b.scale.bytes * v.b.scale.k or 64, 4
  while slots < (v.ahead * 64 + k - 1) // k + (along(v) and 2 or 1) do slots = 2 * slots end
  return slots
end

local function activates (v) return v.epilogue == "activate" end
local function halves (v) return activates(v) and v.operands == "halves" end
local function warps (v) return v.threads // 32 - 4 end -- that multiply
local function slab_row (v) return activates(v) and 16 or v.tile.n // warps(v) * v.d.bytes end
local function slabs (v) return activates(v) and 4 or SLABS end -- of 32 rows of p, and of results

-- Bytes of shared memory: alignment, tile queue and barriers aside, slabs and scales; one stage.
local function fixed_memory (v)
  local rows = activates(v) and 32 or 16
  return 2 * KiB + warps(v) * slabs(v) * rows * slab_row(v) + v.word_rows * v.word_slots[2] * 4
end
local function stage_memory (v)
  return v.bytes * v.tile.m * v.tile.k + v.tile.n * v.tile.k * (v.b.bits == 4 and 4 or 8) // 8
end

-- Stages, and as many as would do; the rest is the same for all.
local function common (most)
  return
  derive "stages" (function (v)
    return math.min((227 * KiB - fixed_memory(v)) // stage_memory(v), most)
  end),
  derive "smem" (function (v) return fixed_memory(v) + v.stages * stage_memory(v) end),
  derive "addend" "none",
  derive "microbatches" (1),
  derive "scheduler_rolled" (true), -- see sm90_gemm.lua
  derive "rolled" (false),
  derive "whole" (false),
  derive "pair" (false),
  derive "turned" (true),
  derive "quantize" "pass",
  derive "gather" "none",
  derive "a_runs" (false),
  derive "b_strategy" "registers",
  derive "split" "n",
  derive "mma_n" (function (v) return v.tile.m end),
  derive "registers" (function (v)
    if v.threads > 4 * 128 then return { 40, 104 } end
    if v.threads > 3 * 128 then return { 40, 152 } end
    return halves(v) and { 56, 224 } or { 40, 232 }
  end),
  derive "store" "warps",
  derive "slabs" (slabs),
  derive "longest_first" (1), -- a tile's time is proportional to its tokens

  -- Boxes of 64 tokens, of which a tile copies those that its group has.
  derive "a_box" (function (v) return { v.tile.k, math.min(v.tile.m, 64) } end),
  derive "b_box" (function (v)
    return along(v) and { v.tile.k, v.tile.n // (halves(v) and 2 or 1) } or { v.tile.n, v.tile.k }
  end),
  derive "d_box" (function (v)
    return { slab_row(v) // v.d.bytes, activates(v) and 32 or 16 }
  end),
  derive "d_swizzle" (function (v) return activates(v) and 0 or slab_row(v) end),
  derive "a_swizzle" (128),
  derive "b_swizzle" (function (v) return v.packed_row end),

  requires "n % 8 == 0" "rows of D must start at multiples of 16 bytes",
  requires "n <= 2147483136" "columns of a tile are counted in 32 bits",
  requires "m <= 2147483136" "rows of a tile are counted in 32 bits"
end

-- Weights as bf16 or f16, in registers. Kernels for few tokens have it in their names.
local function weights (few)
  return
  few and axis "dequantize" { "weights" } or derive "dequantize" "weights",
  -- A warpgroup copies, others multiply 64 rows of weights each: two next to many tokens, whose
  -- sums take the registers, three next to 128, four next to 64.
  derive "threads" (function (v) return (1 + v.tile.n // 64) * 128 end),
  derive "becomes" (function (v) return v.a.type end),
  derive "wide" (function (v) return v.a.type end),
  derive "factors" (function (v)
    return v.b.scale and v.b.scale.global and "global" or "none"
  end),
  -- Powers of two that sums lack, where something multiplies them anyway: scales of bf16 are too
  -- small for codes that stand for values 2^126 too small, times a scale of e4m3.
  derive "lowered" (function (v)
    local s = v.b.scale
    return s and v.factors == "global" and v.b.type == "e2m1" and s.type == "e4m3" and 9 or 0
  end),
  derive "bytes" (2),
  derive "span" (1),
  derive "ahead" (function (v) return along(v) and AHEAD or AHEAD - 1 end),
  derive "word_slots" (function (v) return { 0, word_slots(v) } end),
  -- Rows that have scales on their way: across, each warp fetches all rows of a step.
  derive "word_rows" (function (v) return along(v) and v.tile.n or 8 * v.tile.k end),
  -- Bytes of a row of codes in a stage.
  derive "packed_row" (function (v)
    return (v.b.bits == 4 and 1 or 2) * (along(v) and v.tile.k or v.tile.n) // 2
  end),

  -- A tile of many tokens often has fewer: products of half of them for those.
  derive "few" (function (v) return v.tile.m > 64 and v.tile.m // 2 or 0 end),

  requires "(m / 64 + groups) * (n / 128 + 1) < 2147483648" "tiles are counted in 31 bits",
  without "b_global" (function (v) return v.factors ~= "global" end),
  reject "tokens must be bf16 or f16 without scales, and weights codes with them"
    (function (v)
      return v.a.scale ~= false or v.a.type ~= "bf16" and v.a.type ~= "f16" or not v.b.scale
    end),
  reject "next to f16 only e4m3, e2m1 and integers have instructions of their own"
    (function (v)
      local type = v.b.type
      return v.a.type == "f16" and not v.b.integer and type ~= "e4m3" and type ~= "e2m1"
    end),
  reject "scales in fp32 are factors of sums, not of values"
    (function (v) return not v.b.scale.of_values end),
  reject "codes of floats times scales of as many digits have no instructions of their own"
    (function (v)
      local s = v.b.scale
      return v.a.type == "bf16" and not v.b.integer
             and (s.type == "f16" or s.type == "f32" and v.b.type ~= "e4m3") or false
    end),
  reject "across rows two steps of k share a byte of codes of four bits with scales row by row"
    (function (v)
      local s = v.b.scale
      return not along(v) and (v.b.bits ~= 4 or s.lines > 1 or s.type == "f32") or false
    end),
  reject "scales are of blocks, row by row, of 16 k at least, and four bytes at most for 64 k"
    (function (v)
      local s = v.b.scale
      return s.span ~= "block" or s.order ~= "rows" or s.k % 16 ~= 0 or s.bytes * 64 > 4 * s.k
    end),
  reject "a tile has 128 columns next to 128 to 256 rows, 192 next to 128 or 256 next to 64, 64 k"
    (function (v)
      local m, n = v.tile.m, v.tile.n
      local many = n == 128 and m >= 128 and m <= 256 and m % 32 == 0
      local few = m == 128 and n == 192 or m == 64 and n == 256
      return not many and not few or v.tile.k ~= 64
    end),
  common(12)
end

local maps = { "a_map", "b_map", "b_pointer_map", "d_map", "d_ragged_map" }
local given = { "b_pointers", "b_sf", "b_sf_stride", "b_sf_group_stride", "b_global", "first_dims",
                "offsets", "sizes_bytes", "groups", "m", "n", "k", "band", "error", "noop" }
local join = table.join

local tiles = { many = { {256, 128, 64} }, few = { {64, 256, 64}, {128, 192, 64} } } -- of tokens

-- y = x wᵀ and dx = dy w: rows of A and D in groups, one matrix B for each. One tensor serves
-- fprop, whose k goes along its rows, and dgrad, whose k goes across them.
for tokens, all in pairs(tiles) do
  local few = tokens == "few"

  kernels(few and "sm90_few_m" or "sm90_weights_m") {
    op = few and "fprop" or { "fprop", "dgrad" }, layout = few and "tn" or { "tn", "nn" },
    element = { bf16, f16, e4m3, e5m2, e2m3, e3m2, e2m1, i4, u4 },
    scale = { "none", "block" },
    ragged = "m", arch = "sm_90a", template = "sm90/gemm_weights.cu", params = join(maps, given),

    axis "schedule" { "cooperative" },
    axis "tile"     (all),
    axis "cluster"  { {1, 1} },
    weights(few)
  }
end

-- y = activation(x wᵀ + bias), times a number for each row: both operands of a result are sums of
-- one thread, as the rows of B that its registers hold make them.
local operands = {
  one    = { join({ "none" }, activations.plain), { 0 } },
  halves = { join(activations.gated), { 0 } },
  runs   = { join(activations.gated), { 1, 8, 32 } },
}

local function activate (operand, axes, tokens)
  local few = tokens == "few"

  kernels((few and "sm90_few" or "sm90_weights_m") .. "_activate_" .. operand) {
    op = "fprop", element = { bf16, f16, e4m3, e2m1, i4, u4 }, scale = { "none", "block" },
    layout = "tn", ragged = "m", epilogue = "activate", d = { bf16, f16 }, arch = "sm_90a",
    template = "sm90/gemm_weights.cu",
    params = join(maps, { "p_map", "p_ragged_map", "alpha", "scalar_step", "bias", "saved",
                          "probability", "limit", "slope", "shift" }, given),

    axis "activation" (axes[1]),
    axis "interleave" (axes[2]),
    axis "schedule" { "cooperative" },
    axis "tile"     (tiles[tokens]),
    axis "cluster"  { {1, 1} },
    derive "operands" (operand),
    without "limit slope shift" (function (v) return v.activation ~= "clamped_swiglu" end),
    reject "runs of 8 leave four warpgroups too few registers"
      (function (v) return v.tile.n == 256 and v.interleave == 8 end),
    weights(few)
  }
end

for operand, axes in pairs(operands) do
  activate(operand, axes, "many")
  activate(operand, axes, "few")
end

-- The same with low-rank adapters, as more steps of k of 16-bit values: t Bᵀ or t A.
kernels "sm90_weights_m_lora" {
  op = { "fprop", "dgrad" }, element = { bf16, f16, e2m1, i4, u4 }, scale = { "none", "block" },
  layout = { "tn", "nn" }, ragged = "m", d = { bf16, f16 }, arch = "sm_90a",
  template = "sm90/gemm_weights.cu",
  params = join(maps, { "extra_a_map", "extra_b_map" }, given, { "extra_k" }),

  axis "extra"    { "lora" },
  axis "schedule" { "cooperative" },
  axis "tile"     { {256, 128, 64} },
  axis "cluster"  { {1, 1} },
  weights()
}

-- y = x wᵀ of weights of four bits and FP8.
kernels "sm90_rebased_m" {
  op = "fprop", element = { e4m3, e2m1 }, scale = { "row", "block" }, layout = "tn", ragged = "m",
  arch = "sm_90a", template = "sm90/gemm_weights.cu",
  params = { "a_map", "b_map", "b_pointer_map", "d_map", "d_ragged_map", "b_pointers", "a_sf",
             "b_sf", "b_sf_stride", "b_sf_group_stride", "first_dims", "offsets", "sizes_bytes",
             "groups", "m", "n", "k", "band", "error", "noop" },

  axis "schedule" { "cooperative" },
  axis "tile"     { {32, 256, 128}, {64, 256, 128}, {128, 128, 128} },
  axis "cluster"  { {1, 1} },
  derive "dequantize" "rebased",
  derive "threads" (3 * 128),
  derive "wide" (function (v) return v.b.scale.as end),
  derive "factors" "row",
  derive "bytes" (1),
  derive "ahead" (AHEAD // 2), -- steps of 128 k
  derive "word_slots" { 0, AHEAD }, -- a word is a step's
  derive "word_rows" (function (v) return v.tile.n end),
  derive "packed_row" (function (v) return v.tile.k // 2 end),

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
  common(8)
}

-- SPDX-License-Identifier: Apache-2.0
