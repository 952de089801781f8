--@ specs/kernels/toy_host.lua
kernels "toy_host" {
  op       = "fprop",
  element  = { bf16, f16 },
  layout   = "tn",
  ragged   = "m",
  epilogue = { "store", "scale" },
  arch     = { "host", "sm_80" },
  template = "toy/host.cu",
  params   = { "a", "b", "d" },
}
