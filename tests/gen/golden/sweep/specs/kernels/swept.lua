kernels "swept" {
  op       = "fprop",
  element  = bf16,
  layout   = "tn",
  ragged   = "m",
  arch     = "sm_90a",
  template = "s/swept.cu",
  recipe   = "bf16",
  d        = bf16,
  params   = { "a", "m" },

  axis "what" { "nothing", "each", "all", "include" },
}
