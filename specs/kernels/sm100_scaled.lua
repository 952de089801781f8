-- Products of values with scales on Blackwell's tensor cores, which take codes as they are, and the
-- scales of their blocks; those of rows, groups and tensors are factors of finished sums. Paths are
-- chosen by a recipe's fields, never by its name.

-- Bytes of a row of a stage; words of four scales of blocks that it has.
local ROW = 128
local function words (v)
  return v.scales == "native" and math.max(v.tile.k // (4 * v.a.scale.k), 1) or 0
end

-- The kind of product with scales of blocks, or nil where there is none.
local function kind (v)
  local a, b = v.a.scale, v.b.scale
  if a.type ~= b.type or a.k ~= b.k or v.a.bits ~= v.b.bits then return nil end
  if a.type == "f32" then -- a byte each, repeated for blocks of 32
    return v.a.bits == 8 and a.k == 128 and a.stored_powers and b.stored_powers
           and "mxf8f6f4" or nil
  end
  if a.type == "e4m3" then return v.a.bits == 4 and a.k == 16 and "mxf4nvf4" or nil end
  if a.type ~= "e8m0" or a.k ~= 32 then return nil end
  return v.a.bits == 4 and "mxf4" or "mxf8f6f4"
end

-- Does something follow the product that takes more than one column, or goes back through it?
local function makes_copies (v) return v.epilogue == "copies" end
local function follows (v) return v.epilogue == "activate" or makes_copies(v) end
local function returns_copies (v) return v.epilogue == "gradient_copies" end
local function goes_back (v) return v.epilogue == "gradient" or returns_copies(v) end

-- Copies whose scales are for 128 x 128 results, which all eight warps that store have.
local function squares (v)
  return (makes_copies(v) or returns_copies(v)) and v.a.scale.k == 128
end
local function storers (v) return (goes_back(v) or squares(v)) and 8 or 4 end

-- Tiles whose sums the tensor cores have: one is stored while the next is multiplied. A tile with a
-- block of gated results is so wide that there is room for one next to the scales.
local function accumulators (v)
  return makes_copies(v) and squares(v) and v.tile.n == 256 and 1 or 2
end

-- See sm100_gemm.lua.
local function turned (v)
  return v.cluster.n > 1 or v.ragged == "m" and not follows(v) and not goes_back(v)
end

-- Bytes of shared memory: barriers and alignment aside, that of slabs, too, after stages with three
-- tiles of scales, the slabs, each with a barrier if P is fetched, and columnwise tensors on their
-- way, of 32 rows for each warp that stores, or each two of gradients, 64 columns at a time, or a
-- block of 128 x 128 of all; one stage of A and B, and of scales of 128 lines and of tiles of 128
-- spots.
local function slab_memory (v)
  local slab = 16 * v.d_swizzle + (goes_back(v) and 8 or 0)
  local copies = squares(v) and 128 * (128 + 2 * 8 * 2 + 2 * 4)
                 or makes_copies(v) and 4 * 128 * (32 + 4)
                 or returns_copies(v) and 4 * 64 * (32 + 2 * (2 + 4)) or 0
  return (v.accumulators == 1 and 2 or 1) * KiB + storers(v) * v.slabs * slab + copies + 512
end
local function stage_memory (v)
  local spots = turned(v) and v.tile.m or v.tile.n
  return (v.tile.m // v.cluster.n + v.tile.n // v.cluster.m) * ROW
         + (1 + (spots + 127) // 128) * words(v) * 512
end

local function common (scales, gathers)
  return
  gathers and requires "k % 16 == 0" "rows of tokens are copied 16 bytes at a time"
          or derive "gather" "none",
  derive "scales" (scales),
  -- Two CTAs multiply together: see sm100_gemm.lua.
  derive "pair" (function (v) return v.cluster.m * v.cluster.n > 1 end),
  derive "accumulators" (accumulators),
  derive "schedule" "overlapped", -- stores during products
  derive "quantize" "pass",
  derive "dequantize" "none",
  derive "microbatches" (1),
  derive "rolled" (true), -- see sm90_gemm.lua
  derive "scheduler_rolled" (true),
  derive "whole" (false),
  derive "store" "warps",
  derive "turned" (turned),

  -- Scales of a rowwise tensor that begin anew with each group: where, follows from the groups
  -- before.
  derive "a_runs" (function (v)
    local s = v.a.scale
    return scales == "native" and v.ragged == "m" and (s.apart or s.rows > 1)
  end),

  -- Warps that copy, multiply, check sizes; four that store, or eight, of which two at a time sum
  -- columns of D or all have a block of copies; four that fetch scales.
  derive "threads" (function (v)
    return (4 + storers(v) + (scales == "native" and 4 or 0)) * 32
  end),

  -- Rows of D, of copies as of the values that come before them: 64 codes are as many bytes as 32
  -- values of P, and a block's 128 as 64.
  derive "d_box" (function (v)
    return { (v.turned or makes_copies(v) and not squares(v)) and 32 or 128 // v.d.bytes, 16 }
  end),
  derive "d_swizzle" (function (v) return v.d_box[1] * v.d.bytes end),
  derive "slabs" (function (v) return v.accumulators == 1 and 3 or 4 end), -- 3 leave a stage more
  derive "stages" (function (v) return (227 * KiB - slab_memory(v)) // stage_memory(v) end),
  derive "smem" (function (v) return slab_memory(v) + v.stages * stage_memory(v) end),

  -- The longest first, so that the last tiles are short.
  derive "longest_first" (1),

  derive "a_box" (function (v) return { v.tile.k, v.tile.m // v.cluster.n } end),
  derive "b_box" (function (v)
    local halves = follows(v) and v.operands == "halves"
    return { v.tile.k, v.tile.n // ((halves or v.cluster.m > 1) and 2 or 1) }
  end),

  requires "n % 8 == 0" "rows of D must start at multiples of 16 bytes",
  requires "n <= 2147483136" "columns of a tile are counted in 32 bits",

  reject "rows of A that are gathered must have fp32 scales of their own, in one matrix"
    (function (v)
      local s = v.a.scale
      return v.gather ~= "none" and (s.type ~= "f32" or s.rows > 1 or s.apart or s.global)
    end),
  reject "a row of a stage has 128 bytes"
    (function (v) return v.tile.k * v.a.bits ~= 8 * ROW end),
  reject "the tensor cores take 128 rows at a time, and 64, 128 or 256 columns, or 192 with scales"
    (function (v)
      local lines, spots = v.tile.m, v.tile.n
      if v.turned then lines, spots = spots, lines end
      return lines ~= 128 or spots ~= 64 and spots ~= 128 and spots ~= 256
             and (spots ~= 192 or scales ~= "native")
    end)
end

-- Scales of blocks, which the tensor cores take, and of a second level.
local function blocks (gathers)
  return
  derive "kind" (function (v) return kind(v) or "none" end),
  derive "factors" (function (v)
    return (v.a.scale.global or v.b.scale.global) and "global" or "none"
  end),

  -- Words of the tensor cores' memory: the tiles' sums, and a stage's scales.
  derive "tensor_words" (function (v)
    return (turned(v) and v.tile.m or v.tile.n) <= 64 and 256 or 512
  end),

  without "a_global" (function (v) return not v.a.scale.global end),
  without "b_global" (function (v) return not v.b.scale.global end),

  reject "tensor cores take powers of two for 32 values, or more, and e4m3 scales for 16 of e2m1"
    (function (v) return v.kind == "none" end),
  reject "next to two tiles' sums of 256 columns there is no room for scales"
    (function (v) return accumulators(v) == 2 and v.tile.m * v.tile.n > 128 * 192 end),
  common("native", gathers)
end

-- Scales of rows, groups or tensors.
local function whole (gathers)
  return
  derive "bytes" (function (v) return v.a.bytes end),
  derive "factors" (function (v) return v.a.scale.span == "row" and "row" or "group" end),

  reject "A and B must be scaled alike, in fp32"
    (function (v)
      local a, b = v.a.scale, v.b.scale
      local span = { tensor = "group", group = "group", row = "row" }
      return span[a.span] ~= span[b.span] or a.type ~= "f32" or b.type ~= "f32"
             or a.global or b.global
    end),
  common("none", gathers)
end

-- Kernels for scales of blocks: of codes of one type or another, of which a row of a stage has `k`.
local function of_blocks (element, k)
  return { rules = blocks, element = element, scale = "block", template = "sm100/gemm_scaled.cu",
           sf = { "a_sf", "a_sf_stride", "a_sf_group_stride", "a_global",
                  "b_sf", "b_sf_stride", "b_sf_group_stride", "b_global" },
           pair_rows = { {128, 128, k}, {192, 128, k} }, pair_tokens = { {192, 128, k} },
           rows = { {64, 128, k}, {128, 128, k} }, flat = { {128, 128, k} },
           wide = k == 128 and { {128, 256, k} } or {}, -- of codes that blocks of 128 may have
           one = { {128, 128, k} }, tokens = { {128, 64, k}, {128, 128, k} } }
end

-- Kernels for each kind of scales; six bits would have to be packed, not one in a byte.
local codes = { blocks8 = of_blocks({ e4m3, e5m2 }, 128), blocks4 = of_blocks({ e2m1 }, 256) }
local kinds = {
  blocks8 = codes.blocks8, blocks4 = codes.blocks4,
  whole   = { rules = whole, element = { e4m3, e5m2 }, scale = { "tensor", "group", "row" },
              template = "sm100/gemm_dense.cu",
              sf = { "a_sf", "a_sf_group_stride", "b_sf", "b_sf_group_stride" },
              pair_rows = { {256, 128, 128} }, pair_tokens = { {256, 128, 128} },
              rows = { {64, 128, 128}, {128, 128, 128}, {256, 128, 128} },
              flat = { {128, 256, 128} },
              one = { {128, 128, 128} }, -- results of 256 columns: some would spill
              tokens = { {128, 128, 128}, {128, 256, 128} } },
}
local pairs_too = { false, true }
local sizes = { "first_dims", "offsets", "sizes_bytes", "groups", "m", "n", "k", "band", "error",
                "noop" }
local added = { "c", "c_pointers", "c_stride", "c_group_stride" }
local scalars = { "alpha", "beta", "scalar_step" }
local join = table.join
local function clusters (pair, of)
  return pair and axis "cluster" { of } or derive "cluster" { 1, 1 }
end
local BESIDE, ABOVE = { 1, 2 }, { 2, 1 } -- the CTAs of a pair

-- y = x wᵀ and dx = dy w: rows of A and D in groups, one matrix B for each.
local rows = { "a_map", "b_map", "b_pointer_map", "d_map", "d_ragged_map", "b_pointers" }

for name, of in pairs(kinds) do
  for epilogue, more in pairs { store = {}, scale = join(added, scalars) } do
    for _, pair in ipairs(pairs_too) do
      kernels("sm100_" .. name .. "_m_" .. epilogue .. (pair and "_pair" or "")) {
        op = { "fprop", "dgrad" }, element = of.element, scale = of.scale, layout = "tn",
        ragged = "m", epilogue = epilogue, arch = "sm_100f", template = of.template,
        params = join(rows, of.sf, more, sizes),

        axis "tile" (pair and of.pair_rows or of.rows), clusters(pair, BESIDE),
        derive "addend" (epilogue == "store" and "none" or "read"),

        requires "m <= 2147483136" "rows of a tile are counted in 32 bits",
        requires "(m / 64 + groups) * (n / 128 + 1) < 2147483648" "tiles are counted in 31 bits",
        of.rules()
      }
    end
  end
end

-- The same of tokens of x or dy, which warps read through indices: see sm90_scaled.lua.
local token_rows = { "a", "a_stride", "gather", "topk", "tokens", "b_map", "b_pointer_map", "d_map",
                     "d_ragged_map", "b_pointers" }

local token_sf = {
  row   = { "a_sf", "b_sf", "b_sf_group_stride" },
  block = { "a_sf", "a_sf_stride", "a_global", "b_sf", "b_sf_stride", "b_sf_group_stride",
            "b_global" },
}

for name, of in pairs { row = kinds.whole, block = kinds.blocks8 } do
  kernels("sm100_gather_" .. name .. "_m") {
    op = { "fprop", "dgrad" }, element = of.element, scale = name, layout = "tn", ragged = "m",
    arch = "sm_100f", template = of.template,
    params = join(token_rows, token_sf[name], sizes),

    axis "gather" { "gather_a" },
    axis "tile" (of.rows), clusters(),
    derive "addend" "none",

    requires "m <= 2147483136" "rows of a tile are counted in 32 bits",
    requires "(m / 64 + groups) * (n / 128 + 1) < 2147483648" "tiles are counted in 31 bits",
    of.rules "gathers"
  }
end

-- y = activation(x wᵀ + bias), times a number for each row, and dp from dh = dy w, where
-- h = activation(p) times a factor for each row: see sm90_gemm.lua.
local function constants ()
  return without "limit slope shift" (function (v) return v.activation ~= "clamped_swiglu" end)
end
local function fragments ()
  return
  reject "a thread has pairs of columns in fragments of 8: runs of both operands are neither"
    (function (v) return v.interleave ~= 1 and v.interleave % 8 ~= 0 end)
end
local function ragged_m (of, gathers)
  return
  requires "m <= 2147483136" "rows of a tile are counted in 32 bits",
  requires "(m / 64 + groups) * (n / 128 + 1) < 2147483648" "tiles are counted in 31 bits",
  constants(), fragments(), of.rules(gathers)
end
local through = { "alpha", "scalar_step", "probability", "limit", "slope", "shift" }
local forward = join({ "p_map", "p_ragged_map", "bias", "saved" }, through)
local backward = join({ "p_map", "partials", "row_partials" }, through)
local operands = {
  one    = { join(activations.plain), { 0 } },
  halves = { join(activations.gated), { 0 } },
  runs   = { join(activations.gated), { 1, 8, 32 } },
}

for name, of in pairs(kinds) do
  for operand, axes in pairs(operands) do
    for _, pair in ipairs(pairs_too) do
      kernels((pair and "pair_" or "sm100_") .. name .. "_m_activate_" .. operand) {
        op = "fprop", element = of.element, scale = of.scale, layout = "tn", ragged = "m",
        epilogue = "activate", d = { bf16, f16 }, arch = "sm_100f", template = of.template,
        params = join(rows, of.sf, forward, sizes),

        axis "activation" (operand == "one" and join({ "none" }, axes[1]) or axes[1]),
        axis "interleave" (axes[2]),
        axis "tile" (operand == "one" and of.one or of.flat), clusters(pair, ABOVE),
        derive "operands" (operand),
        derive "addend" "none",
        ragged_m(of)
      }

      kernels((pair and "pair_" or "sm100_") .. name .. "_m_gradient_" .. operand) {
        op = "dgrad", element = of.element, scale = of.scale, layout = "tn", ragged = "m",
        epilogue = "gradient", d = { bf16, f16 }, arch = "sm_100f", template = of.template,
        params = join(rows, of.sf, backward, sizes),

        axis "activation" (axes[1]),
        axis "interleave" (axes[2]),
        axis "tile" (of.flat), clusters(pair, ABOVE),
        derive "operands" (operand),
        derive "addend" "fetch", -- P, as C would be

        operand == "halves"
          and requires "n % 64 == 0" "each half of D must be whole slabs"
          or requires "n % 8 == 0" "rows of P must start at multiples of 16 bytes",
        ragged_m(of)
      }
    end
  end
end

local function copied (of, gathers)
  return
  reject "scales of the result must be those of a row's 32 or 128 results each"
    (function (v) return v.a.scale.rows ~= 1 or v.a.scale.k ~= 32 and v.a.scale.k ~= 128 end),
  reject "the copies' values must be rounded to nearest, as they are"
    (function (v) return v.a.scale.stochastic or v.a.scale.hadamard end),
  ragged_m(of, gathers)
end

-- The same of fprop, and the results become copies of an x, as the next product takes it: blocks of
-- 32 are a part of a tile's row, or of a column's rows that one warp has, and one of 128 x 128 is a
-- tile's results.
local function copies (name, operand, pair, gathers)
  local of, axes = codes[name], operands[operand]
  return {
    op = "fprop", element = of.element, scale = "block", layout = "tn", ragged = "m",
    epilogue = "copies", d = { bf16, f16 }, arch = "sm_100f", template = of.template,
    params = join(gathers and token_rows or rows, gathers and token_sf.block or of.sf, forward,
                  { "row_sf", "column", "column_stride", "column_sf" }, sizes),

    axis "activation" (operand == "one" and join({ "none" }, axes[1]) or axes[1]),
    axis "interleave" (axes[2]),
    axis "tile" (operand == "one" and of.flat or join(of.flat, of.wide)), clusters(pair, ABOVE),
    derive "operands" (operand),
    derive "addend" "none",

    reject "a tile's row must have the 128 results of a scale"
      (function (v) return squares(v) and v.tile.n ~= (operand == "one" and 128 or 256) end),

    operand == "one" and requires "n % 128 == 0" "results must be whole blocks of 128"
                     or requires "n % 256 == 0" "results must be whole blocks of 128",
    copied(of, gathers)
  }
end

-- And dp as copies of a dy: two warps have a column's 32 rows, or all eight its 128, with 128
-- columns of each operand.
local function dy_copies (name, operand, pair, gathers)
  local of, axes = codes[name], operands[operand]
  return {
    op = "dgrad", element = of.element, scale = "block", layout = "tn", ragged = "m",
    epilogue = "gradient_copies", d = { bf16, f16 }, arch = "sm_100f", template = of.template,
    params = join(gathers and token_rows or rows, gathers and token_sf.block or of.sf, backward,
                  { "row_sf", "column", "column_stride", "column_sf" }, sizes),

    axis "activation" (axes[1]),
    axis "interleave" (axes[2]),
    axis "tile" (of.flat), clusters(pair, ABOVE),
    derive "operands" (operand),
    derive "addend" "fetch", -- P, as C would be

    requires "n % 128 == 0" "results must be whole blocks of 128",
    copied(of, gathers)
  }
end

for result, grid in pairs { copies = copies, dy_copies = dy_copies } do
  for operand in pairs(operands) do
    for _, pair in ipairs(pairs_too) do
      local first = pair and "pair_" or "sm100_"
      for name in pairs(codes) do
        kernels(first .. name .. "_" .. result .. "_" .. operand)(grid(name, operand, pair))
      end
      local gathered = grid("blocks8", operand, pair, "gathers")
      table.insert(gathered, 3, axis "gather" { "gather_a" })
      kernels(first .. "gather_" .. result .. "_" .. operand)(gathered)
    end
  end
end

-- dw = dyᵀ x: k in groups that begin at multiples of 128, one matrix D for each.
local tokens = { "a_map", "b_map", "d_map", "d_pointer_map", "d_pointers" }

for name, of in pairs(kinds) do
  for epilogue, one in pairs { add   = { { "store", "add" }, added },
                               scale = { "scale", join(added, scalars) } } do
    for _, pair in ipairs(pairs_too) do
      kernels("sm100_" .. name .. "_k_" .. epilogue .. (pair and "_pair" or "")) {
        op = "wgrad", element = of.element, scale = of.scale, layout = "tn", ragged = "k",
        epilogue = one[1], arch = "sm_100f", template = of.template,
        params = join(tokens, of.sf, one[2], sizes),

        axis "tile" (pair and of.pair_tokens or of.tokens), clusters(pair, BESIDE),
        derive "addend" (function (v)
          if v.epilogue == "store" then return "none" end
          return v.epilogue == "add" and v.d.bytes == 4 and "reduce" or "read"
        end),
        without "c c_pointers c_stride c_group_stride" (function (v) return v.addend ~= "read" end),
        reject "C with so many columns' sums leaves too few registers: some would spill"
          (function (v) return v.addend == "read" and v.tile.n == 256 end),

        requires "k <= 2147352576" "steps of k are counted in 32 bits",
        requires "m <= 2147483136" "rows of a tile are counted in 32 bits",
        requires "groups * (m / 128 + 1) * (n / 64 + 1) < 2147483648"
                 "tiles are counted in 31 bits",
        of.rules()
      }
    end
  end
end

-- SPDX-License-Identifier: Apache-2.0
