-- Casts on GPUs: tiles of 128 x 128 values, read once.

local narrow = { e4m3, e5m2, e2m3, e3m2, e2m1, i8, i4, u4, u8 }
local every = { bf16, f16, e4m3, e5m2, e2m3, e3m2, e2m1, i8, i4, u4, u8 }
local wide = { "bf16", "f16", "f32" }
local archs = { "sm_80", "sm_90a", "sm_100f", "sm_120a" }

local rows = { "row", "row_stride", "row_sf", "row_global" }
local copies = table.join(rows, { "column", "column_stride", "column_sf", "column_global" })
local amax = { "row_amax", "column_amax" }
local shape = { "groups", "m", "k", "noop" }
local lengths = { "first_dims", "offsets", "sizes_bytes" }
local sizes = table.join(lengths, { "error" })
local tokens = { "gather", "topk" } -- rows of experts are read in tokens' order; null: in their own

local join = table.join

-- The inputs of each form besides the quantized tensors.
local inputs = {
  plain    = { "in", "in_stride" },
  forward  = { "in", "in_stride", "probability", "activation", "interleave", "limit", "slope",
               "shift" },
  backward = { "in", "in_stride", "saved", "saved_stride", "probability", "activation",
               "interleave", "limit", "slope", "shift" },
}
inputs.forward = join(inputs.forward, { "saved", "saved_stride" })

-- A tile's values are in shared memory, and where they are copied there, those of the next tile
-- too: of 32 bits sm_120a has not the room. Two CTAs of 256 threads share a multiprocessor where
-- that memory and 128 registers are enough: three are no faster, as all wait for memory.
local function common ()
  return
  derive "threads" (256),
  derive "band" (16),
  derive "stages" (function (v)
    local copied = v.form == "plain" and v.input.type ~= "copy"
    return copied and (v.input.bits == 16 or v.arch ~= "sm_120a") and 2 or 1
  end),
  derive "smem" (function (v) return v.stages * 128 * 128 * (v.input.bits == 16 and 2 or 4) end),
  derive "ctas" (function (v)
    local turned = v.scale.hadamard and v.scale.k == 32 -- 32 values in registers
    local large = v.scale.stochastic and (turned or v.form ~= "plain")
    local roomy = v.arch == "sm_90a" or v.arch == "sm_100f" -- 227 KiB of shared memory
    return v.input.bits == 16 and roomy and not large and 2 or 1
  end)
end

-- Rows of w are not ragged: each group has a matrix.
for of, tensors in pairs { tokens = { "x", "dy" }, weights = { "w" } } do
  for _, form in ipairs { "plain", "forward", "backward" } do
    if of == "tokens" or form == "plain" then
      local groups = of == "tokens" and join(shape, sizes) or shape
      local input = form == "plain" and { "bf16", "f16", "f32", "copy" } or wide
      local from = of == "tokens" and inputs[form] or join(inputs[form], { "in_pointers" })
      local sums = of == "tokens" and { "dbias", "partials" } or {}
      local values = of == "tokens" and "in in_stride" or "in in_stride in_pointers"

      if of == "tokens" and form == "plain" then
        from, values = join(from, tokens), values .. " gather topk"
      end

      for _, arch in ipairs(archs) do
        kernels("cast_" .. of .. "_" .. form .. "_" .. arch) {
          op = "quantize", of = tensors, input = input, form = form, element = narrow,
          scale = "blocked", arch = arch, template = "quantize/quantize.cu",
          params = join(from, copies, amax, sums, { "scale", "history", "random" }, groups),
          without "scale history" (function (v) return not v.scale.delayed end),
          without "random" (function (v) return not v.scale.stochastic end),
          without (values) (function (v) return v.input.type == "copy" end),
          reject "zero points come from a block's least value, too"
            (function (v) return v.scale.zeros end),
          common(),
        }

        kernels("amax_" .. of .. "_" .. form .. "_" .. arch) {
          op = "amax", of = tensors, input = input, form = form, element = narrow,
          scale = "blocked", arch = arch, template = "quantize/amax.cu",
          params = join(from, rows, amax, of == "tokens" and join(shape, lengths) or shape),
          without "row row_stride row_sf row_global"
            (function (v) return v.input.type ~= "copy" end),
          without (values) (function (v) return v.input.type == "copy" end),
          common(),
        }
      end
    end
  end
end

-- If only the rowwise tensor is wanted and a row has one scale: rows are in shared memory until
-- their largest magnitude is known.
kernels "cast_rows" {
  op = "quantize", of = { "x", "dy" }, input = wide, form = "rows", element = narrow,
  scale = "blocked", arch = "sm_90a", template = "quantize/rows.cu",
  params = join(inputs.plain, tokens, { "row", "row_stride", "row_sf" }, shape, sizes),
  derive "threads" (416),
  derive "band" (1),
  derive "smem" (13 * 16384), -- 13 warps, rows of 8192 values in 16 bits
  derive "ctas" (1),
  reject "only rows with one scale are read twice" (function (v) return v.scale.span ~= "row" end),
  reject "stochastic rounding draws values for tiles" (function (v) return v.scale.stochastic end),
}

-- With a zero point next to each scale.
kernels "cast_zeros" {
  op = "quantize", of = "w", input = join(wide, { "copy" }), form = "plain", element = { u4, u8 },
  scale = "blocked", arch = archs, template = "quantize/zeros.cu",
  params = join(inputs.plain, { "in_pointers", "row", "row_stride", "row_sf", "column",
                                "column_stride", "column_sf" }, shape),
  without "in in_stride in_pointers" (function (v) return v.input.type == "copy" end),
  derive "threads" (256),
  derive "band" (16),
  derive "ctas" (4),
  reject "other casts are for scales without zero points"
    (function (v) return not v.scale.zeros end),
}

for of, tensors in pairs { tokens = { "x", "dy" }, weights = { "w" } } do
  kernels("dequantize_" .. of) {
    op = "dequantize", of = tensors, input = wide, element = narrow, scale = "blocked",
    arch = archs, template = "quantize/dequantize.cu",
    params = join(copies, { "out", "out_stride" },
                  of == "tokens" and join(shape, sizes, { "align" }) or shape),
    without "row_global column_global" (function (v) return not v.scale.global end),
    derive "threads" (256),
    derive "band" (16),
    derive "ctas" (function (v)
      return v.arch == "sm_90a" and v.input.bits == 16 and v.scale.type ~= "f32" and 3 or 2
    end),
  }
end

kernels "sum" {
  op = "sum", of = { "x", "dy" }, input = "f32", element = every, scale = { "none", "blocked" },
  arch = archs, template = "quantize/sum.cu",
  params = join({ "dbias", "dbias_add", "partials" }, shape, lengths),
  derive "threads" (256),
  derive "band" (1),
  derive "ctas" (4),
}

kernels "sum_rows" {
  op = "sum_rows", of = "dy", input = "f32", element = every, scale = { "none", "blocked" },
  arch = archs, template = "quantize/sum_rows.cu",
  params = join({ "dprob", "row_partials" }, shape, lengths),
  derive "threads" (128),
  derive "band" (1),
  derive "ctas" (4),
}

kernels "history" {
  op = "history", of = { "x", "w", "dy" }, input = "f32", element = narrow, scale = "blocked",
  arch = archs, template = "quantize/history.cu",
  params = { "scale", "history", "noop" },
  derive "threads" (256),
}

-- Activations of tensors without scales, and sums over its rows.
for _, form in ipairs { "plain", "forward", "backward" } do
  kernels("unquantized_" .. form) {
    op = "quantize", of = { "x", "dy" }, input = wide, form = form, element = { bf16, f16 },
    scale = "none", arch = archs, template = "quantize/unquantized.cu",
    params = join(inputs[form], form == "plain" and { "probability" } or {},
                  { "row", "row_stride", "dbias", "partials" }, shape, sizes),
    derive "threads" (256),
    derive "band" (1), -- COUPLED: bands
    derive "smem" (function (v) return 128 * 128 * (v.input.bits == 16 and 2 or 4) end),
    derive "ctas" (function (v) return v.input.bits == 16 and v.arch ~= "sm_120a" and 2 or 1 end),
  }
end

kernels "dprob" {
  op = "dprob", of = "dy", input = wide, form = "backward", element = every,
  scale = { "none", "blocked" }, arch = archs,
  template = "quantize/dprob.cu",
  params = join(inputs.backward, { "dprob" }, shape, sizes),
  derive "threads" (256),
  derive "band" (1), -- COUPLED: bands
  derive "ctas" (2),
}

-- The same where it multiplies a bias, of dy as it is.
kernels "dprob_bias" {
  op = "dprob", of = "dy", input = wide, form = "plain", element = { bf16, f16 },
  scale = "none", arch = archs, template = "quantize/dprob_bias.cu",
  params = join({ "in", "in_stride", "bias", "dprob" }, shape, sizes),
  derive "threads" (256),
  derive "band" (1), -- COUPLED: bands
  derive "ctas" (2),
}

-- The bias of a product whose kernel adds none.
kernels "bias" {
  op = "bias", of = "x", input = wide, form = "plain", element = { bf16, f16 },
  scale = "none", arch = archs, template = "quantize/bias.cu",
  params = join({ "out", "out_stride", "bias", "probability" }, shape, sizes),
  derive "threads" (256),
  derive "band" (16),
  derive "ctas" (4),
}

-- The code below a product whose kernel stops at its sums.
for _, form in ipairs { "forward", "backward" } do
  local back = form == "backward"

  kernels("epilogue_" .. form) {
    op = "epilogue", of = back and "dy" or "x", input = wide, form = form, element = bf16,
    scale = "none", arch = archs, template = "quantize/epilogue.cu",
    params = join({ "d", "d_stride" }, inputs[form],
                  back and { "partials", "row_partials" } or { "bias" }, shape, lengths),
    derive "threads" (64),
    derive "band" (1), -- COUPLED: bands
    derive "ctas" (8),
  }
end

-- SPDX-License-Identifier: Apache-2.0
