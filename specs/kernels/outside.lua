-- Zeros in D outside the groups.

local params = { "d", "d_stride", "d_bytes", "m", "n", "ragged", "groups", "first_dims", "offsets",
                 "sizes_bytes", "noop" }

kernels "outside" {
  op = "outside", of = "x", input = "f32", element = bf16, scale = "none",
  arch = { "sm_80", "sm_90a", "sm_100f", "sm_120a" }, template = "common/outside.cu",
  params = params,
  derive "threads" (256),
  derive "ctas" (4),
}

kernels "host_outside" {
  op = "outside", of = "x", input = "f32", element = bf16, scale = "none", arch = "host",
  template = "host/outside.c", params = params,
}

-- SPDX-License-Identifier: Apache-2.0
