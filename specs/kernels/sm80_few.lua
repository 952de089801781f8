-- Products of few tokens and packed weights with mma.sync, which leaves a multiprocessor all of its
-- instructions: each code of the weights becomes 16 bits in registers, once, next to up to 64
-- tokens. The rows of the weights are the tensor cores' rows.

local SMEM = 99 * KiB -- that every GPU since sm_80 has

local function word_k (v) return 4 // v.b.scale.bytes * v.b.scale.k end

-- Words of scales that a row has on their way, and those that a stage needs: a power of two.
local function word_slots (v)
  if not v.b.scale then return 0 end
  local slots = 4
  while slots < (v.stages * v.tile.k + word_k(v) - 1) // word_k(v) + 2 do slots = 2 * slots end
  return slots
end

local function stage_memory (v)
  return v.tile.m * v.tile.k * 2 + v.tile.n * v.tile.k * v.b.bits // 8
end

-- Words of scales that are prepared for a stage, for a row of the weights.
local function factor_words (v)
  local s = v.b.scale
  return s and math.max(v.tile.k // s.k, 1) * (s.zeros and 2 or 1) or 0
end

kernels "sm80_few_m" {
  op       = "fprop",
  element  = { bf16, f16, e4m3, e2m1, i4, u4 },
  scale    = { "none", "block" },
  layout   = "tn",
  ragged   = "m",
  epilogue = { "scale", "activate" },
  arch     = { "sm_90a", "sm_100f", "sm_120a" }, -- sm_80 has no products of bf16x2
  template = "sm80/gemm_few.cu",
  params   = { "a", "b", "c", "d", "a_stride", "b_stride", "c_stride", "d_stride", "b_group_stride",
               "b_pointers", "b_sf", "b_sf_stride", "b_sf_group_stride", "b_global", "alpha",
               "beta", "scalar_step", "first_dims", "offsets", "sizes_bytes", "groups", "m", "n",
               "k", "band", "error", "noop", "bias", "saved", "saved_stride", "probability",
               "activation", "interleave", "limit", "slope", "shift" },

  axis "tile" { {16, 64, 256}, {16, 128, 256}, {16, 64, 128}, {16, 128, 128}, {32, 128, 128},
                {64, 128, 64} },
  axis "dequantize" { "few" },
  derive "becomes" (function (v) return v.a.type end),
  derive "wide" (function (v) return v.a.type end),
  derive "dequantized" (function (v) return v.a.type end),
  derive "turned" (true),
  derive "a_runs" (false),
  derive "b_strategy" "registers",
  derive "span" (1),

  -- Warps side by side along n.
  derive "threads" (4 * 32),
  derive "warp"    (function (v) return { v.tile.m, v.tile.n // 4 } end),

  -- CTAs on a multiprocessor, which hide each other's waits; stages that they have room for there,
  -- on sm_120a one CTA has all of it. Scales of 16 values, activations next to six CTAs, and 64
  -- tokens on sm_100f need more registers.
  derive "ctas" (function (v)
    local s = v.b.scale
    local small = s and (s.k < 32 or s.zeros and v.a.type == "f16")
    if v.arch == "sm_120a" then return 1 end
    if v.b.bits == 8 then return 2 end
    if v.tile.m > 32 and (small or v.arch == "sm_100f") then return 2 end
    if v.tile.m > 16 then return 3 end
    if v.tile.n > 64 then return small and 3 or 4 end
    return (small or v.epilogue == "activate") and 5 or 6
  end),
  derive "stages" (function (v)
    local room = (v.arch == "sm_120a" and SMEM or 224 * KiB) // v.ctas
    local given = v.b.bits == 4 and v.b.scale.k > 16 and 8 or 16 -- words of a row, at most
    local scales = v.tile.n * (given + factor_words(v)) * 4
    return math.min((room - scales) // stage_memory(v), 6)
  end),
  derive "ahead" (function (v) return v.stages - 1 end),

  -- Codes by half a word in place of a byte, where that is worth an order of tokens: of 16 at most.
  derive "half_words" (function (v) return v.b.bits == 4 and v.tile.m == 16 end),
  derive "word_slots" (function (v) return { 0, word_slots(v) } end),
  derive "smem" (function (v)
    return v.stages * stage_memory(v) + v.tile.n * (v.word_slots[2] + factor_words(v)) * 4
  end),

  -- Powers of two that sums lack, where something multiplies them anyway: see sm90_weights.lua.
  derive "lowered" (function (v)
    local s = v.b.scale
    return s and s.global and v.b.type == "e2m1" and s.type == "e4m3" and 9 or 0
  end),

  requires "k <= 33554431" "rows of weights in a tile are addressed in 32 bits",
  -- The activation and the interleaving of its operands are parameters: the rows of the weights are
  -- copied in such an order that every tile has both operands of its results.
  derive "activation" (function (v) return v.epilogue == "activate" and "any" or "none" end),
  without "c c_stride beta" (function (v) return v.epilogue == "activate" end),
  without "bias saved saved_stride probability activation interleave limit slope shift"
    (function (v) return v.epilogue ~= "activate" end),
  reject "fp32 results of a bias or an activation have a launch of their own"
    (function (v) return v.epilogue == "activate" and v.d.bytes == 4 end),

  without "b_global" (function (v) return not v.b.scale or not v.b.scale.global end),
  reject "fp32 results of 64 tokens would spill, but on Hopper"
    (function (v) return v.arch ~= "sm_90a" and v.tile.m > 32 and v.d.bytes == 4 end),
  reject "copies go on during products: a ring has two stages at least"
    (function (v) return v.stages < 2 end),
  reject "tokens must be bf16 or f16 without scales, and weights codes with them"
    (function (v)
      return v.a.scale ~= false or v.a.type ~= "bf16" and v.a.type ~= "f16" or not v.b.scale
    end),
  reject "codes of floats times scales of as many digits have no instructions of their own"
    (function (v)
      local s = v.b.scale
      return v.a.type == "bf16" and not v.b.integer
             and (s.type == "f16" or s.type == "f32" and v.b.type ~= "e4m3") or false
    end),
  reject "scales must be factors of values, not of sums"
    (function (v) return not v.b.scale.of_values end),
  reject "scales are of blocks, row by row, of 16 k at least"
    (function (v)
      local s = v.b.scale
      return s.span ~= "block" or s.order ~= "rows" or s.k % 16 ~= 0 or 128 % s.k ~= 0
    end),
  reject "a tile has 16 to 64 tokens, 64 or 128 rows of weights, and 64 to 256 values of k"
    (function (v)
      local m, n, k = v.tile.m, v.tile.n, v.tile.k
      return m % 16 ~= 0 or m > 64 or n ~= 64 and n ~= 128 or k ~= 64 and k ~= 128 and k ~= 256
    end),
  reject "16 tokens and codes of four bits leave room for 256 values of k, codes of eight do not"
    (function (v)
      return v.b.bits == 8 and v.tile.k == 256
             or v.b.bits == 4 and v.tile.m == 16 and v.tile.k < 256
    end),
}

-- SPDX-License-Identifier: Apache-2.0
