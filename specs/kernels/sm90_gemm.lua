-- 16-bit products on Hopper's tensor cores: d[i,:] = a[i,:] * b[g(i)]^T, rows i in groups g.

-- Bytes of shared memory: alignment and barriers aside, the slabs; one stage of A and B.
local function slab_memory(v) return 1 * KiB + 8 * v.slabs * 16 * 128 + 256 end
local function stage_memory(v) return (v.tile.m + v.tile.n) * v.tile.k * v.a.bytes end

kernels "sm90_gemm" {
  op       = "fprop",
  element  = { bf16, f16 },
  scale    = "none",
  layout   = "tn",
  ragged   = "m",
  arch     = "sm_90a",
  template = "sm90/gemm.cu",
  params   = { "a_map", "b_map", "d_map", "d_ragged_map", "first_dims", "offsets",
               "sizes_bytes", "groups", "m", "n", "k", "error" },

  axis "schedule" { "cooperative", "pingpong" },
  axis "tile"     { {128, 128, 64}, {128, 192, 64}, {128, 256, 64}, {256, 128, 64} },
  axis "cluster"  { {1, 1}, {1, 2} },

  -- Two math warpgroups and one that issues the copies.
  derive "threads" (function (v) return 3 * 128 end),

  -- Each of the 8 math warps stores D through slabs of 16 rows x 128 bytes.
  derive "slabs" (function (v) return 2 end),
  derive "stages" (function (v)
    return (227 * KiB - slab_memory(v)) // stage_memory(v)
  end),
  derive "smem" (function (v) return slab_memory(v) + v.stages * stage_memory(v) end),

  -- Row tiles visited together: clusters at work then share about 2048 rows of A in L2.
  derive "band" (function (v) return 2048 // v.tile.m end),

  derive "a_box" (function (v) return { v.tile.k, v.tile.m // v.cluster.n } end),
  derive "b_box" (function (v) return { v.tile.k, v.tile.n } end),
  derive "d_box" (function (v) return { 128 // v.d.bytes, 16 } end),

  requires "k % 8 == 0" "rows of A and B must start at multiples of 16 bytes",
  requires "m <= 2147483136" "rows of a tile are counted in 32 bits",
  requires "n % 8 == 0" "rows of D must start at multiples of 16 bytes",

  reject "one warpgroup's registers cannot hold the sums of a whole tile this large"
    (function (v) return v.schedule == "pingpong" and v.tile.m * v.tile.n > 128 * 160 end),
  reject "fewer than 3 stages cannot hide the latency of TMA"
    (function (v) return v.stages < 3 end),
}
