-- Routes of tokens to experts: the order of rows, in two launches.

local sizes = { "index", "sizes_bytes", "m", "topk", "experts", "first_expert", "groups",
                "counters" }
local order = table.join(sizes, { "lengths", "starts", "gather", "inverse", "error" })

for op, params in pairs { route_count = sizes, route_sort = order } do
  kernels(op) {
    op = op, of = "x", input = "f32", element = bf16, scale = "none",
    arch = { "sm_80", "sm_90a", "sm_120a" }, template = "route/" .. op:sub(7) .. ".cu",
    params = params,
    derive "threads" (function () return 256 end),
    derive "ctas" (function () return 2 end),
  }

  kernels("host_" .. op) {
    op = op, of = "x", input = "f32", element = bf16, scale = "none", arch = "host",
    template = "host/" .. op .. ".c", params = params,
  }
end

-- SPDX-License-Identifier: Apache-2.0
