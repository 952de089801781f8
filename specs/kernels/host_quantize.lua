-- The oracle of every recipe, and the backend without a GPU. Input and form are parameters, so that
-- the kernels of one tensor differ by nothing but their names, and are compiled once.

local narrow = { e4m3, e5m2, e2m3, e3m2, e2m1, i8, i4, u4, u8 }
local every = { bf16, f16, e4m3, e5m2, e2m3, e3m2, e2m1, i8, i4, u4, u8 }
local wide = { "bf16", "f16", "f32" }

local copies = { "row", "row_stride", "row_sf", "row_global",
                 "column", "column_stride", "column_sf", "column_global" }
local values = { "in", "in_stride", "in_group_stride", "saved", "saved_stride", "probability",
                 "input", "form", "activation", "interleave", "limit", "slope", "shift" }
local amax = { "row_amax", "column_amax" }
local shape = { "groups", "m", "k", "noop" }
local sizes = { "first_dims", "offsets", "sizes_bytes", "error" }

local join = table.join

-- Rows of w are not ragged: each group has a matrix.
for of, tensors in pairs { tokens = { "x", "dy" }, weights = { "w" } } do
  local groups = of == "tokens" and join(shape, sizes) or shape
  local from = of == "tokens" and { "gather", "topk" } or { "in_pointers" }
  local values = join(from, values)

  kernels("host_quantize_" .. of) {
    op = "quantize", of = tensors, input = { "bf16", "f16", "f32", "copy" }, element = narrow,
    form = { "plain", "forward", "backward" }, scale = "blocked", arch = "host",
    template = "host/quantize.c",
    params = join(values, copies, amax, { "dbias", "dbias_add", "scale", "history", "random" },
                  groups),
  }

  kernels("host_amax_" .. of) {
    op = "amax", of = tensors, input = { "bf16", "f16", "f32", "copy" }, element = narrow,
    form = { "plain", "forward", "backward" }, scale = "blocked", arch = "host",
    template = "host/amax.c",
    params = join(values, copies, amax, groups),
  }

  kernels("host_dequantize_" .. of) {
    op = "dequantize", of = tensors, input = wide, element = narrow, scale = "blocked",
    arch = "host", template = "host/dequantize.c",
    params = join(copies, { "input", "out", "out_stride" },
                  of == "tokens" and join(groups, { "align" }) or groups),
  }
end

kernels "host_history" {
  op = "history", of = { "x", "w", "dy" }, input = "f32", element = narrow, scale = "blocked",
  arch = "host", template = "host/history.c", params = { "scale", "history", "noop" },
}

-- Activations of tensors without scales, and sums over its rows.
kernels "host_unquantized" {
  op = "quantize", of = { "x", "dy" }, input = { "bf16", "f16", "f32" }, element = { bf16, f16 },
  form = { "plain", "forward", "backward" }, scale = "none", arch = "host",
  template = "host/unquantized.c",
  params = join(values, { "row", "row_stride", "dbias", "dbias_add" }, shape, sizes),
}

kernels "host_dprob" {
  op = "dprob", of = "dy", input = { "bf16", "f16", "f32" }, form = "backward",
  element = every, scale = { "none", "blocked" },
  arch = "host", template = "host/dprob.c", params = join(values, { "dprob" }, shape, sizes),
}

-- The same where it multiplies a bias, of dy as it is.
kernels "host_dprob_bias" {
  op = "dprob", of = "dy", input = { "bf16", "f16", "f32" }, form = "plain",
  element = { bf16, f16 }, scale = "none", arch = "host", template = "host/dprob_bias.c",
  params = join(values, { "bias", "dprob" }, shape, sizes),
}

-- The bias of a product whose kernel adds none.
kernels "host_bias" {
  op = "bias", of = "x", input = { "bf16", "f16", "f32" }, form = "plain",
  element = { bf16, f16 }, scale = "none", arch = "host", template = "host/bias.c",
  params = join({ "input", "out", "out_stride", "bias", "probability" }, shape, sizes),
}

-- The addition of the partial sums that a product with an activation backward leaves.
for op, sums in pairs { sum = { "dbias", "dbias_add", "partials" },
                        sum_rows = { "dprob", "row_partials" } } do
  kernels("host_" .. op) {
    op = op, of = "dy", input = "f32", element = every,
    scale = { "none", "blocked" }, arch = "host", template = "host/" .. op .. ".c",
    params = join(sums, shape, sizes),
  }
end

-- The code below a product that stops at its sums: there, only one with adapters does.
kernels "host_epilogue" {
  op = "epilogue", of = "x", input = { "bf16", "f16", "f32" }, form = "forward",
  element = bf16, scale = "none", arch = "host", template = "host/epilogue.c",
  params = join({ "in", "in_stride", "input", "out", "out_stride", "bias", "probability" }, shape,
                sizes),
}

-- SPDX-License-Identifier: Apache-2.0
