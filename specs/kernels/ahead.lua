-- What a product needs besides whose operands were expanded ahead: alpha and beta with the scales
-- of the second level, and for sums over tokens where each group begins and ends.

kernels "ahead" {
  op = "ahead", of = "x", input = "f32", element = { bf16, f16, e4m3, e5m2, e2m3, e3m2, e2m1, i8 },
  scale = { "none", "blocked" }, arch = { "sm_80", "sm_90a", "sm_120a" },
  template = "common/ahead.cu",
  params = { "a_global", "b_global", "alpha", "beta", "scalar_step", "factors", "first_dims",
             "offsets", "sizes_bytes", "groups", "m", "align", "device_sizes" },
  derive "threads" (function () return 256 end),
}
