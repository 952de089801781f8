-- Casts on GPUs: tiles of 128 x 128 values, read once.

local narrow = { e4m3, e5m2, e2m3, e3m2, e2m1, i8 }
local numbers = { "bf16", "f16", "f32" }

local copies = { "row", "row_stride", "row_sf", "row_global",
                 "column", "column_stride", "column_sf", "column_global" }
local amax = { "row_amax", "column_amax" }
local shape = { "groups", "m", "k" }
local sizes = { "first_dims", "offsets", "sizes_bytes", "error" }

local function join (...)
  local list = {}
  for _, part in ipairs { ... } do
    for _, name in ipairs(part) do list[#list + 1] = name end
  end
  return list
end

-- What each form reads besides the copies.
local inputs = {
  plain    = { "in", "in_stride" },
  forward  = { "in", "in_stride", "probability", "activation", "interleave", "limit", "slope",
               "shift" },
  backward = { "in", "in_stride", "saved", "saved_stride", "probability", "activation",
               "interleave", "limit", "slope", "shift" },
}
inputs.forward = join(inputs.forward, { "saved", "saved_stride" })

-- Two CTAs of 256 threads share a multiprocessor where 128 registers are enough: not for values of
-- 32 bits, activations, or scales of two levels.
local function common ()
  return
  derive "threads" (function () return 256 end),
  derive "ctas" (function (v)
    return v.input.bits == 16 and v.form == "plain" and not v.scale.global and 2 or 1
  end)
end

-- Rows of w are not ragged: each group has a matrix.
for of, tensors in pairs { tokens = { "x", "dy" }, weights = { "w" } } do
  for _, form in ipairs { "plain", "forward", "backward" } do
    if of == "tokens" or form == "plain" then
      local groups = of == "tokens" and join(shape, sizes) or shape
      local input = form == "plain" and { "bf16", "f16", "f32", "copy" } or numbers
      local sums = of == "tokens" and { "dbias", "partials", "counters" } or {}

      for _, arch in ipairs { "sm_80", "sm_90a", "sm_120a" } do
        kernels("cast_" .. of .. "_" .. form .. "_" .. arch) {
          op = "quantize", of = tensors, input = input, form = form, element = narrow,
          scale = "blocked", arch = arch, template = "quantize/quantize.cu",
          params = join(inputs[form], copies, amax, sums, { "scale", "history", "random" },
                        groups),
          common(),
        }

        kernels("amax_" .. of .. "_" .. form .. "_" .. arch) {
          op = "amax", of = tensors, input = input, form = form, element = narrow,
          scale = "blocked", arch = arch, template = "quantize/amax.cu",
          params = join(inputs[form], copies, amax, groups),
          common(),
        }
      end
    end
  end
end

for of, tensors in pairs { tokens = { "x", "dy" }, weights = { "w" } } do
  kernels("dequantize_" .. of) {
    op = "dequantize", of = tensors, input = numbers, element = narrow, scale = "blocked",
    arch = { "sm_80", "sm_90a", "sm_120a" }, template = "quantize/dequantize.cu",
    params = join(copies, { "out", "out_stride" }, of == "tokens" and join(shape, sizes) or shape),
    derive "threads" (function () return 256 end),
    derive "ctas" (function () return 2 end),
  }
end

kernels "history" {
  op = "history", of = { "x", "w", "dy" }, input = "f32", element = narrow, scale = "blocked",
  arch = { "sm_80", "sm_90a", "sm_120a" }, template = "quantize/history.cu",
  params = { "scale", "history" },
  derive "threads" (function () return 256 end),
}
