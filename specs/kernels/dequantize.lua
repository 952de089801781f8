-- Further inputs of a product whose operands were dequantized in a pass: alpha and beta with the
-- scales of the second level, for sums over tokens where each group begins and ends, and where
-- there are two strategies, which of them begins as the one that is taken.

kernels "factors" {
  op = "factors", of = "x", input = "f32", element = { bf16, f16, e4m3, e5m2, e2m3, e3m2, e2m1,
  i8, i4, u4, u8 }, scale = { "none", "blocked" },
  arch = { "sm_80", "sm_90a", "sm_100f", "sm_120a" },
  template = "common/factors.cu",
  params = { "a_global", "b_global", "alpha", "beta", "scalar_step", "factors", "first_dims",
             "offsets", "sizes_bytes", "groups", "m", "align", "device_sizes", "flags", "noop" },
  derive "threads" (256),
}

-- The same values as FP8 in blocks, where they fit: four bits under powers of two.
for of, tensors in pairs { tokens = { "x", "dy" }, weights = { "w" } } do
  local sizes = of == "tokens" and { "first_dims", "offsets", "sizes_bytes", "error" } or {}

  kernels("requantize_" .. of) {
    op = "requantize", of = tensors, input = "copy", element = e2m1, scale = "blocked",
    arch = "sm_90a", template = "quantize/requantize.cu",
    params = table.join({ "row", "row_stride", "row_sf", "column", "column_stride", "column_sf",
                          "out", "out_stride", "out_sf", "flags", "groups", "m", "k", "noop" },
                        sizes),
    derive "threads" (256),
    derive "band" (16),
    derive "ctas" (3),
    reject "only a power of two leaves a value its digits"
      (function (v) return v.scale.type ~= "e8m0" or v.scale.span ~= "block" end),
    reject "scales of a second level would have to be factors of sums"
      (function (v) return v.scale.global end),
    reject "next to FP8 with a scale for each row weights become such rows: requantize_rows"
      (function (v) return v.scale.as ~= false end),
  }
end

kernels "requantize_rows" {
  op = "requantize", of = "w", input = "copy", element = e2m1, scale = "blocked",
  arch = "sm_90a", template = "quantize/requantize_rows.cu",
  params = { "row", "row_stride", "row_sf", "out", "out_stride", "out_sf", "flags", "groups", "m",
             "k", "noop" },
  derive "threads" (256),
  derive "ctas" (4),
  reject "only where a recipe says so (as = e4m3) are blocks near enough to become e4m3"
    (function (v) return not v.scale.as end),
}

-- Whether e4m3 under scales of both operands fits f16: rows of codes, each with a row of scales.
kernels "range" {
  op = "range", of = "x", input = "f32", element = e4m3, scale = "blocked", arch = "sm_90a",
  template = "common/range.cu",
  params = { "a", "a_stride", "a_sf", "b", "b_stride", "b_sf", "first_dims", "offsets",
             "sizes_bytes", "groups", "m", "n", "k", "flags", "noop", "error" },
  derive "threads" (256),
  derive "ctas" (3),
  reject "only a power of two leaves a value its digits"
    (function (v) return v.scale.type ~= "e8m0" or v.scale.span ~= "block" or v.scale.global end),
}

-- SPDX-License-Identifier: Apache-2.0
