-- The oracle, and the backend without a GPU: fp32 sums over k in ascending order, on all cores.
--
-- Layout and ragged axis are parameters, so that the kernels of one pair of types differ by nothing
-- but their names, and are compiled once. With null for alpha, beta and c a kernel serves the
-- plainer epilogues.

local join = table.join

local values = { bf16, f16, e4m3, e5m2, e2m3, e3m2, e2m1, i8, i4, u4, u8 }

-- Parameters of all of them after their operands, and where the layout is a parameter, too.
local sizes = { "first_dims", "offsets", "sizes_bytes" }
local rest = { "groups", "m", "n", "k", "error", "microbatch_count", "microbatches", "noop" }
local laid_out = join(sizes, { "ragged", "a_major", "b_major", "gather", "topk", "tokens" }, rest)

-- The code below a product: a bias and an activation, or an activation backward.
local follow = { "alpha", "scalar_step", "bias", "saved", "saved_stride", "probability",
                 "activation", "interleave", "limit", "slope", "shift" }
local back = { "alpha", "scalar_step", "saved", "saved_stride", "probability", "partials",
               "row_partials", "activation", "interleave", "limit", "slope", "shift" }

-- Sums that fit into the vector registers, of 4 floats as of 16, and how many products at once.
local function tiles (microbatches)
  return
  derive "tile" { 4, 16, 128 },
  derive "microbatches" (microbatches)
end

-- Rows of A by indices: where each has fp32 scales of its own, as on GPUs.
local pairs_of = { "gather", "topk", "tokens" }
local function gathers ()
  return
  without "gather topk tokens" (function (v)
    local s = v.a.scale
    local own = s and (s.span == "row" or s.span == "block" and s.rows == 1 and s.order ~= "tiles")
    return v.ragged ~= "m" or not own or s.type ~= "f32" or s.global or s.apart
  end)
end

local function any_activation ()
  return
  derive "activation" "any",
  tiles(1)
end

kernels "host_gemm" {
  op       = { "fprop", "dgrad", "wgrad" },
  element  = { bf16, f16 },
  scale    = "none",
  layout   = { "tn", "nn", "nt", "tt" },
  ragged   = { "m", "n", "k", "none" },
  epilogue = "scale",
  arch     = "host",
  template = "host/gemm.c",
  params   = join({ "a", "b", "c", "d", "a_pointers", "b_pointers", "c_pointers", "d_pointers",
                    "a_stride", "b_stride", "c_stride", "d_stride",
                    "a_group_stride", "b_group_stride", "c_group_stride", "d_group_stride",
                    "alpha", "beta", "scalar_step" }, laid_out, { "scatter", "addresses" }),

  tiles(8)
}

-- With a bias and an activation, which is a parameter, too.
local operands = { "a", "b", "d", "a_pointers", "b_pointers", "a_stride", "b_stride", "d_stride",
                   "a_group_stride", "b_group_stride" }

kernels "host_gemm_activate" {
  op       = "fprop",
  element  = { bf16, f16 },
  scale    = "none",
  layout   = { "tn", "nn", "nt", "tt" },
  ragged   = "m",
  epilogue = "activate",
  arch     = "host",
  template = "host/gemm.c",
  params   = join(operands, follow, laid_out),

  any_activation()
}

-- Back through an activation: D is the gradient of its input.
kernels "host_gemm_gradient" {
  op       = "dgrad",
  element  = { bf16, f16 },
  scale    = "none",
  layout   = { "tn", "nn", "nt", "tt" },
  ragged   = "m",
  epilogue = "gradient",
  d        = { bf16, f16, f32 },
  arch     = "host",
  template = "host/gemm.c",
  params   = join(operands, back, laid_out),

  any_activation()
}

-- The same of quantized tensors: a scale's factor depends on its fields.
local scales = { "a_sf", "b_sf", "a_sf_stride", "b_sf_stride", "a_sf_group_stride",
                 "b_sf_group_stride", "a_global", "b_global" }

kernels "host_gemm_scaled" {
  op       = { "fprop", "dgrad", "wgrad" },
  element  = values,
  scale    = { "none", "blocked" },
  layout   = { "tn", "nn" }, -- nn: w's rowwise tensor in dgrad
  ragged   = { "m", "k" },
  epilogue = "scale",
  arch     = "host",
  template = "host/gemm_scaled.c",
  params   = join({ "a", "b", "c", "d", "c_pointers", "d_pointers",
                    "a_stride", "b_stride", "c_stride", "d_stride",
                    "b_group_stride", "c_group_stride", "d_group_stride" }, scales,
                  { "alpha", "beta", "scalar_step" }, sizes, pairs_of, rest,
                  { "scatter", "addresses" }),

  gathers(), tiles(8)
}

local scaled = join({ "a", "b", "d", "a_stride", "b_stride", "d_stride", "b_group_stride" }, scales)

kernels "host_gemm_scaled_activate" {
  op       = "fprop",
  element  = values,
  scale    = { "none", "blocked" },
  layout   = "tn",
  ragged   = "m",
  epilogue = "activate",
  arch     = "host",
  template = "host/gemm_scaled.c",
  params   = join(scaled, follow, sizes, pairs_of, rest),

  gathers(), any_activation()
}

kernels "host_gemm_scaled_gradient" {
  op       = "dgrad",
  element  = values,
  scale    = { "none", "blocked" },
  layout   = { "tn", "nn" },
  ragged   = "m",
  epilogue = "gradient",
  d        = { bf16, f16, f32 },
  arch     = "host",
  template = "host/gemm_scaled.c",
  params   = join(scaled, back, sizes, pairs_of, rest),

  gathers(), any_activation()
}

-- And the result as copies of an x. A scale must need no more than a tile of 128 x 128 of it.
local copies = { "row_sf", "column", "column_stride", "column_sf" }

local function copied (tensor)
  return
  reject (tensor .. " is kept as it is: there are no copies of it")
    (function (v) return not v.scale end),
  reject "a scale of the second level is that of more than a tile"
    (function (v) return v.scale and v.scale.global end),
  reject "rounding by chance takes a seed, which products have none of"
    (function (v) return v.scale and v.scale.stochastic end),
  any_activation()
end

kernels "host_gemm_scaled_copies" {
  op       = "fprop",
  element  = values,
  scale    = { "none", "block" },
  layout   = "tn",
  ragged   = "m",
  epilogue = "copies",
  arch     = "host",
  template = "host/gemm_scaled.c",
  params   = join(scaled, copies, follow, sizes, pairs_of, rest),

  gathers(), copied "x"
}

-- And going back as copies of a dy.
kernels "host_gemm_gradient_copies" {
  op       = "dgrad",
  element  = values,
  scale    = { "none", "block" },
  layout   = "tn",
  ragged   = "m",
  epilogue = "gradient_copies",
  d        = { bf16, f16, f32 },
  arch     = "host",
  template = "host/gemm_scaled.c",
  params   = join(scaled, copies, back, sizes, pairs_of, rest),

  gathers(), copied "dy"
}

-- SPDX-License-Identifier: Apache-2.0
