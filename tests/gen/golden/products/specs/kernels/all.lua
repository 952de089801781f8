local function statement (name, scale, layout, ragged)
  kernels(name) {
    op = { "fprop", "dgrad", "wgrad" }, element = { bf16, e4m3, e5m2, e2m1 }, scale = scale,
    layout = layout, ragged = ragged or { "m", "k", "n" }, arch = "sm_90a", template = "p/product.cu",
    params = { "a_sf_map", "a_sf", "b_sf", "a_sf_stride", "b_sf_group_stride", "a_global" },
    axis("what") { name },
    derive "a_sf_box" (function (v) return { 128, v.promote > 0 and 2 or 1 } end),
    reject "a row's factor is not known here"
      (function (v) return v.a.scale and v.a.scale.span == "row" and v.op == "wgrad" end),
  }
end

statement("blocks", { "block", "row" }, { "tn", "nn" })
statement("beside", { "none", "block" }, { "tn", "nn" })
statement("tensors", "tensor", "tn")
statement("all", "blocked", "tn")
statement("none", "none", "nn", "m")
