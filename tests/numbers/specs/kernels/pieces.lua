-- Not products: every piece of templates/cast and templates/activation after a loop over an array,
-- as C and as CUDA C.

kernels "casts" {
  op = "fprop", element = bf16, recipe = "bf16", layout = "tn", ragged = "m", params = { "a", "d" },
  arch = { "host", "sm_80", "sm_90a" }, template = "casts.cu",
  axis "part" { "nearest", "chance", "math", "activations" },
}

-- Those of templates/dequantize, which are for Hopper.
kernels "expansions" {
  op = "fprop", element = bf16, recipe = "bf16", layout = "tn", ragged = "m", params = { "a", "d" },
  arch = { "host", "sm_90a" }, template = "casts.cu",
  axis "part" { "dequantize" },
}

-- SPDX-License-Identifier: Apache-2.0
