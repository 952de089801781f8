-- 16-bit products on Hopper's tensor cores, for every operand that the copy engine can reach: its
-- ragged axis, if it has one, must not be contiguous.

-- Bytes of shared memory: alignment and barriers aside, the slabs; one stage of A and B. If C is
-- fetched, each slab has a barrier, too.
local function slab_memory (v)
  local barrier = v.addend == "fetch" and 8 or 0
  return 1 * KiB + 8 * v.slabs * (16 * 128 + barrier) + 512
end
local function stage_memory (v) return (v.tile.m + v.tile.n) * v.tile.k * v.a.bytes end

-- Columns of a slab: rows of 128 bytes; of 64, if a tile's columns are half a slab more than whole
-- ones and nothing but the sums goes into the slabs.
local function slab_columns (v)
  local columns = 128 // v.d.bytes
  local plain = v.epilogue == "store" or v.epilogue == "alpha"
  return v.tile.n % columns > 0 and plain and columns // 2 or columns
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

local function common (merges, rows)
  return
  rows and reject "cp.async writes the shared memory of one CTA"
             (function (v) return v.gather ~= "none" and v.cluster.n > 1 end)
       or derive "gather" "none",
  merges and requires "k <= 268435328" "steps of k of 8 products are counted in 32 bits"
         or derive "microbatches" (1),
  derive "quantize" "pass",

  -- Values as they are: no scales, all sums in the tensor cores.
  derive "factors" (function (v) return v.epilogue == "alpha" and "alpha" or "none" end),
  derive "dequantize" "none",
  -- Loops that run once a tile or less, and those that copy and multiply, are not unrolled: half as
  -- many instructions to compile, where a GPU has shown that it costs nothing (bench/notes: host).
  derive "rolled" (function (v) return v.ragged ~= "none" and v.microbatches == 1 end),
  derive "scheduler_rolled" (function (v) return v.rolled end), -- the first of these
  derive "whole" (false),
  derive "pair" (false),
  derive "turned" (false),
  derive "a_runs" (false),
  derive "bytes" (function (v) return v.a.bytes end),
  derive "store" "warps",
  derive "split" (function (v) return v.schedule == "cooperative" and "m" or "none" end),
  derive "mma_n" (function (v) return v.tile.n end),

  -- Two math warpgroups and one that issues the copies.
  derive "threads" (3 * 128),

  -- Each of the 8 math warps stores D through slabs of 16 rows x 128 bytes. If C is fetched into
  -- them, they also hold the fetches in flight.
  derive "slabs" (function (v) return v.addend == "fetch" and 4 or 2 end),
  derive "stages" (function (v)
    return (227 * KiB - slab_memory(v)) // stage_memory(v)
  end),
  derive "smem" (function (v) return slab_memory(v) + v.stages * stage_memory(v) end),

  -- Groups along k differ in length: the longest first, so that the last tiles are short.
  derive "longest_first" (function (v) return v.ragged == "k" and 1 or 0 end),

  -- Registers of a thread that schedules and issues copies, and of one that multiplies: 504 for
  -- three warpgroups.
  derive "registers" (function (v)
    if v.microbatches > 1 or v.gather ~= "none" then return { 72, 216 } end
    return v.schedule == "pingpong" and v.tile.n == 192 and { 40, 232 } or { 56, 224 }
  end),

  -- Each CTA of a cluster loads a part of the shared tiles. A pair along m turns to be along n
  -- where a group's last row of tiles has no partner, so it shares either operand.
  derive "a_box" (function (v)
    return box(v.a, v.tile.m // (v.cluster.m * v.cluster.n), v)
  end),
  derive "b_box" (function (v)
    local halves = v.epilogue == "activate" and v.operands == "halves"
    return box(v.b, v.tile.n // (halves and 2 or v.cluster.m), v)
  end),
  derive "d_box" (function (v) return { slab_columns(v), 16 } end),
  derive "d_swizzle" (function (v) return v.d_box[1] * v.d.bytes end),

  requires "n % 8 == 0" "rows of D must start at multiples of 16 bytes",
  requires "n <= 2147483136" "columns of a tile are counted in 32 bits",

  reject "each of two cooperating warpgroups needs 64 rows"
    (function (v) return v.schedule == "cooperative" and v.tile.m < 128 end),
  reject "a warpgroup multiplies 64 rows at a time"
    (function (v) return v.tile.m % (v.split == "m" and 128 or 64) ~= 0 end),
  reject "a row of a stage has 128 bytes, 64 values of k"
    (function (v) return v.tile.k ~= 64 end),
  reject "a tile has 128 to 256 columns, and 128 rows or more where these are not in groups"
    (function (v)
      return v.tile.n < 128 or v.tile.n > 256 or v.ragged ~= "m" and v.tile.m < 128
    end),
  reject "columns of a tile must be whole slabs of D"
    (function (v) return v.tile.n % v.d_box[1] ~= 0 end),
  reject "B must be whole chunks of 64 columns"
    (function (v) return v.b.major == "mn" and v.tile.n % 64 ~= 0 end),
  reject "one warpgroup's registers cannot hold the sums of a whole tile this large"
    (function (v)
      local most = v.ragged == "k" and 128 * 128 or 128 * 192
      return v.schedule == "pingpong" and v.tile.m * v.tile.n > most
    end),
  reject "parts of A under 64 rows cost the cluster more than they spare"
    (function (v) return v.tile.m // (v.cluster.m * v.cluster.n) < 64 end),
  reject "the scheduler of pairs along m leaves too few registers for the sums: some would spill"
    (function (v)
      return v.cluster.m > 1 and v.schedule == "pingpong" and v.tile.m * v.tile.n > 128 * 128
    end),
  reject "copies for a cluster leave too few registers for 128 x 192 sums: some would spill"
    (function (v)
      return v.cluster.n > 1 and v.schedule == "pingpong" and v.tile.n == 192
    end),
  reject "half of B must be whole chunks of 64 columns"
    (function (v) return v.cluster.m > 1 and v.b.major == "mn" and v.tile.n % 128 ~= 0 end),
  reject "addresses of 16 rows in each thread, or 128 x 192 sums, leave too few registers"
    (function (v)
      return v.gather ~= "none" and
             (v.tile.m > 128 or v.schedule == "pingpong" and v.tile.m * v.tile.n > 128 * 128)
    end),
  reject "fewer than 3 stages cannot hide the latency of TMA"
    (function (v) return v.stages < 3 end)
end

-- All that kernels with rows in groups have alike.
local function ragged_m (rows)
  return
  requires "m <= 2147483136" "rows of a tile are counted in 32 bits",
  requires "(m / 64 + groups) * (n / 128 + 1) < 2147483648" "tiles are counted in 31 bits",
  requires "k % 8 == 0" "rows of A must start at multiples of 16 bytes",
  addend(), common(nil, rows)
end

-- The same of k.
local function ragged_k ()
  return
  requires "k <= 2147483136" "steps of k are counted in 32 bits",
  requires "m <= 2147483136" "rows of a tile are counted in 32 bits",
  requires "groups * (m / 128 + 1) * (n / 128 + 1) < 2147483648" "tiles are counted in 31 bits",
  requires "m % 8 == 0" "rows of A must start at multiples of 16 bytes",
  reject "the chunks of A that two CTAs share leave too few registers: some would spill"
    (function (v) return v.cluster.n > 1 and v.tile.n > 192 end),
  common()
end

-- Activations of two columns.
local function whole_fragments ()
  return
  reject "a thread has pairs of columns in fragments of 8: runs of both operands are neither"
    (function (v) return v.interleave ~= 1 and v.interleave % 8 ~= 0 end)
end

local join = table.join

-- Constants that only one activation has; C where it is read by address.
local function constants ()
  return without "limit slope shift" (function (v) return v.activation ~= "clamped_swiglu" end)
end
local function no_c ()
  return without "c c_pointers c_stride c_group_stride" (function (v) return v.addend ~= "read" end)
end

local sizes = { "first_dims", "offsets", "sizes_bytes", "groups", "m", "n", "k", "band", "error",
                "noop" }
local added = { "c", "c_pointers", "c_stride", "c_group_stride" }
local scalars = { "alpha", "beta", "scalar_step" }

-- Rows of A in order, or gathered through indices: where each of these is in fewer tiles, and these
-- share B, as L2 gives single rows more slowly than boxes (bench/notes: gather).
local in_order = { grid = "sm90_gemm_m", maps = { "a_map" }, clusters = { {1, 1} } }
local gathered = { grid = "sm90_gather_m", clusters = { {1, 1}, {2, 1} },
                   tiles = { {64, 256, 64}, {128, 256, 64} },
                   maps = { "a", "a_stride", "gather", "topk", "tokens" } }
for _, rows in ipairs { in_order, gathered } do
  rows.maps = join(rows.maps, { "b_map", "b_pointer_map", "d_map", "d_ragged_map" })
end
function in_order.gather () return derive "gather" "none" end
function gathered.gather () return axis "gather" { "gather_a" } end

-- y = x wᵀ and dx = dy w: rows of A and D in groups, one matrix B for each.
for _, rows in ipairs { in_order, gathered } do
  kernels(rows.grid) {
    op       = { "fprop", "dgrad" },
    element  = { bf16, f16 },
    scale    = "none",
    layout   = { "tn", "nn" },
    ragged   = "m",
    arch     = "sm_90a",
    template = "sm90/gemm.cu",
    params   = join(rows.maps, { "b_pointers" }, sizes),

    rows.gather(),
    axis "schedule" { "cooperative", "pingpong" },
    axis "tile"     (rows.tiles or { {64, 256, 64}, {128, 128, 64}, {128, 192, 64},
                                     {128, 256, 64}, {256, 128, 64} }),
    axis "cluster"  { {1, 1}, {1, 2}, {2, 1} },

    ragged_m(rows)
  }
end

-- The same, times a factor for each group: scaling without C leaves room for larger tiles.
kernels "sm90_gemm_m_alpha" {
  op       = { "fprop", "dgrad" },
  element  = { bf16, f16 },
  scale    = "none",
  layout   = { "tn", "nn" },
  ragged   = "m",
  epilogue = "alpha",
  arch     = "sm_90a",
  template = "sm90/gemm.cu",
  params   = join(in_order.maps, { "b_pointers", "alpha", "scalar_step" }, sizes),

  axis "schedule" { "cooperative", "pingpong" },
  axis "tile"     { {64, 256, 64}, {128, 192, 64}, {128, 256, 64} },
  axis "cluster"  { {1, 1} },

  ragged_m()
}

for _, rows in ipairs { in_order, gathered } do
  kernels(rows.grid .. "_scale") {
    op       = { "fprop", "dgrad" },
    element  = { bf16, f16 },
    scale    = "none",
    layout   = { "tn", "nn" },
    ragged   = "m",
    epilogue = "scale",
    arch     = "sm_90a",
    template = "sm90/gemm.cu",
    params   = join(rows.maps, { "b_pointers" }, added, scalars, sizes),

    rows.gather(),
    axis "schedule" { "cooperative", "pingpong" },
    -- With C, addresses of gathered rows leave no registers for sums of 128 x 256.
    axis "tile"     (rows.tiles and { {64, 256, 64}, {128, 128, 64} }
                     or { {128, 128, 64}, {128, 256, 64} }),
    axis "cluster"  { {1, 1} },

    ragged_m(rows)
  }
end

-- The operands of an activation: one, two halves of a row or runs that alternate; with which
-- activations and interleaves.
local gradients = {
  one    = { join(activations.plain), { 0 } },
  halves = { join(activations.gated), { 0 } },
  runs   = { join(activations.gated), { 1, 8, 32 } },
}
local results = { one = { join({ "none" }, activations.plain), { 0 } },
                  halves = gradients.halves, runs = gradients.runs }

-- y = activation(x wᵀ + bias), times a number for each row. An activation takes its operands from
-- two columns of the product, which must be sums of one thread: two halves are interleaved as
-- B's rows are copied, runs of 8 columns are in neighbouring fragments.
for operands, axes in pairs(results) do
  for _, rows in ipairs { in_order, gathered } do
    kernels(rows.grid .. "_activate_" .. operands) {
      op = "fprop", element = { bf16, f16 }, scale = "none", layout = "tn", ragged = "m",
      epilogue = "activate", arch = "sm_90a", template = "sm90/gemm.cu",
      params = join(rows.maps, { "p_map", "p_ragged_map", "b_pointers", "alpha", "scalar_step",
                                 "bias", "saved", "probability", "limit", "slope", "shift" },
                    sizes),

      rows.gather(),
      axis "activation" (axes[1]),
      axis "interleave" (axes[2]),
      axis "schedule" { "cooperative", "pingpong" },
      axis "tile"     (rows.tiles or { {64, 256, 64}, {128, 128, 64}, {128, 256, 64} }),
      axis "cluster"  (rows.clusters),
      derive "operands" (operands),

      whole_fragments(), constants(),
      ragged_m(rows)
    }
  end
end

-- dp from dh = dy w, where h = activation(p) times a factor for each row: the gradient of h goes
-- back through the activation where it is summed, and partial sums for those of a bias and of the
-- rows' factors are left for launches that follow. P is loaded as C would be. Two halves of D are
-- stored in whole slabs, since the second half follows the first.
for operands, axes in pairs(gradients) do
  for _, rows in ipairs { in_order, gathered } do
    kernels(rows.grid .. "_gradient_" .. operands) {
      op = "dgrad", element = { bf16, f16 }, scale = "none", layout = { "tn", "nn" }, ragged = "m",
      epilogue = "gradient", d = { bf16, f16 }, arch = "sm_90a", template = "sm90/gemm.cu",
      params = join(rows.maps, { "p_map", "b_pointers", "alpha", "scalar_step", "probability",
                                 "partials", "row_partials", "limit", "slope", "shift" }, sizes),

      rows.gather(),
      axis "activation" (axes[1]),
      axis "interleave" (axes[2]),
      axis "schedule" { "cooperative", "pingpong" },
      axis "tile"     (rows.tiles or { {128, 128, 64}, {128, 256, 64} }),
      axis "cluster"  { {1, 1} },
      derive "operands" (operands),

      operands == "halves" and requires "n % 64 == 0" "each half of D must be whole slabs"
                           or requires "n % 8 == 0" "rows of P must start at multiples of 16 bytes",
      whole_fragments(), constants(),
      ragged_m(rows)
    }
  end
end

-- dw = dyᵀ x: stored, added to C, or scaled and added to it. Added to fp32 also with C loaded by
-- the copy engine while the tile is multiplied: where memory binds, sums in L2 are slower than a
-- read and a write. `tail`: the parameters after those of C.
local function grids (name, operands, tail, tiles, clusters, rules)
  local function c_path (of, ...)
    if of == "_fetch" then return axis "addend" { "fetch" }, ... end
    return addend(), no_c(), ...
  end
  local both, single = { "cooperative", "pingpong" }, { {1, 1} }

  for of, one in pairs {
    [""]       = { { "store", "add" }, added, both, tiles, clusters },
    ["_fetch"] = { "add", {}, both, tiles, single, d = f32 },
    ["_scale"] = { "scale", join(added, scalars), { "cooperative" },
                   { {128, 128, 64}, {128, 256, 64} }, single } } do
    kernels(name .. of) {
      op = "wgrad", element = { bf16, f16 }, scale = "none", layout = "nt", ragged = "k",
      epilogue = one[1], d = one.d, arch = "sm_90a", template = "sm90/gemm.cu",
      params = join(operands, one[2], tail),

      axis "schedule" (one[3]), axis "tile" (one[4]), axis "cluster" (one[5]),
      c_path(of, rules())
    }
  end
end

-- k in groups, one matrix D for each.
grids("sm90_gemm_k",
      { "a_map", "a_ragged_map", "b_map", "b_ragged_map", "d_map", "d_pointer_map", "d_pointers" },
      sizes, { {128, 128, 64}, {128, 192, 64}, {128, 256, 64}, {256, 128, 64} },
      { {1, 1}, {1, 2} }, ragged_k)

-- The same products of several microbatches that waited, as one: their tokens are one long k.
grids("sm90_gemm_k_parts",
      { "a_tail_map", "b_tail_map", "d_map", "d_pointer_map", "microbatch_maps", "microbatches",
        "microbatch_count", "d_pointers", "groups", "m", "n", "band", "error", "noop" },
      {}, { {128, 128, 64}, {128, 256, 64}, {256, 128, 64} }, { {1, 1} },
      function ()
  return
  axis "microbatches" { 8 },
  reject "16-bit C with as many sums leaves too few registers: some would spill"
    (function (v)
      return v.addend == "read" and v.d.bytes == 2 and v.tile.m * v.tile.n > 128 * 128
    end),
  requires "m <= 2147483136" "rows of a tile are counted in 32 bits",
  requires "groups * (m / 128 + 1) * (n / 128 + 1) < 2147483648" "tiles are counted in 31 bits",
  requires "m % 8 == 0" "rows of A must start at multiples of 16 bytes",
  common "merges"
end)

-- A uniform batch: no axis is ragged.
kernels "sm90_gemm_none" {
  op       = { "fprop", "dgrad", "wgrad" },
  element  = { bf16, f16 },
  scale    = "none",
  layout   = { "tn", "nn", "nt", "tt" },
  ragged   = "none",
  epilogue = "scale",
  arch     = "sm_90a",
  template = "sm90/gemm.cu",
  params   = join({ "a_map", "b_map", "d_map" }, added, scalars,
                  { "groups", "m", "n", "k", "band", "noop" }),

  axis "schedule" { "cooperative", "pingpong" },
  axis "tile"     { {128, 128, 64}, {128, 256, 64} },
  axis "cluster"  { {1, 1} },

  requires "k % 8 == 0" "rows of A and B must start at multiples of 16 bytes",
  requires "m <= 2147483136" "rows of a tile are counted in 32 bits",
  requires "groups * (m / 128 + 1) * (n / 128 + 1) < 2147483648" "tiles are counted in 31 bits",
  requires "m % 8 == 0" "rows of A must start at multiples of 16 bytes",
  addend(), common()
}

-- y = x wᵀ and dx = dy w with low-rank adapters, as more steps of k: t Bᵀ or t A, where t is a
-- product of its own.
kernels "sm90_gemm_m_lora" {
  op       = { "fprop", "dgrad" },
  element  = { bf16, f16 },
  scale    = "none",
  layout   = { "tn", "nn" },
  ragged   = "m",
  arch     = "sm_90a",
  template = "sm90/gemm.cu",
  params   = join(in_order.maps, { "extra_a_map", "extra_b_map", "b_pointers" }, sizes,
                  { "extra_k" }),

  axis "extra"    { "lora" },
  axis "schedule" { "cooperative", "pingpong" },
  axis "tile"     { {64, 256, 64}, {128, 128, 64}, {128, 256, 64} },
  axis "cluster"  { {1, 1}, {2, 1} },

  requires "k <= 2147352576" "steps of k, and of the rank, are counted in 32 bits",
  ragged_m()
}

-- y = x wᵀ and dx = dy w with rows of D anywhere, in other GPUs' memory, too: stored by threads,
-- 128 bytes of each row at a time.
kernels "sm90_scatter_m" {
  op       = { "fprop", "dgrad" },
  element  = { bf16, f16 },
  scale    = "none",
  layout   = { "tn", "nn" },
  ragged   = "m",
  d        = { bf16, f16 },
  arch     = "sm_90a",
  template = "sm90/gemm.cu",
  params   = join({ "a_map", "b_map", "b_pointer_map", "b_pointers", "d", "d_stride", "scatter",
                    "addresses" }, sizes),

  axis "scatter"  { "scatter_d" },
  axis "schedule" { "cooperative", "pingpong" },
  axis "tile"     { {64, 256, 64}, {128, 128, 64}, {128, 256, 64} },
  axis "cluster"  { {1, 1}, {1, 2} },

  ragged_m()
}

-- SPDX-License-Identifier: Apache-2.0
