-- Routes of tokens to experts: the order of rows, in two launches; tokens moved to rows, rows to
-- tokens; and of few tokens the first three in one launch. Types of values are a parameter.

local sizes = { "index", "sizes_bytes", "m", "topk", "experts", "first_expert", "groups" }
local maps = { "lengths", "starts", "gather", "inverse", "token_count", "error" }
local rows = { "input", "k", "probability", "in", "in_stride", "out", "out_stride",
               "pair_numbers", "row_numbers" }
local moves = table.join({ "m", "topk", "inverse" }, rows)

local works = {
  route_count = { path = "count.cu", params = table.join(sizes, { "counters" }), ctas = 2 },
  route_sort = { path = "sort.cu", ctas = 2,
                 params = table.join(sizes, { "counters" }, maps) },
  route_permute = { path = "route_permute.cu", ctas = 4,
                    params = table.join(sizes, maps, rows) },
  permute = { path = "permute.cu", ctas = 4,
              params = table.join(moves, { "rows", "rows_stride", "dprob" }) },
  combine = { path = "combine.cu", ctas = 4,
              params = table.join(moves, { "c", "c_stride", "addresses" }) },
}

for op, work in pairs(works) do
  kernels(op) {
    op = op, of = "x", input = "f32", element = bf16, scale = "none",
    arch = { "sm_80", "sm_90a", "sm_100f", "sm_120a" }, template = "route/" .. work.path,
    params = work.params,
    derive "threads" (256),
    derive "ctas" (work.ctas),
  }

  if op ~= "route_permute" then
    kernels("host_" .. op) {
      op = op, of = "x", input = "f32", element = bf16, scale = "none", arch = "host",
      template = "host/" .. op .. ".c", params = work.params,
    }
  end
end

-- SPDX-License-Identifier: Apache-2.0
