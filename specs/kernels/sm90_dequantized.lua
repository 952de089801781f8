-- Products of values with a scale for each block on Hopper's tensor cores, which know none: they
-- multiply a code times its scale, rounded to bf16. Paths are chosen by a recipe's fields.

local AHEAD = 4 -- steps of 64 k for which scales are on their way

-- Bytes that 64 codes have where they are copied: six bits have a byte, too.
local function row_bytes (o) return o.bits == 4 and 32 or o.bits == 16 and 128 or 64 end

-- Words of four scales that a row has on its way, and those from which a stage's are taken: one
-- more than it needs. Counted by stages, a power of two, so that nothing is divided.
local function word_slots (o, span)
  if not o.scale then return 0 end
  local k = 4 // o.scale.bytes * o.scale.k
  local words = (AHEAD * 64 + k - 1) // k + (span * 64 + k - 1) // k + 1
  if span == 1 then return words end
  local slots = 4
  while slots < words do slots = 2 * slots end
  return slots
end

-- The step that turns an operand into bf16: before it is copied, in shared memory, or in registers.
local function strategy (o, in_registers)
  if not o.scale then return "copied" end
  return in_registers and "registers" or "dequantized"
end

-- D's columns that a warp has where rows of B are the tensor cores' rows: side by side.
local function turned_columns (v) return v.tile.n // 8 end
local function slab_row (v)
  return v.dequantize == "swapped" and turned_columns(v) * v.d.bytes or 128
end

-- Bytes of shared memory: alignment, tile queue and barriers aside, slabs and scales; one
-- stage of multiplied values; one of copied codes.
local function fixed_memory (v)
  local slabs = 8 * v.slabs * (16 * slab_row(v) + (v.addend == "fetch" and 8 or 0))
  local words = v.word_slots[1] * v.tile.m + v.word_slots[2] * v.tile.n
  return 2 * KiB + v.marks * 9 // 8 + slabs + words * 4
end
local function stage_memory (v)
  local rows = (v.a_strategy == "dequantized" and v.tile.m or 0)
             + (v.b_strategy == "dequantized" and v.tile.n or 0)
  return v.span * rows * v.tile.k * 2
end
local function packed_memory (v)
  return v.span * (v.packed_row[1] * v.tile.m + v.packed_row[2] * v.tile.n)
end

local function common (wide)
  return
  -- The type of dequantized codes; f16 where the scales of each operand are close: see
  -- templates/dequantize/f16.c. "either": f16 if those of a tile are, which its own warps see.
  wide and axis "wide" { wide } or derive "wide" "bf16",
  derive "becomes" (function (v) return v.wide end),
  derive "marks" (function (v) return v.wide == "either" and 1024 or 0 end), -- of tiles again
  derive "microbatches" (1),
  derive "scheduler_rolled" (true), -- see sm90_gemm.lua
  derive "rolled" (false),
  derive "whole" (false),
  derive "pair" (false),
  derive "turned" (function (v) return v.dequantize == "swapped" end),
  derive "quantize" "pass",
  derive "gather" "none",
  derive "factors" (function (v)
    local a, b = v.a.scale, v.b.scale
    if v.wide == "f16" then return "bases" end
    return (a and a.global or b and b.global) and "global" or "none"
  end),
  derive "bytes" (2),
  -- Steps of k in a stage: where few products wait for much that is neither, it is paid half as
  -- often.
  derive "span" (function (v) return v.dequantize == "swapped" and 2 or 1 end),
  derive "ahead" (function (v) return AHEAD // v.span end), -- stages
  derive "a_strategy" (function (v)
    if v.dequantize == "swapped" then return "dequantized" end -- bf16, too: the others' order
    return strategy(v.a, v.dequantize == "registers")
  end),
  derive "b_strategy" (function (v) return strategy(v.b, v.dequantize == "swapped") end),
  -- Codes of four bits are cheaper to dequantize at a distance of four; the other operand has the
  -- same order then.
  derive "apart" (function (v)
    local held = v.dequantize == "registers" and v.a or v.dequantize == "swapped" and v.b
    return held and held.bits == 4 or false
  end),
  -- Powers of two that sums of them then lack, where something multiplies the sums anyway.
  derive "lowered" (function (v)
    local power = 0
    for _, o in ipairs { v.a, v.b } do
      if v.dequantize == "swapped" and v.b.type == "e2m1" and v.factors == "global"
         and o.type == "e2m1" and o.scale and o.scale.type == "e4m3" then
        power = power + 9
      end
    end
    return power
  end),
  derive "packed_row" (function (v) return { row_bytes(v.a), row_bytes(v.b) } end),
  derive "word_slots" (function (v)
    return { word_slots(v.a, v.span), word_slots(v.b, v.span) }
  end),

  -- Scales of a rowwise tensor that begin anew with each group: where, follows from the groups
  -- before.
  derive "a_runs" (function (v)
    return v.ragged == "m" and v.a.scale and (v.a.scale.apart or v.a.scale.rows > 1) or false
  end),

  -- Two warpgroups multiply, one copies, and one dequantizes.
  derive "split" (function (v)
    return (v.tile.m < 128 or v.dequantize == "swapped") and "n" or "m"
  end),
  derive "threads" (4 * 128),

  -- 128 columns at a time: of so many threads the compiler gives none registers for more.
  derive "mma_n" (function (v) return v.dequantize == "swapped" and v.tile.m or 128 end),
  -- If a tile may hold more tokens than 64 it often does not: products of 64 for those.
  derive "few" (function (v) return v.dequantize == "swapped" and v.tile.m > 64 and 64 or 0 end),
  derive "registers" (function (v)
    return v.dequantize ~= "shared" and { 48, 200, 64 } or { 48, 184, 96 }
  end),
  derive "packed_readers" (function (v)
    local direct = v.a_strategy ~= "dequantized" or v.b_strategy ~= "dequantized"
    return 4 + (direct and 8 or 0)
  end),

  -- Two stages of multiplied values take turns; a third is used if packed ones do not need its
  -- room.
  derive "store" "warps",
  derive "slabs" (function (v) return v.addend == "fetch" and 4 or 2 end),
  derive "stages" (function (v)
    local room = 227 * KiB - fixed_memory(v)
    if v.span > 1 then return 2 end
    for stages = 4, 3, -1 do
      if (room - stages * stage_memory(v)) // packed_memory(v) >= 3 then return stages end
    end
    return 2
  end),
  derive "packed_stages" (function (v)
    local room = 227 * KiB - fixed_memory(v) - v.stages * stage_memory(v)
    return math.min(room // packed_memory(v), v.dequantize == "swapped" and 6 or 8)
  end),
  derive "smem" (function (v)
    return fixed_memory(v) + v.stages * stage_memory(v) + v.packed_stages * packed_memory(v)
  end),
  -- Also for tiles whose time is proportional to their tokens.
  derive "longest_first" (function (v)
    return (v.ragged == "k" or v.dequantize == "swapped") and 1 or 0
  end),

  derive "a_box" (function (v) return { v.tile.k, v.tile.m } end),
  derive "b_box" (function (v) return { v.tile.k, v.tile.n } end),
  derive "d_box" (function (v) return { slab_row(v) // v.d.bytes, 16 } end),
  derive "d_swizzle" (function (v) return slab_row(v) end),
  derive "a_swizzle" (function (v) return v.packed_row[1] end),
  derive "b_swizzle" (function (v) return v.packed_row[2] end),

  requires "n % 8 == 0" "rows of D must start at multiples of 16 bytes",

  without "a_global" (function (v) return not v.a.scale or not v.a.scale.global end),
  without "b_global" (function (v) return not v.b.scale or not v.b.scale.global end),

  reject "scales in fp32 are factors of sums, not of values"
    (function (v)
      local a, b = v.a.scale, v.b.scale
      return a and not a.of_values or b and not b.of_values or false
    end),
  reject "only weights next to values as they are may be integers or have scales of 16 or 32 bits"
    (function (v)
      local a, b = v.a, v.b
      local plain = not a.integer and not b.integer and (not a.scale or a.scale.bytes == 1)
                    and (not b.scale or b.scale.bytes == 1)
      return not plain and a.scale ~= false
    end),
  reject "scales stored column by column would be read a byte at a time"
    (function (v)
      local a, b = v.a.scale, v.b.scale
      return a and a.order == "columns" or b and b.order == "columns" or false
    end),
  reject "operands without scales are multiplied directly, and must be bf16"
    (function (v)
      return not v.a.scale and v.a.type ~= "bf16" or not v.b.scale and v.b.type ~= "bf16"
    end),
  reject "operands that are multiplied as copied need no registers"
    (function (v)
      return v.dequantize == "registers" and not v.a.scale
             or v.dequantize ~= "shared" and not v.b.scale
    end),
  reject "two fragments of B with sums of more rows leave too few registers: some would spill"
    (function (v) return v.dequantize == "swapped" and v.tile.m > 96 end),
  reject "a tile has 32, 64, 96, 128 or 256 rows, 128 or 256 columns, and 64 values of k"
    (function (v)
      local rows = v.tile.m <= 128 and v.tile.m % 32 == 0 or v.tile.m == 256
      return not rows or v.tile.n ~= 128 and v.tile.n ~= 256 or v.tile.k ~= 64
    end),
  reject "only swapped tiles have 32 or 96 rows, and 64 only those and shared ones of 256 columns"
    (function (v)
      local m = v.tile.m
      return v.dequantize ~= "swapped" and (m == 32 or m == 96)
             or m == 64 and (v.dequantize == "registers"
                             or v.dequantize == "shared" and v.tile.n < 256)
    end),
  reject "A with as many sums leaves too few registers to fetch C or for scales of e4m3"
    (function (v)
      local e4m3 = v.a.scale and v.a.scale.type == "e4m3"
      return v.dequantize == "registers" and v.tile.n == 256
             and (v.addend == "fetch" or v.ragged == "k" and e4m3)
    end),
  reject "fewer than 2 packed stages cannot hide the latency of TMA"
    (function (v) return v.packed_stages < 2 end)
end

local function ragged_m (wide)
  return
  requires "m <= 2147483136" "rows of a tile are counted in 32 bits",
  requires "(m / 64 + groups) * (n / 128 + 1) < 2147483648" "tiles are counted in 31 bits",
  common(wide)
end

-- Weights next to values as they are.
local function of_weights ()
  return
  reject "codes of floats times scales of as many digits have no instructions of their own"
    (function (v)
      local s = v.b.scale
      return s and not v.b.integer
             and (s.type == "f16" or s.type == "f32" and v.b.type ~= "e4m3") or false
    end),
  reject "scales of 64 steps of k are four bytes at most, of blocks, and row by row"
    (function (v)
      local s = v.b.scale
      return s and (s.span ~= "block" or s.bytes > 1 and (s.bytes * 64 > 4 * s.k
                                                          or s.order ~= "rows")) or false
    end),
  ragged_m()
end

local function ragged_k ()
  return
  requires "k <= 2147352576" "steps of k are counted in 32 bits",
  requires "groups * (m / 128 + 1) * (n / 128 + 1) < 2147483648" "tiles are counted in 31 bits",
  common()
end

local element = { e4m3, e5m2, e2m3, e3m2, e2m1, bf16 }
local weights = table.join(element, { i4, u4 }) -- next to which tokens have no scales
local sizes = { "first_dims", "offsets", "sizes_bytes", "groups", "m", "n", "k", "band", "error",
                "noop" }
local added = { "c", "c_pointers", "c_stride", "c_group_stride" }
local scalars = { "alpha", "beta", "scalar_step" }
local sf = { "a_sf", "a_sf_stride", "a_sf_group_stride", "a_global",
             "b_sf", "b_sf_stride", "b_sf_group_stride", "b_global" }

local f16 = table.join({ "bases" }, sizes)

local join = table.join

-- y = x wᵀ and dx = dy w: rows of A and D in groups, one matrix B for each.
local rows = { "a_map", "b_map", "b_pointer_map", "d_map", "d_ragged_map", "b_pointers" }

kernels "sm90_dequantized_m" {
  op = { "fprop", "dgrad" }, element = weights, scale = { "none", "block" }, layout = "tn",
  ragged = "m", arch = "sm_90a", template = "sm90/gemm_dequant.cu", params = join(rows, sf, sizes),

  axis "schedule" { "cooperative" },
  axis "tile"     { {32, 256, 64}, {64, 128, 64}, {64, 256, 64}, {96, 256, 64}, {128, 128, 64},
                    {128, 256, 64} },
  axis "cluster"  { {1, 1} },
  axis "dequantize"   { "shared", "registers", "swapped" },
  derive "addend" "none",
  of_weights()
}

-- The same with low-rank adapters, as more steps of k of 16-bit values: t Bᵀ.
kernels "sm90_dequantized_m_lora" {
  op = "fprop", element = { bf16, e2m1, i4, u4 }, scale = { "none", "block" }, layout = "tn",
  ragged = "m", d = bf16, arch = "sm_90a", template = "sm90/gemm_dequant.cu",
  params = join(rows, { "extra_a_map", "extra_b_map" }, sf, sizes, { "extra_k" }),

  axis "extra"    { "lora" },
  axis "schedule" { "cooperative" },
  axis "tile"     { {32, 256, 64}, {96, 256, 64} },
  axis "cluster"  { {1, 1} },
  axis "dequantize"   { "swapped" },
  derive "addend" "none",
  reject "tokens must be bf16 without scales, and weights codes with them"
    (function (v) return v.a.scale ~= false or v.a.type ~= "bf16" or not v.b.scale end),
  of_weights()
}

kernels "sm90_dequantized_m_scale" {
  op = { "fprop", "dgrad" }, element = weights, scale = { "none", "block" }, layout = "tn",
  ragged = "m", epilogue = "scale", arch = "sm_90a", template = "sm90/gemm_dequant.cu",
  params = join(rows, sf, added, scalars, sizes),

  axis "schedule" { "cooperative" },
  axis "tile"     { {128, 128, 64} },
  axis "cluster"  { {1, 1} },
  axis "dequantize"   { "shared", "registers" },
  derive "addend" "read",
  of_weights()
}

-- dw = dyᵀ x: k in groups that begin at multiples of 128, one matrix D for each.
local tokens = { "a_map", "b_map", "d_map", "d_pointer_map", "d_pointers" }

local tiles = { {128, 128, 64}, {128, 256, 64} }

for of, one in pairs { [""]       = { { "store", "add" }, added, tiles },
                       ["_fetch"] = { "add", {}, tiles, d = f32 },
                       ["_scale"] = { "scale", join(added, scalars), { {128, 128, 64} } } } do
  local function c_path (...)
    if of == "_fetch" then return axis "addend" { "fetch" }, ... end
    return
    derive "addend" (function (v)
      if v.epilogue == "store" then return "none" end
      return v.epilogue == "add" and v.d.bytes == 4 and "reduce" or "read"
    end),
    without "c c_pointers c_stride c_group_stride" (function (v) return v.addend ~= "read" end),
    ...
  end

  kernels("sm90_dequantized_k" .. of) {
    op = "wgrad", element = element, scale = "block", layout = "tn", ragged = "k",
    epilogue = one[1], d = one.d, arch = "sm_90a", template = "sm90/gemm_dequant.cu",
    params = join(tokens, sf, one[2], sizes),

    axis "schedule" { "cooperative" },
    axis "tile"     (one[3]),
    axis "cluster"  { {1, 1} },
    axis "dequantize"   { "shared", "registers" },
    c_path(
      reject "C with as many sums leaves too few registers: some would spill"
        (function (v) return v.addend == "read" and v.tile.n == 256 end),
      ragged_k())
  }
end

local function far_scales ()
  return reject "a scale that is no power of two would take digits that f16 needs"
    (function (v) return v.a.scale.type ~= "e8m0" or v.b.scale.type ~= "e8m0" end)
end

-- The same as f16, which takes two instructions for two codes instead of five.
kernels "sm90_dequantized_f16_m" {
  op = { "fprop", "dgrad" }, element = e4m3, scale = "block", layout = "tn",
  ragged = "m", arch = "sm_90a", template = "sm90/gemm_dequant.cu", params = join(rows, sf, f16),

  axis "schedule" { "cooperative" },
  axis "tile"     { {128, 128, 64}, {128, 256, 64} },
  axis "cluster"  { {1, 1} },
  axis "dequantize"   { "registers" },
  derive "addend" "none",
  far_scales(),
  ragged_m "f16"
}

kernels "sm90_dequantized_either_m" {
  op = { "fprop", "dgrad" }, element = e4m3, scale = "block", layout = "tn",
  ragged = "m", arch = "sm_90a", template = "sm90/gemm_dequant.cu", params = join(rows, sf, sizes),

  axis "schedule" { "cooperative" },
  axis "tile"     { {32, 256, 64}, {64, 256, 64}, {96, 256, 64} },
  axis "cluster"  { {1, 1} },
  axis "dequantize"   { "swapped" },
  derive "addend" "none",
  far_scales(),
  reject "a word of scales is looked at for a stage of 128 steps of k"
    (function (v) return v.a.scale.k ~= 32 or v.b.scale.k ~= 32 end),
  ragged_m "either"
}

-- SPDX-License-Identifier: Apache-2.0
