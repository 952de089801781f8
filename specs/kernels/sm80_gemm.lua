-- 16-bit products with mma.sync, for operands that wgmma and TMA do not support: rows that do not
-- start at multiples of 16 bytes, a ragged axis that is contiguous, GPUs before and after Hopper.

local sizes = { "first_dims", "offsets", "sizes_bytes" }
local always = { "alpha", "beta", "scalar_step", "groups", "m", "n", "k", "band", "noop" }

-- The parameters of operands: those with a matrix for each group may be arrays of pointers.
local function params(ragged)
  local list = {}
  local function add(names, prefix)
    for _, name in ipairs(names) do list[#list + 1] = (prefix or "") .. name end
  end
  local is_ragged = { a = ragged == "m" or ragged == "k", b = ragged == "n" or ragged == "k",
                      d = ragged == "m" or ragged == "n", c = ragged == "m" or ragged == "n" }
  for _, operand in ipairs { "a", "b", "c", "d" } do
    add { operand, operand .. "_stride" }
    if not is_ragged[operand] then add({ "_group_stride", "_pointers" }, operand) end
  end
  add(always)
  if ragged ~= "none" then
    add(sizes)
    add { "error" }
  end
  return list
end

-- Kernels for one ragged axis on one architecture. sm_80's also run on sm_86 and sm_89, sm_100f's
-- on GPUs of 10.0 and 10.3.
local function grid(arch, ragged, ops, extra, scatter)
  local form = extra and "_lora_" or scatter and "_scatter_" or "_"

  kernels("sm80_gemm_" .. ragged .. form .. arch) {
    op       = ops,
    element  = { bf16, f16 },
    scale    = "none",
    layout   = (extra or scatter) and { "tn", "nn" } or { "tn", "nn", "nt", "tt" },
    ragged   = ragged,
    epilogue = "scale",
    arch     = arch,
    template = "sm80/gemm.cu",
    params   = table.join(params(ragged), extra or scatter or {}),

    axis "tile" { {128, 128, 32}, {64, 64, 32} },

    -- 2 x 2 warps.
    derive "threads" (4 * 32),
    derive "warp"    (function (v) return { v.tile.m // 2, v.tile.n // 2 } end),
    derive "turned"  (false),

    -- Two CTAs, four of the small tile, share the 100 KiB that sm_86, sm_89 and sm_120 have.
    derive "stages" (function (v)
      return (v.arch == "sm_90a" or v.arch == "sm_100f") and 4 or 3
    end),
    derive "smem"   (function (v)
      return v.stages * (v.tile.m + v.tile.n) * v.tile.k * v.a.bytes
    end),

    -- CTAs on a multiprocessor: they share the registers.
    derive "ctas" (function (v) return v.tile.m >= 128 and 2 or 4 end),

    reject "a tile has 64 or 128 rows and columns, and 32 values of k"
      (function (v)
        local m, n = v.tile.m, v.tile.n
        return m ~= 64 and m ~= 128 or n ~= 64 and n ~= 128 or v.tile.k ~= 32
      end),
    reject "128 x 128 serves it: only along m and k are groups often this small"
      (function (v) return v.tile.m < 128 and v.ragged ~= "m" and v.ragged ~= "k" end),
    extra and axis "extra" { "lora" } or derive "extra" "none",
    scatter and axis "scatter" { "scatter_d" }
             or derive "scatter" "none",
  }
end

for _, arch in ipairs { "sm_80", "sm_90a", "sm_100f", "sm_120a" } do
  grid(arch, "m", { "fprop", "dgrad" })
  grid(arch, "n", { "fprop", "dgrad" })
  grid(arch, "k", { "wgrad" })
  grid(arch, "none", { "fprop", "dgrad", "wgrad" })
end

-- Low-rank adapters as more steps of k, for GPUs with no better tensor cores for 16 bits.
for _, arch in ipairs { "sm_80", "sm_120a" } do
  grid(arch, "m", { "fprop", "dgrad" }, { "extra_a", "extra_b", "extra_k" })
end

-- Rows of D anywhere, in other GPUs' memory, too.
for _, arch in ipairs { "sm_80", "sm_90a", "sm_100f", "sm_120a" } do
  grid(arch, "m", { "fprop", "dgrad" }, nil, { "scatter", "addresses" })
end

-- SPDX-License-Identifier: Apache-2.0
