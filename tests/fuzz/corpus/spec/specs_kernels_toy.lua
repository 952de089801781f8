--@ specs/kernels/toy.lua
kernels "toy" {
  op       = { "fprop", "dgrad" },
  element  = { bf16, f16 },
  layout   = { "tn", "nn" },
  ragged   = "m",
  arch     = "sm_90a",
  template = "toy/gemm.cu",
  recipe   = "bf16",
  d        = bf16,
  params   = { "a_map", "a", "first_dims", "m" },

  axis "schedule" { "cooperative", "pingpong" },
  axis "tile"     { {128, 64, 32}, {64, 64, 32} },
  axis "depth"    { 2 },

  derive "stages" (function (v) return 64 * KiB // (v.tile.m * v.tile.k * v.a.bytes) end),
  derive "a_box"  (function (v) return { v.tile.k, v.tile.m } end),
  derive "wide"   (function (v) return v.tile.m > v.tile.n end),

  requires "k % 8 == 0" "a \"quoted\" reason, with a \\ and a ??/",
  reject "pingpong needs \"wide\" tiles"
    (function (v) return v.schedule == "pingpong" and not v.wide end),
}
