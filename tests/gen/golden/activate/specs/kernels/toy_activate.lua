kernels "toy_activate" {
  op       = "fprop",
  element  = bf16,
  layout   = "tn",
  ragged   = "m",
  epilogue = "activate",
  arch     = "sm_90a",
  template = "toy/activate.cu",
  recipe   = "bf16",
  d        = bf16,
  params   = { "a", "b", "d", "p_map", "p_ragged_map", "bias", "probability" },

  axis "activation" { "none", "swiglu" },
  axis "interleave" { 0, 1, 8 },

  reject "nothing alternates"
    (function (v) return v.activation == "none" and v.interleave > 0 end),
  reject "runs of one column"
    (function (v) return v.interleave == 1 end),
}
