-- Products of 8-bit values with scales on Hopper's tensor cores, from the quantizer's copies: both
-- operands are along k. Paths are chosen by a recipe's fields, never by its name.

-- The scales of a product: one for each group; rows; or blocks of 128 steps of k, each added up
-- with its own factors, B's in squares of 128 x 128 or in lines as A's are.
local function factors (v)
  local a, b = v.a.scale, v.b.scale
  if a.span == "tensor" then return "group" end
  if a.span ~= "block" then return a.span end
  return b.rows == 128 and "squares" or "lines"
end

-- Scales that the copy engine loads with a stage, in bytes. Rows of a group begin anywhere,
-- boxes at multiples of 16 bytes: each box of up to 128 rows has 4 more.
local function sf_rows (v)
  return v.factors == "squares" and math.min(v.tile.m, 128) + 4 or v.tile.m
end
local function sf_memory (v)
  local boxes = (v.tile.m + 127) // 128
  local boxes_of_rows = v.quantize ~= "mainloop" and v.gather == "none"
  if not boxes_of_rows and v.factors == "squares" then return v.tile.m * 4 end
  if v.factors == "squares" then return (boxes * sf_rows(v) * 4 + 127) // 128 * 128 end
  return v.factors == "lines" and (v.tile.m + v.tile.n) * 4 or 0
end

-- Values that are quantized next to the products, two bytes each, have a ring of their own.
local function value_memory (v) return v.tile.m // v.cluster.n * v.tile.k * 2 end

-- Bytes of shared memory: alignment, tile queue and barriers aside, the slabs, and B's scales that
-- eight warps read ahead; one stage.
local function slab_memory (v)
  local rows = v.store == "warps" and 8 * 16 or 2 * 64
  local made = v.epilogue == "copies" or v.epilogue == "gradient_copies"
  local copies = made and 21 * KiB or 0 -- a columnwise tensor on its way
  local barriers = v.addend == "fetch" and 8 * v.slabs * 8 or 0
  local ahead = v.whole and v.factors == "squares" and 8 * 32 * 16 or 0
  return 1 * KiB + v.slabs * rows * 128 + barriers + copies + 512 + ahead
end
local function stage_memory (v) return (v.tile.m + v.tile.n) * v.tile.k + sf_memory(v) end

-- Does something follow the product that takes more than one column?
local function follows (v) return v.epilogue == "activate" or v.epilogue == "copies" end

local function common (merges, quantizes, gathers, scatters)
  return
  gathers and requires "k % 16 == 0" "rows of tokens are copied 16 bytes at a time"
          or derive "gather" "none",
  scatters and reject "rows that go anywhere are stored 16 bytes at a time, of 16 bits"
                 (function (v) return v.d.bytes ~= 2 end)
           or derive "scatter" "none",
  not quantizes and derive "quantize" "pass"
               or requires "k % 8 == 0" "rows of the quantized operand are read 16 bytes at a time",
  merges and requires "k <= 268435328" "steps of k of 8 products are counted in 32 bits"
         or derive "microbatches" (1),
  derive "factors" (factors),
  derive "dequantize" "none",
  -- Loops that run once a tile or less, and those that copy and multiply, are not unrolled: half as
  -- many instructions to compile, where a GPU has shown that it costs nothing (bench/notes: host).
  derive "scheduler_rolled" (function (v)
    return v.factors ~= "squares" and v.microbatches == 1
  end),
  derive "rolled" (function (v)
    return v.scheduler_rolled and v.factors ~= "lines" and not follows(v)
  end),
  derive "bytes" (function (v) return v.a.bytes end),

  -- A warpgroup with two-level accumulation has 64 x 128 sums in the tensor cores and as many as
  -- 128 x 128 or 64 x 256 next to them: rows as wide as the tile if an activation takes operands
  -- from them. Or 64 x 192 of both.
  derive "split" (function (v)
    if v.schedule ~= "cooperative" then return "none" end
    local wide = v.promote > 0 and v.tile.n == 256 and not follows(v)
    return (v.tile.m < 128 or wide) and "n" or "m"
  end),
  derive "mma_n" (function (v)
    local columns = v.split == "n" and v.tile.n // 2 or v.tile.n
    return v.promote > 0 and columns ~= 192 and math.min(columns, 128) or columns
  end),
  -- Is a warpgroup's part of a step one product? Then its further data are laid out before.
  derive "pair" (false),
  derive "turned" (false),
  derive "a_runs" (false),
  derive "whole" (function (v)
    local one = v.tile.m == 64 or v.tile.m == 128 and v.tile.n == 192
    return one and v.promote > 0 and v.schedule == "cooperative" and v.factors ~= "lines"
           and v.epilogue == "store" and v.quantize == "pass"
  end),
  derive "threads" (3 * 128),

  -- Warpgroups that store at the same time do so at once; else each warp through a few slabs.
  derive "store" (function (v)
    local whole = v.epilogue == "store" and v.d.bytes == 2 and v.quantize ~= "mainloop"
                  and v.scatter == "none"
    return whole and v.schedule == "cooperative" and "warpgroup" or "warps"
  end),
  derive "slabs" (function (v)
    if v.store == "warpgroup" then return v.tile.m * v.tile.n * v.d.bytes // (2 * 64 * 128) end
    return v.addend == "fetch" and 4 or 2
  end),
  -- Quantized operands come from memory, multiplied ones mostly from L2.
  derive "stages" (function (v)
    local room = 227 * KiB - slab_memory(v)
    if v.quantize ~= "mainloop" then return room // stage_memory(v) end
    return math.min((room - 3 * value_memory(v)) // stage_memory(v), 3)
  end),
  derive "value_stages" (function (v)
    if v.quantize ~= "mainloop" then return 0 end
    return (227 * KiB - slab_memory(v) - v.stages * stage_memory(v)) // value_memory(v)
  end),
  derive "smem" (function (v)
    return slab_memory(v) + v.stages * stage_memory(v) + v.value_stages * value_memory(v)
  end),
  derive "longest_first" (function (v) return v.ragged == "k" and 1 or 0 end),
  derive "registers" (function (v)
    if v.microbatches > 1 or v.quantize ~= "pass" or v.gather ~= "none" then return { 72, 216 } end
    return v.schedule == "pingpong" and v.tile.n == 192 and { 40, 232 } or { 56, 224 }
  end),

  derive "a_box" (function (v) return { v.tile.k, v.tile.m // v.cluster.n } end),
  derive "b_box" (function (v)
    local halves = follows(v) and v.operands == "halves"
    return { v.tile.k, halves and v.tile.n // 2 or v.tile.n }
  end),
  derive "d_box" (function (v) return { 128 // v.d.bytes, v.store == "warps" and 16 or 64 } end),
  derive "a_sf_box" (function (v) return { sf_rows(v), 1 } end),
  derive "b_sf_box" (function (v) return { v.tile.n, 1 } end),

  requires "n % 8 == 0" "rows of D must start at multiples of 16 bytes",
  requires "n <= 2147483136" "columns of a tile are counted in 32 bits",

  reject "the tensor cores promote every 128 steps of k, or never"
    (function (v) return v.promote ~= 0 and v.promote ~= 128 end),
  reject "blocks of scales must span 128 steps of k, with a scale in fp32 for each row of A"
    (function (v)
      local a = v.a.scale
      return a.span == "block" and (a.k ~= 128 or a.rows ~= 1 or a.type ~= "f32"
             or a.order ~= "columns" or v.promote ~= 128)
    end),
  reject "B's blocks must be 128 x 128, row by row, or as A's are"
    (function (v)
      local a, b = v.a.scale, v.b.scale
      if a.span ~= "block" then return false end
      if b.span ~= "block" or b.k ~= 128 or b.type ~= "f32" then return true end
      if v.ragged == "k" then return b.rows ~= 1 or b.order ~= "columns" end
      return b.rows ~= 128 or b.order ~= "rows"
    end),
  reject "A and B must be scaled alike, in fp32"
    (function (v)
      local a, b = v.a.scale, v.b.scale
      local span = { tensor = "group", group = "group", row = "row", block = "block" }
      return span[a.span] ~= span[b.span] or a.type ~= "f32" or b.type ~= "f32"
             or a.global or b.global
    end),
  reject "while it adds up, only one warpgroup would leave the tensor cores idle"
    (function (v) return v.promote > 0 and v.schedule == "pingpong" end),
  reject "a tile has 64, 128 or 256 rows, 128, 192 or 256 columns, and 128 values of k"
    (function (v)
      local rows = v.tile.m == 64 or v.tile.m == 128 or v.tile.m == 256
      local columns = v.tile.n == 128 or v.tile.n == 192 or v.tile.n == 256
      return not (rows and columns and v.tile.k == 128)
    end),
  reject "a tile of 64 rows has too few for two warpgroups in turn"
    (function (v) return v.tile.m < 128 and v.schedule == "pingpong" end),
  reject "one warpgroup's registers cannot hold the sums of a whole tile this large"
    (function (v)
      local most = v.ragged == "k" and 128 * 128 or 128 * 192
      return v.schedule == "pingpong" and v.tile.m * v.tile.n > most
    end),
  reject "C with two-level sums leaves too few registers: some would spill"
    (function (v)
      return v.promote > 0 and v.addend == "read" and v.tile.m * v.tile.n > 128 * 128
    end),
  reject "warpgroups would wait for ever for more registers than their CTA was given"
    (function (v) return v.registers[1] + 2 * v.registers[2] > 3 * 168 end),
  reject "fewer than 2 stages cannot hide the latency of TMA"
    (function (v) return v.stages < 2 end)
end

-- Sums of int8 are exact in 32 bits, so long as they fit, and need no promotion.
local function exact (...)
  return
  requires "k <= 133120" "sums of as many products of int8 must fit into 32 bits",
  reject "sums of int8 are exact: there is nothing to promote"
    (function (v) return v.promote ~= 0 end),
  reject "sums that become fp32 take twice their registers: some of these would spill"
    (function (v)
      local most = v.addend == "read" and 128 * 128 or 128 * 192
      return v.schedule == "pingpong" or v.tile.m * v.tile.n > most
    end),
  common(...)
end

local function ragged_m (kind, quantizes, gathers, scatters)
  return
  requires "m <= 2147483136" "rows of a tile are counted in 32 bits",
  requires "(m / 64 + groups) * (n / 128 + 1) < 2147483648" "tiles are counted in 31 bits",
  (kind == "int8" and exact or common)(nil, quantizes, gathers, scatters)
end

-- Activations of two columns.
local function whole_fragments ()
  return
  reject "a thread has pairs of columns in fragments of 8: runs of both operands are neither"
    (function (v) return v.interleave ~= 1 and v.interleave % 8 ~= 0 end)
end

-- Results that are quantized.
local function makes_copies (gathers)
  return
  whole_fragments(),
  reject "scales of the result must be in one matrix, with one for each row and 128 results"
    (function (v) return v.a.scale.apart or v.a.scale.rows ~= 1 or v.a.scale.k ~= 128 end),
  reject "the copies' values must be rounded to nearest, as they are"
    (function (v) return v.a.scale.stochastic or v.a.scale.hadamard end),
  ragged_m(nil, nil, gathers)
end

local function ragged_k (kind)
  return
  requires "k <= 2147352576" "steps of k are counted in 32 bits",
  requires "m <= 2147483136" "rows of a tile are counted in 32 bits",
  requires "groups * (m / 128 + 1) * (n / 128 + 1) < 2147483648" "tiles are counted in 31 bits",
  (kind == "int8" and exact or common)()
end

local sizes = { "first_dims", "offsets", "sizes_bytes", "groups", "m", "n", "k", "band", "error",
                "noop" }
local added = { "c", "c_pointers", "c_stride", "c_group_stride" }
local scalars = { "alpha", "beta", "scalar_step" }

-- The scales of groups and rows are read where they are; of blocks mostly by the copy engine.
local sf = {
  whole  = { "a_sf", "a_sf_group_stride", "b_sf", "b_sf_group_stride" },
  square = { "a_sf_map", "b_sf", "b_sf_stride", "b_sf_group_stride" },
  line   = { "a_sf_map", "b_sf_map" },
}
local spans = { whole = { "tensor", "group", "row" }, square = { "block" }, line = { "block" } }
sf.int8, spans.int8 = sf.whole, spans.whole

local floats = { e4m3, e5m2 }
local element = { whole = floats, int8 = { i8 }, square = floats, line = floats }

local join = table.join

-- y = x wᵀ and dx = dy w: rows of A and D in groups, one matrix B for each.
local maps = { "a_map", "b_map", "b_pointer_map", "d_map", "d_ragged_map" }
local rows = join(maps, { "b_pointers" })

for _, kind in ipairs { "whole", "int8", "square" } do
  kernels("sm90_" .. kind .. "_m") {
    op = { "fprop", "dgrad" }, element = element[kind], scale = spans[kind], layout = "tn",
    ragged = "m", arch = "sm_90a", template = "sm90/gemm.cu",
    params = join(rows, sf[kind], sizes),

    axis "schedule" { "cooperative", "pingpong" },
    axis "tile"     { {64, 256, 128}, {128, 128, 128}, {128, 192, 128}, {128, 256, 128},
                      {256, 128, 128} },
    axis "cluster"  { {1, 1} },
    derive "addend" "none",
    ragged_m(kind)
  }

  kernels("sm90_" .. kind .. "_m_scale") {
    op = { "fprop", "dgrad" }, element = element[kind], scale = spans[kind], layout = "tn",
    ragged = "m", epilogue = "scale", arch = "sm_90a", template = "sm90/gemm.cu",
    params = join(rows, sf[kind], added, scalars, sizes),

    axis "schedule" { "cooperative" },
    axis "tile"     { {128, 128, 128}, {128, 256, 128} },
    axis "cluster"  { {1, 1} },
    derive "addend" "read",
    ragged_m(kind)
  }
end

-- The same with rows of D anywhere, in other GPUs' memory, too: see sm90_scatter_m.
local anywhere = { "a_map", "b_map", "b_pointer_map", "b_pointers", "d", "d_stride", "scatter",
                   "addresses" }

for _, kind in ipairs { "whole", "int8", "square" } do
  kernels("sm90_scatter_" .. kind .. "_m") {
    op = { "fprop", "dgrad" }, element = element[kind], scale = spans[kind], layout = "tn",
    ragged = "m", arch = "sm_90a", template = "sm90/gemm.cu",
    params = join(anywhere, sf[kind], sizes),

    axis "scatter"  { "scatter_d" },
    axis "schedule" { "cooperative" },
    axis "tile"     { {64, 256, 128}, {128, 128, 128}, {128, 256, 128} },
    axis "cluster"  { {1, 1} },
    derive "addend" "none",
    ragged_m(kind, nil, nil, "scatters")
  }
end

-- y = activation(x wᵀ + bias), times a number for each row: see sm90_gemm_m_activate. If two
-- halves are interleaved, squares of B's scales must not span both.
local forward = join(maps, { "p_map", "p_ragged_map", "b_pointers" })
local finish = { "alpha", "scalar_step", "bias", "saved", "probability", "limit", "slope",
                  "shift" }
-- Constants that only one activation has.
local function constants ()
  return without "limit slope shift" (function (v) return v.activation ~= "clamped_swiglu" end)
end
local results = {
  one    = { join({ "none" }, activations.plain), { 0 } },
  halves = { join(activations.gated), { 0 } },
  runs   = { join(activations.gated), { 1, 8, 32 } },
}

for _, kind in ipairs { "whole", "square" } do
  for operands, axes in pairs(results) do
    local apart = kind == "square" and operands == "halves"

    kernels("sm90_" .. kind .. "_m_activate_" .. operands) {
      op = "fprop", element = element[kind], scale = spans[kind], layout = "tn", ragged = "m",
      epilogue = "activate", arch = "sm_90a", template = "sm90/gemm.cu",
      params = join(forward, sf[kind], finish, sizes),

      axis "activation" (axes[1]),
      axis "interleave" (axes[2]),
      axis "schedule" { "cooperative", "pingpong" },
      axis "tile"     { {64, 256, 128}, {128, 128, 128}, {128, 256, 128} },
      axis "cluster"  { {1, 1} },
      derive "operands" (operands),
      derive "addend" "none",

      apart and requires "n % 256 == 0" "each half of B must be whole blocks of its scales"
            or requires "n % 8 == 0" "rows of P must start at multiples of 16 bytes",
      whole_fragments(), constants(),
      reject "two warpgroups that share 64 rows would each have one half of a result's operands"
        (function (v) return operands == "halves" and v.tile.m < 128 end),
      ragged_m(kind)
    }
  end
end

-- dp from dh = dy w: see sm90_gemm_m_gradient.
local backward = join(maps, { "p_map", "b_pointers" })
local back = { "alpha", "scalar_step", "probability", "partials", "row_partials", "limit", "slope",
               "shift" }
local gradients = { one = { join(activations.plain), { 0 } }, halves = results.halves,
                    runs = results.runs }

for _, kind in ipairs { "whole", "square" } do
  for operands, axes in pairs(gradients) do
    kernels("sm90_" .. kind .. "_m_gradient_" .. operands) {
      op = "dgrad", element = element[kind], scale = spans[kind], layout = "tn", ragged = "m",
      epilogue = "gradient", arch = "sm_90a", template = "sm90/gemm.cu", d = { bf16, f16 },
      params = join(backward, sf[kind], back, sizes),

      axis "activation" (axes[1]),
      axis "interleave" (axes[2]),
      axis "schedule" { "cooperative", "pingpong" },
      axis "tile"     { {128, 128, 128}, {128, 256, 128} },
      axis "cluster"  { {1, 1} },
      derive "operands" (operands),
      derive "addend" "fetch",

      operands == "halves" and requires "n % 64 == 0" "each half of D must be whole slabs"
                           or requires "n % 8 == 0" "rows of P must start at multiples of 16 bytes",
      whole_fragments(), constants(),
      ragged_m(kind)
    }
  end
end

-- The same of fprop, and the results become copies of an x, as the next product takes it: a tile's
-- results are one block of scales, of rows as of columns.
local copies = { "row_sf", "column", "column_stride", "column_sf" }

for operands, axes in pairs(results) do
  local two = operands ~= "one"

  kernels("sm90_square_m_copies_" .. operands) {
    op = "fprop", element = floats, scale = "block", layout = "tn", ragged = "m",
    epilogue = "copies", arch = "sm_90a", template = "sm90/gemm.cu", d = { bf16, f16 },
    params = join(forward, sf.square, finish, copies, sizes),

    axis "activation" (axes[1]),
    axis "interleave" (axes[2]),
    axis "schedule" { "cooperative" },
    axis "tile"     { two and {128, 256, 128} or {128, 128, 128} },
    axis "cluster"  { {1, 1} },
    derive "operands" (operands),
    derive "addend" "none",

    two and requires "n % 256 == 0" "results must be whole blocks of 128"
        or requires "n % 128 == 0" "results must be whole blocks of 128",
    constants(), makes_copies()
  }
end

-- Products of a layer that read tokens of x or dy through indices: see sm90_gather_m. A token's
-- codes and scales are made once, for all of its rows.
local tokens = { "a", "a_stride", "gather", "topk", "tokens", "b_map", "b_pointer_map", "d_map",
                 "d_ragged_map" }
local token_sf = {
  row    = { "a_sf", "b_sf", "b_sf_group_stride" },
  square = { "a_sf", "a_sf_stride", "b_sf", "b_sf_stride", "b_sf_group_stride" },
}

for _, kind in ipairs { "row", "square" } do
  kernels("sm90_gather_" .. kind .. "_m") {
    op = { "fprop", "dgrad" }, element = floats, scale = kind == "row" and "row" or "block",
    layout = "tn", ragged = "m", arch = "sm_90a", template = "sm90/gemm.cu",
    params = join(tokens, { "b_pointers" }, token_sf[kind], sizes),

    axis "gather"   { "gather_a" },
    axis "schedule" { "cooperative" },
    axis "tile"     { {64, 256, 128}, {128, 256, 128} },
    axis "cluster"  { {1, 1} },
    derive "addend" "none",
    ragged_m(kind, nil, "gathers")
  }
end

for operands, axes in pairs(results) do
  local two = operands ~= "one"

  kernels("sm90_gather_m_copies_" .. operands) {
    op = "fprop", element = floats, scale = "block", layout = "tn", ragged = "m",
    epilogue = "copies", arch = "sm_90a", template = "sm90/gemm.cu", d = { bf16, f16 },
    params = join(tokens, { "p_map", "p_ragged_map", "b_pointers" }, token_sf.square, finish,
                  copies, sizes),

    axis "gather"   { "gather_a" },
    axis "activation" (axes[1]),
    axis "interleave" (axes[2]),
    axis "schedule" { "cooperative" },
    axis "tile"     { two and {128, 256, 128} or {128, 128, 128} },
    axis "cluster"  { {1, 1} },
    derive "operands" (operands),
    derive "addend" "none",

    two and requires "n % 256 == 0" "results must be whole blocks of 128"
        or requires "n % 128 == 0" "results must be whole blocks of 128",
    reject "situ and the addresses of rows need more registers than there are: some would spill"
      (function (v) return v.activation == "situ" end),
    constants(), makes_copies("gathers")
  }
end

-- And dp as copies of a dy, whose rows may be tokens. Each operand makes a block of 128 columns of
-- the product and of P.
local function dy_copies (operands, axes, gathers)
  local a, a_sf = backward, sf.square
  if gathers then a, a_sf = join(tokens, { "p_map", "b_pointers" }), token_sf.square end
  local grid = {
    op = "dgrad", element = floats, scale = "block", layout = "tn", ragged = "m", arch = "sm_90a",
    epilogue = "gradient_copies", template = "sm90/gemm.cu", d = { bf16, f16 },
    params = join(a, a_sf, back, copies, sizes),

    axis "activation" (axes[1]),
    axis "interleave" (axes[2]),
    axis "schedule" { "cooperative" },
    axis "tile"     { {128, 128, 128} },
    axis "cluster"  { {1, 1} },
    derive "operands" (operands),
    derive "addend" "fetch",

    requires "n % 128 == 0" "results must be whole blocks of 128",
    constants(), makes_copies(gathers)
  }
  if gathers then table.insert(grid, 1, axis "gather" { "gather_a" }) end
  kernels((gathers and "sm90_gather" or "sm90_square") .. "_m_dy_copies_" .. operands)(grid)
end

for operands, axes in pairs(gradients) do
  dy_copies(operands, axes)
  dy_copies(operands, axes, "gathers")
end

-- The same, which quantizes A in the mainloop and writes nothing except D: three warps that the
-- products do not need quantize A's values in shared memory, again for each column of tiles, or of
-- pairs.
kernels "sm90_square_m_mainloop" {
  op = { "fprop", "dgrad" }, element = element.square, scale = spans.square, layout = "tn",
  ragged = "m", arch = "sm_90a", template = "sm90/gemm.cu",
  params = join({ "in_map", "b_map", "b_pointer_map", "d_map", "d_ragged_map", "b_pointers", "b_sf",
                  "b_sf_stride", "b_sf_group_stride" }, sizes),

  axis "schedule" { "cooperative" },
  axis "tile"     { {64, 256, 128}, {128, 128, 128}, {128, 256, 128} },
  axis "cluster"  { {1, 1}, {1, 2} },
  axis "quantize" { "mainloop" },
  derive "addend" "none",
  reject "32 rows for each CTA are fewer than the warps that quantize take at a time"
    (function (v) return v.tile.m // v.cluster.n < 64 end),
  reject "codes drawn by chance need a seed, and transformed values another pass"
    (function (v) return v.a.scale.stochastic or v.a.scale.hadamard end),
  ragged_m("square", "mainloop")
}

-- dw = dyᵀ x: see grids of sm90_gemm.lua.
local function grids (name, kind, operands, tail, schedules, tiles, rules)
  local function c_path (of, ...)
    if of == "_fetch" then return axis "addend" { "fetch" }, ... end
    return
    -- fp32 sums in L2, others in registers
    derive "addend" (function (v)
      if v.epilogue == "store" then return "none" end
      return v.epilogue == "add" and v.d.bytes == 4 and "reduce" or "read"
    end),
    without "c c_pointers c_stride c_group_stride" (function (v) return v.addend ~= "read" end),
    ...
  end
  local small = { {128, 128, 128}, {128, 256, 128} }

  for of, one in pairs {
    [""]       = { { "store", "add" }, added, schedules, tiles or small },
    ["_fetch"] = { "add", {}, schedules, join(small, { {256, 128, 128} }), d = f32 },
    ["_scale"] = { "scale", join(added, scalars), { "cooperative" }, small } } do
    kernels(name .. of) {
      op = "wgrad", element = element[kind], scale = spans[kind], layout = "tn", ragged = "k",
      epilogue = one[1], d = one.d, arch = "sm_90a", template = "sm90/gemm.cu",
      params = join(operands, one[2], tail),

      axis "schedule" (one[3]), axis "tile" (one[4]), axis "cluster" { {1, 1} },
      c_path(of, rules())
    }
  end
end

-- k in groups that begin at multiples of 128, one matrix D for each.
for _, kind in ipairs { "whole", "int8", "line" } do
  grids("sm90_" .. kind .. "_k", kind,
        join({ "a_map", "b_map", "d_map", "d_pointer_map", "d_pointers" }, sf[kind]), sizes,
        { "cooperative", "pingpong" },
        { {128, 128, 128}, {128, 192, 128}, {128, 256, 128}, {256, 128, 128} },
        function () return ragged_k(kind) end)
end

-- The same products of several microbatches that waited, as one: their tokens are one long k.
-- Scales of blocks come along with them; those of whole sums differ from one to the next, so there
-- each is a launch of its own.
grids("sm90_line_k_parts", "line",
      { "a_sf_tail_map", "b_sf_tail_map", "d_map", "d_pointer_map", "microbatch_maps",
        "microbatches", "microbatch_count", "d_pointers", "groups", "m", "n", "band", "error",
        "noop" },
      {}, { "cooperative" }, nil,
      function ()
  return
  axis "microbatches" { 8 },
  requires "m <= 2147483136" "rows of a tile are counted in 32 bits",
  requires "groups * (m / 128 + 1) * (n / 128 + 1) < 2147483648" "tiles are counted in 31 bits",
  common "merges"
end)

-- SPDX-License-Identifier: Apache-2.0
