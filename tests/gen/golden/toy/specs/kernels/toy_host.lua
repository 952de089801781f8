kernels "toy_host" {
  op       = "fprop",
  element  = { bf16, f16 },
  layout   = "tn",
  ragged   = "m",
  arch     = "host",
  template = "toy/host.cu",
  params   = { "a", "b", "d" },
}
