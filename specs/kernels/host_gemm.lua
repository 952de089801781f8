-- The oracle, and the backend without a GPU: fp32 sums over k in ascending order, on all cores.

kernels "host_gemm" {
  op       = "fprop",
  element  = { bf16, f16 },
  scale    = "none",
  layout   = "tn",
  ragged   = "m",
  arch     = "host",
  template = "host/gemm.c",
  params   = { "a", "b", "d", "a_stride", "b_stride", "d_stride", "first_dims", "offsets",
               "sizes_bytes", "groups", "m", "n", "k", "error" },

  derive "tile" (function (v) return { 4, 16, 256 } end),
}
