-- Sizes of groups that the host knows, on their way to the GPU.

kernels "sizes" {
  op = "sizes", of = "x", input = "f32",
  element = { bf16, f16, e4m3, e5m2, e2m3, e3m2, e2m1, i8, i4, u4, u8 },
  scale = { "none", "blocked" }, arch = { "sm_80", "sm_90a", "sm_100f", "sm_120a" },
  template = "common/host_sizes.cu", params = { "host_sizes", "device_sizes" },
  derive "threads" (256),
}

-- SPDX-License-Identifier: Apache-2.0
