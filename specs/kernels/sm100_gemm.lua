-- 16-bit products on Blackwell's tensor cores, for the operands of sm90_gemm.lua. sm_100f's kernels
-- run on GPUs of 10.0 and 10.3.

-- Bytes of shared memory: alignment and barriers aside, the slabs; one stage of A and B. If C is
-- fetched, each slab has a barrier, too.
local function slab_memory (v)
  local barrier = v.addend == "fetch" and 8 or 0
  return 1 * KiB + (v.threads // 32 - 4) * v.slabs * (16 * v.d_swizzle + barrier) + 512
end
local function stage_memory (v)
  return (v.tile.m // v.cluster.n + v.tile.n // v.cluster.m) * v.tile.k * v.a.bytes
end

-- A box of an operand: k-major, all rows at once; mn-major, 64 of them for each step of k.
local function box (o, rows, v)
  if o.major == "k" then return { v.tile.k, rows } end
  return { 64, v.tile.k }
end

-- The path of C: fp32 sums in L2, others in registers.
local function addend ()
  return derive "addend" (function (v)
    if v.epilogue == "store" or v.epilogue == "alpha" or v.epilogue == "activate" then
      return "none"
    end
    if v.epilogue == "gradient" then return "fetch" end -- P, as C would be
    return v.epilogue == "add" and v.d.bytes == 4 and "reduce" or "read"
  end)
end

local function common (merges)
  return
  -- Two CTAs of a cluster whose tensor cores multiply together: side by side each reads half of A,
  -- one above the other half of B.
  derive "pair" (function (v) return v.cluster.m * v.cluster.n > 1 end),
  derive "accumulators" (2), -- tiles whose sums the tensor cores have
  derive "schedule" "overlapped", -- stores behind products
  derive "a_runs" (false),
  derive "scales" "none",
  derive "quantize" "pass",
  derive "dequantize" "none",
  merges and requires "k <= 268435328" "steps of k of 8 products are counted in 32 bits"
         or derive "microbatches" (1),
  derive "factors" (function (v) return v.epilogue == "alpha" and "alpha" or "none" end),
  derive "rolled" (true), -- see sm90_gemm.lua
  derive "scheduler_rolled" (true),
  derive "whole" (false),
  derive "bytes" (function (v) return v.a.bytes end),
  derive "store" "warps",

  -- The tensor cores take 128 rows and 16 to 256 columns: where rows of D are in groups they are
  -- the latter, so that a group's last tile has no more than it needs. An activation may need two
  -- columns of D, which one thread has where they are columns. Pairs side by side share rows of D.
  derive "turned" (function (v)
    return v.cluster.n > 1
           or v.ragged == "m" and v.epilogue ~= "activate" and v.epilogue ~= "gradient"
  end),

  -- Warps that copy, multiply, check sizes; and four that store, or eight, of which two at a time
  -- sum columns of D.
  derive "threads" (function (v) return (v.epilogue == "gradient" and 12 or 8) * 32 end),

  -- Each of those warps stores D through slabs of 16 rows: all columns that it has of D, or 128
  -- bytes.
  derive "d_box" (function (v) return { v.turned and 32 or 128 // v.d.bytes, 16 } end),
  derive "d_swizzle" (function (v) return v.d_box[1] * v.d.bytes end),
  derive "slabs" (4),
  derive "stages" (function (v) return (227 * KiB - slab_memory(v)) // stage_memory(v) end),
  derive "smem" (function (v) return slab_memory(v) + v.stages * stage_memory(v) end),

  -- The longest first, so that the last tiles are short.
  derive "longest_first" (function (v) return v.ragged ~= "none" and 1 or 0 end),

  derive "a_box" (function (v) return box(v.a, v.tile.m // v.cluster.n, v) end),
  derive "b_box" (function (v)
    local halves = v.epilogue == "activate" and v.operands == "halves"
    return box(v.b, v.tile.n // ((halves or v.cluster.m > 1) and 2 or 1), v)
  end),

  requires "n % 8 == 0" "rows of D must start at multiples of 16 bytes",
  requires "n <= 2147483136" "columns of a tile are counted in 32 bits",

  reject "a row of a stage has 128 bytes, 64 values of k"
    (function (v) return v.tile.k ~= 64 end),
  reject "the tensor cores take 128 rows at a time, and 64 to 256 columns, in 64s"
    (function (v)
      local lines, spots = v.tile.m, v.tile.n
      if v.turned then lines, spots = spots, lines end
      return lines ~= 128 or spots < 64 or spots > 256 or spots % 64 ~= 0
    end),
  reject "the memory for two tiles' sums is taken in powers of two"
    (function (v) return v.turned and v.tile.m == 192 or not v.turned and v.tile.n == 192 end),
  reject "fewer than 3 stages cannot hide the latency of TMA"
    (function (v) return v.stages < 3 end)
end

-- All that kernels with rows in groups have alike.
local function ragged_m ()
  return
  requires "m <= 2147483136" "rows of a tile are counted in 32 bits",
  requires "(m / 64 + groups) * (n / 128 + 1) < 2147483648" "tiles are counted in 31 bits",
  requires "k % 8 == 0" "rows of A must start at multiples of 16 bytes",
  addend(), common()
end

-- The same of k.
local function ragged_k (merges)
  return
  requires "k <= 2147483136" "steps of k are counted in 32 bits",
  requires "m <= 2147483136" "rows of a tile are counted in 32 bits",
  requires "groups * (m / 128 + 1) * (n / 128 + 1) < 2147483648" "tiles are counted in 31 bits",
  requires "m % 8 == 0" "rows of A must start at multiples of 16 bytes",
  addend(),
  without "c c_pointers c_stride c_group_stride" (function (v) return v.addend ~= "read" end),
  common(merges)
end

-- Activations of two columns; constants that only one activation has.
local function fragments ()
  return
  reject "a thread has pairs of columns in fragments of 8: runs of both operands are neither"
    (function (v) return v.interleave ~= 1 and v.interleave % 8 ~= 0 end)
end
local function constants ()
  return without "limit slope shift" (function (v) return v.activation ~= "clamped_swiglu" end)
end

local function alone () return derive "cluster" { 1, 1 } end
local function clusters (pair, of) return pair and axis "cluster" { of } or alone() end
local BESIDE, ABOVE = { 1, 2 }, { 2, 1 } -- the CTAs of a pair
local function in_order () return derive "gather" "none" end

local join = table.join
local sizes = { "first_dims", "offsets", "sizes_bytes", "groups", "m", "n", "k", "band", "error",
                "noop" }
local maps = { "b_map", "b_pointer_map", "d_map", "d_ragged_map", "b_pointers" }
local added = { "c", "c_pointers", "c_stride", "c_group_stride" }
local scalars = { "alpha", "beta", "scalar_step" }
local turned = { {64, 128, 64}, {128, 128, 64}, {256, 128, 64} }
local plain, wide = { {128, 128, 64}, {128, 256, 64} }, { {128, 256, 64} }
local paired = { {256, 128, 64} }

-- Rows of A in order, or gathered through indices, with which single CTAs write their own memory.
local rows = { { name = "gemm_m", params = join({ "a_map" }, maps), gather = in_order,
                 pairs = { false, true }, plain = plain },
               { name = "gather_m", pairs = { false }, plain = wide,
                 params = join({ "a", "a_stride", "gather", "topk", "tokens" }, maps),
                 gather = function () return axis "gather" { "gather_a" } end } }

-- y = x wᵀ and dx = dy w: rows of A and D in groups, one matrix B for each. Then the same times a
-- factor for each group, and with C.
for epilogue, more in pairs { store = {}, alpha = { "alpha", "scalar_step" },
                              scale = join(added, scalars) } do
  for _, of in ipairs(rows) do
    for _, pair in ipairs(of.pairs) do
      kernels("sm100_" .. of.name .. "_" .. epilogue .. (pair and "_pair" or "")) {
        op       = { "fprop", "dgrad" },
        element  = { bf16, f16 },
        scale    = "none",
        layout   = { "tn", "nn" },
        ragged   = "m",
        epilogue = epilogue,
        arch     = "sm_100f",
        template = "sm100/gemm_dense.cu",
        params   = join(of.params, more, sizes),

        of.gather(),
        axis "tile" (pair and paired or turned), clusters(pair, BESIDE),
        ragged_m()
      }
    end
  end
end

-- y = x wᵀ and dx = dy w with low-rank adapters: see sm90_gemm.lua.
for _, pair in ipairs { false, true } do
  kernels("sm100_gemm_m_lora" .. (pair and "_pair" or "")) {
    op       = { "fprop", "dgrad" },
    element  = { bf16, f16 },
    scale    = "none",
    layout   = { "tn", "nn" },
    ragged   = "m",
    arch     = "sm_100f",
    template = "sm100/gemm_dense.cu",
    params   = join({ "a_map" }, maps, { "extra_a_map", "extra_b_map" }, sizes, { "extra_k" }),

    axis "extra" { "lora" },
    in_order(),
    axis "tile" (pair and paired or { {128, 128, 64}, {256, 128, 64} }), clusters(pair, BESIDE),

    requires "k <= 2147352576" "steps of k, and of the rank, are counted in 32 bits",
    ragged_m()
  }
end

-- The operands of an activation: see sm90_gemm.lua.
local gradients = {
  one    = { join(activations.plain), { 0 } },
  halves = { join(activations.gated), { 0 } },
  runs   = { join(activations.gated), { 1, 8, 32 } },
}
local results = { one = { join({ "none" }, activations.plain), { 0 } },
                  halves = gradients.halves, runs = gradients.runs }

-- y = activation(x wᵀ + bias), times a number for each row: see sm90_gemm.lua.
for operands, axes in pairs(results) do
  for _, of in ipairs(rows) do
    for _, pair in ipairs { false, true } do
      kernels((pair and "pair_" or "sm100_") .. of.name .. "_activate_" .. operands) {
        op = "fprop", element = { bf16, f16 }, scale = "none", layout = "tn", ragged = "m",
        epilogue = "activate", arch = "sm_100f", template = "sm100/gemm_dense.cu",
        params = join(of.params, { "p_map", "p_ragged_map", "alpha", "scalar_step", "bias",
                                   "saved", "probability", "limit", "slope", "shift" }, sizes),

        axis "activation" (axes[1]),
        axis "interleave" (axes[2]),
        of.gather(),
        axis "tile"       (pair and wide or of.plain), clusters(pair, ABOVE),
        derive "operands" (operands),

        fragments(), constants(),
        ragged_m()
      }
    end
  end
end

-- dp from dh = dy w, where h = activation(p) times a factor for each row: see sm90_gemm.lua.
for operands, axes in pairs(gradients) do
  for _, of in ipairs(rows) do
    for _, pair in ipairs { false, true } do
      kernels((pair and "pair_" or "sm100_") .. of.name .. "_gradient_" .. operands) {
        op = "dgrad", element = { bf16, f16 }, scale = "none", layout = { "tn", "nn" },
        ragged = "m", epilogue = "gradient", d = { bf16, f16 }, arch = "sm_100f",
        template = "sm100/gemm_dense.cu",
        params = join(of.params, { "p_map", "alpha", "scalar_step", "probability", "partials",
                                   "row_partials", "limit", "slope", "shift" }, sizes),

        axis "activation" (axes[1]),
        axis "interleave" (axes[2]),
        of.gather(),
        axis "tile" (pair and wide or of.plain), clusters(pair, ABOVE),
        derive "operands" (operands),

        operands == "halves"
          and requires "n % 64 == 0" "each half of D must be whole slabs"
          or requires "n % 8 == 0" "rows of P must start at multiples of 16 bytes",
        fragments(), constants(),
        ragged_m()
      }
    end
  end
end

-- dw = dyᵀ x: k in groups, one matrix D for each.
local tokens = { "a_map", "a_ragged_map", "b_map", "b_ragged_map", "d_map", "d_pointer_map",
                 "d_pointers" }

for name, one in pairs { add   = { { "store", "add" }, added },
                         scale = { "scale", join(added, scalars) } } do
  for _, pair in ipairs { false, true } do
    kernels("sm100_gemm_k_" .. name .. (pair and "_pair" or "")) {
      op       = "wgrad",
      element  = { bf16, f16 },
      scale    = "none",
      layout   = "nt",
      ragged   = "k",
      epilogue = one[1],
      arch     = "sm_100f",
      template = "sm100/gemm_dense.cu",
      params   = join(tokens, one[2], sizes),

      in_order(), axis "tile" (pair and paired or plain), clusters(pair, BESIDE),
      ragged_k()
    }
  end

  -- The same products of several microbatches that waited, as one: their tokens are one long k.
  kernels("sm100_gemm_k_parts_" .. name) {
    op       = "wgrad",
    element  = { bf16, f16 },
    scale    = "none",
    layout   = "nt",
    ragged   = "k",
    epilogue = one[1],
    arch     = "sm_100f",
    template = "sm100/gemm_dense.cu",
    params   = join({ "a_tail_map", "b_tail_map", "d_map", "d_pointer_map", "microbatch_maps",
                      "microbatches", "microbatch_count", "d_pointers", "groups", "m", "n", "band",
                      "error", "noop" }, one[2]),

    axis "microbatches" { 8 },
    in_order(), axis "tile" (plain), alone(),
    ragged_k "merges"
  }
end

-- A uniform batch: no axis is ragged.
for _, pair in ipairs { false, true } do
  kernels("sm100_gemm_none" .. (pair and "_pair" or "")) {
    op       = { "fprop", "dgrad", "wgrad" },
    element  = { bf16, f16 },
    scale    = "none",
    layout   = { "tn", "nn", "nt", "tt" },
    ragged   = "none",
    epilogue = "scale",
    arch     = "sm_100f",
    template = "sm100/gemm_dense.cu",
    params   = join({ "a_map", "b_map", "d_map" }, added, scalars,
                    { "groups", "m", "n", "k", "band", "noop" }),

    in_order(), axis "tile" (pair and paired or plain), clusters(pair, BESIDE),

    requires "k % 8 == 0" "rows of A and B must start at multiples of 16 bytes",
    requires "m <= 2147483136" "rows of a tile are counted in 32 bits",
    requires "groups * (m / 128 + 1) * (n / 128 + 1) < 2147483648" "tiles are counted in 31 bits",
    requires "m % 8 == 0" "rows of A must start at multiples of 16 bytes",
    addend(), common()
  }
end

-- SPDX-License-Identifier: Apache-2.0
