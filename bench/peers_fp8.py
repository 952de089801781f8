#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""FP8 products: quern and its alternatives, in one process, on one GPU.

    python3 bench/peers_fp8.py [--recipes fp8_row,fp8_tensor,fp8_block] [--ops fprop,dgrad,wgrad,accumulate,layer]
                               [--shapes 'qwen3*,decode_up'] [--splits mild,skew] [--all] [--budget SECONDS]
                               [--strategies mainloop,pass,fp8] [--json FILE] [--commit HASH]

Peers: torch._scaled_grouped_mm with quern's own fp8_row tensors and scales (its only mode on
Hopper; for wgrad aligned columnwise tensors, since it wants groups at multiples of 16), dense
cuBLAS in FP8 with fast accumulation and without, the faster of both, and dense cuBLAS in BF16, to
which deepgemm.json's recorded figures of fp8_block are ratios. Recipes whose values have a scale
each 16 or 32 (--recipes mxfp8,mxfp4,nvfp4) have no peer here: their rows are next to quern's own
BF16 kernel on the same values, and the ratio is to that; --strategies measures them with
dequantize= as well as the model's choice. `accumulate` is wgrad added to fp32. `layer` includes the
steps before the product: x quantized and multiplied, by quern's kernels and by torch's operations,
compiled where torch can.

Timing is that of peers.py. Before anything is timed, D is filled with NaN, computed once and
compared with a BF16 product of the decoded values.
"""

import json
import os
import sys

import torch

import libquern
import peers

E4M3_MAX = 448.0
EXPANDED = {"mxfp8": 8, "mxfp8_ocp": 8, "mxfp4": 4, "nvfp4": 4}  # bits of a value
# NVFP4's wgrad mixes 16 tokens with each other. Values after a group's end in its last 16 are
# multiplied, too; torch, which gets only a group's tokens, would lack them.
MIXED = {("nvfp4", "wgrad"): 16, ("nvfp4", "accumulate"): 16}
AGREE = 1e-2  # operands rounded to BF16 for the reference, and both results
ITS_OWN_CAST = 6e-2  # DeepGEMM quantizes our copies' values once more


class Copy:
    """A tensor in one recipe, rowwise and columnwise, and its decoded values."""

    def __init__(self, library, recipe, of, source, sizes):
        groups = len(sizes) if of != "w" else source.shape[0]
        m, k = source.shape[-2:]
        self.line = f"{recipe} of={of} g={groups} m={m} k={k}"
        self.plan = libquern.Plan(library, "quantize " + self.line)
        self.source, self.keep = source, []
        self.given = {"input": source.data_ptr()}
        if of != "w":
            self.given["lengths"] = self.tensor(sizes)
        if "random" in self.plan.operands:
            self.given["random"] = self.tensor(torch.tensor([7, 0], device="cuda"))
        if "scale" in self.plan.operands:
            self.given["scale"] = self.tensor(torch.ones(2, device="cuda"))
        self.plan.bind(**self.given)
        self.plan.bind_missing(self.zeros)
        self.run()
        self.plan.check(torch.cuda.current_stream().cuda_stream)

    def tensor(self, tensor):
        self.keep.append(tensor)
        return tensor.data_ptr()

    def zeros(self, count):
        return self.tensor(torch.zeros(max(count, 16), device="cuda", dtype=torch.uint8))

    def run(self):
        self.plan.run(torch.cuda.current_stream().cuda_stream)

    def of(self, which, name):
        """Addresses of the rowwise or the columnwise tensor, for an operand of another plan."""
        return {name + end: self.plan.buffer(which + end).data for end in ("", ".sf", ".global")
                if which + end in self.plan.operands}

    def view(self, name, dtype, shape):
        """A part of a copy as torch sees it."""
        wanted = self.plan.buffer(name).data
        buffer = next(t for t in self.keep if t.data_ptr() == wanted)
        count = 1
        for length in shape:
            count *= length
        return buffer.view(dtype)[:count].view(shape)

    def numbers(self, library, which):
        """The copy's values in BF16, shaped as the source."""
        plan = libquern.Plan(library, f"dequantize {self.line} copies={which}")
        out = torch.zeros_like(self.source)
        plan.bind(output=out.data_ptr(), **self.of(which, which))
        if "lengths" in self.given:
            plan.bind(lengths=self.given["lengths"])
        plan.bind_missing(self.zeros)
        plan.run(torch.cuda.current_stream().cuda_stream)
        torch.cuda.synchronize()
        plan.close()
        return out

    def close(self):
        self.plan.close()


# Which copy of which tensor each pass reads: a, b.
READS = {"fprop": (("x", "rowwise"), ("w", "rowwise")),
         "dgrad": (("dy", "rowwise"), ("w", "columnwise")),
         "wgrad": (("dy", "columnwise"), ("x", "columnwise"))}
READS["accumulate"] = READS["wgrad"]


class Layer(peers.Layer):
    """One pass of one shape with one split in one recipe."""

    def __init__(self, library, recipe, shape, op, kind, rng):
        super().__init__(shape, op, kind, rng, MIXED.get((recipe, op), 1))
        self.recipe = recipe
        self.line = self.line.replace(" bf16 ", f" {recipe} ")
        tensors = dict(zip({"fprop": ("x", "w"), "dgrad": ("dy", "w")}.get(op, ("dy", "x")),
                           (self.a, self.b)))
        self.copies = {of: Copy(library, recipe, of, tensor, self.sizes)
                       for of, tensor in tensors.items()}
        (a, self.a_copy), (b, self.b_copy) = READS[op]
        self.qa, self.qb = self.copies[a], self.copies[b]
        self.bytes = self.bytes_of_copies()
        self.aligned = ((self.sizes + 127) // 128 * 128).cumsum(0).to(torch.int32)

    def bytes_of_copies(self):
        """Operands once, D as it is written; scales are too few to count."""
        weights, used = self.n * self.k, sum(r > 0 for r in self.rows)
        each = EXPANDED.get(self.recipe, 8) / 8
        if self.op in ("wgrad", "accumulate"):
            return (each * self.tokens * (self.n + self.k) +
                    (2.0 if self.op == "wgrad" else 8.0) * self.groups * weights)
        inner, outer = (self.k, self.n) if self.op == "fprop" else (self.n, self.k)
        return each * self.tokens * inner + 2.0 * self.tokens * outer + each * used * weights

    def plan(self, library, kernel=None, way=None):
        line = self.line + (f" dequantize={way}" if way else "")
        plan = libquern.Plan(library, line, kernel)
        d = self.d if self.sum is None else self.sum
        plan.bind(d=d.data_ptr(), lengths=self.sizes.data_ptr(), **self.qa.of(self.a_copy, "a"),
                  **self.qb.of(self.b_copy, "b"))
        plan.bind_missing(self.qa.zeros)
        return plan

    def bf16_plan(self, library):
        """quern's own BF16 kernel, on the decoded values: after decoded."""
        mine, self.line = self.line, self.line.replace(f" {self.recipe} ", " bf16 ")
        try:
            return super().plan(library)
        finally:
            self.line = mine

    def decoded(self, library):
        """The product of the decoded values, by torch in BF16."""
        self.a = self.qa.numbers(library, self.a_copy)
        self.b = self.qb.numbers(library, self.b_copy)
        return self.reference()

    def matrices(self):
        """A and B in FP8 as torch wants them."""
        e4m3 = torch.float8_e4m3fn
        if self.op in ("wgrad", "accumulate"):
            columns = (self.tokens + 127 * self.groups) // 128 * 128
            return (self.qa.view("columnwise", e4m3, (self.n, columns)),
                    self.qb.view("columnwise", e4m3, (self.k, columns)).t())
        inner, outer = (self.k, self.n) if self.op == "fprop" else (self.n, self.k)
        b = self.qb.view(self.b_copy, e4m3, (self.groups, outer, inner))
        return self.qa.view("rowwise", e4m3, (self.tokens, inner)), b.transpose(-2, -1)

    def row_scales(self):
        """The operands of fp8_row, A's and B's, and the groups' ends for torch."""
        f32 = torch.float32
        if self.op in ("wgrad", "accumulate"):
            return (self.qa.view("columnwise.sf", f32, (self.groups * self.n,)),
                    self.qb.view("columnwise.sf", f32, (self.groups * self.k,)), self.aligned)
        outer = self.n if self.op == "fprop" else self.k
        return (self.qa.view("rowwise.sf", f32, (self.tokens,)),
                self.qb.view(self.b_copy + ".sf", f32, (self.groups, outer)), self.ends)

    def scaled_grouped_mm(self):
        a, b = self.matrices()
        sa, sb, ends = self.row_scales()
        return torch._scaled_grouped_mm(a, b, sa, sb, offs=ends, out_dtype=torch.bfloat16,
                                        use_fast_accum=True)

    def dense_fp8(self, fast):
        a, b = self.matrices()
        b = b if b.dim() == 2 else b[0]
        one = torch.ones((), device="cuda")
        return lambda: torch._scaled_mm(a, b, one, one, out_dtype=torch.bfloat16,
                                        use_fast_accum=fast)

    def close(self):
        for copy in self.copies.values():
            copy.close()


def torch_quantize(x):
    """Row scales as fp8_row's, in torch's own operations."""
    scale = (x.abs().amax(-1).float().clamp(min=1e-12) / E4M3_MAX)
    return (x.float() / scale[:, None]).clamp(-E4M3_MAX, E4M3_MAX).to(torch.float8_e4m3fn), scale


def queue(plan):
    return lambda: plan.run(torch.cuda.current_stream().cuda_stream)


def products(layer, plans):
    """Who multiplies the copies, by name."""
    calls = {name: queue(plan) for name, plan in plans.items()}
    calls["cublas_dense"] = layer.dense
    if layer.recipe == "fp8_row" and layer.op != "accumulate":
        calls["torch_scaled_grouped_mm"] = layer.scaled_grouped_mm
    if layer.recipe in EXPANDED:
        return calls
    if layer.recipe == "fp8_block":
        peers.add_deepgemm(calls, layer, layer.expected, True, ITS_OWN_CAST)
    if layer.recipe != "fp8_tensor" or layer.op == "fprop":  # gradients are E5M2 there
        calls["cublas_dense_fast"] = layer.dense_fp8(True)
        calls["cublas_dense_slow"] = layer.dense_fp8(False)
    return calls


def whole_layer(layer, plans):
    """Quantize x, then multiply: the weights' copies are kept from step to step."""
    layer.row_only = row_only = libquern.Plan(
        layer.library, f"quantize {layer.qa.line} copies=rowwise")
    row_only.bind(**layer.qa.given, **layer.qa.of("rowwise", "rowwise"))
    row_only.bind_missing(layer.qa.zeros)
    quantize, product = queue(row_only), queue(plans["quern"])
    calls = {"quern": lambda: (quantize(), product()), "quern_product": product,
             "quern_quantize": quantize}
    if layer.recipe != "fp8_row":
        return calls
    cast = torch_quantize
    try:
        cast = torch.compile(torch_quantize)
        cast(layer.qa.source)
    except Exception as error:
        print(f"# torch.compile: {str(error)[:200]}; its operations run one by one")
        cast = torch_quantize
    b, (_, sb, ends) = layer.matrices()[1], layer.row_scales()

    def peer():
        a, sa = cast(layer.qa.source)
        return torch._scaled_grouped_mm(a, b, sa, sb, offs=ends, out_dtype=torch.bfloat16,
                                        use_fast_accum=True)

    calls["torch_scaled_grouped_mm"] = peer
    calls["torch_quantize"] = lambda: cast(layer.qa.source)
    return calls


def verify(layer, plans, library):
    """Compute once into NaN; drop a plan whose result is wrong."""
    layer.expected = expected = layer.decoded(library)
    errors = peers.verify(layer, plans, expected, AGREE)
    if layer.recipe == "fp8_row" and layer.op != "accumulate":
        try:
            errors["torch_scaled_grouped_mm"] = peers.relative_error(layer.scaled_grouped_mm(),
                                                                     expected)
        except Exception as error:
            peers.lose([layer.name, layer.op, layer.kind, "torch_scaled_grouped_mm"], error)
    return errors


def bench_layer(layer, whole, library, options, watch):
    """Rows of results for one layer."""
    layer.library = library
    plans = peers.plans_of(layer, library, options.all)
    for way in filter(None, options.strategies.split(",")):
        try:
            plans[f"quern_{way}"] = layer.plan(library, way=way)
        except libquern.Failed as error:  # not of this recipe
            print(f"# {layer.name} {layer.op} {layer.recipe} {error}")
    errors = verify(layer, plans, library)
    if layer.recipe in EXPANDED and not whole:
        plans["quern_bf16"] = layer.bf16_plan(library)
    calls = peers.calls_for(layer, options.replay / 2)
    candidates = whole_layer(layer, plans) if whole else products(layer, plans)
    graphs = peers.Graphs([layer.name, layer.recipe, layer.op, layer.kind], calls)
    for name, call in candidates.items():
        graphs.add(name, call)
    results = peers.measure(graphs, calls, options.rounds, watch)
    fp8 = [results.pop(f"cublas_dense_{how}") for how in ("fast", "slow")
           if f"cublas_dense_{how}" in results]
    if fp8:
        results["cublas_dense_fp8"] = min(fp8, key=lambda r: r["ms"])
    rows = [{"shape": layer.name, "op": f"{layer.recipe} {'layer' if whole else layer.op}",
             "split": layer.kind, "problem": layer.line, "what": name,
             "kernel": plans[name].kernel if name in plans else None, "error": errors.get(name),
             "calls": calls, **result, "tflops": layer.flops / result["ms"] / 1e9,
             "gbytes": layer.bytes / result["ms"] / 1e6} for name, result in results.items()]
    for plan in plans.values():
        plan.close()
    if whole:
        layer.row_only.close()
    layer.close()
    return rows


def show(rows):
    """One layer's rows; the last column compares with torch, or with BF16 where torch has none."""
    wanted = ("torch_scaled_grouped_mm", "quern_bf16")
    peer = next((r["ms"] for r in rows if r["what"] in wanted), float("nan"))
    for r in rows:
        print(f"{r['shape']:13s} {r['op']:20s} {r['split']:5s} {r['ms']:8.3f} ms {r['tflops']:6.0f} TFLOP/s "
              f"{r['gbytes']:6.0f} GB/s {r['mhz'] or 0:5.0f} MHz {r['watts'] or 0:4.0f} W "
              f"{peer / r['ms']:6.3f} {r['what']}", flush=True)


def cases(options):
    """Every recipe, shape, pass and split, shapes first, so that a budget leaves whole shapes."""
    return ([[shape["name"], recipe, op, kind], (shape, recipe, op, kind)]
            for shape in peers.shapes_of(options) for recipe in options.recipes.split(",")
            for op in options.ops.split(",") for kind in options.splits.split(","))


def main(argv=None):
    parser = peers.parser_of(__doc__)
    parser.add_argument("--recipes", default="fp8_row,fp8_tensor,fp8_block")
    parser.add_argument("--strategies", default="", help="of MX and NV recipes, by commas")
    parser.set_defaults(ops="fprop,dgrad,wgrad,accumulate,layer")
    options = parser.parse_args(argv)

    def measure(case, library, rng, watch):
        shape, recipe, op, kind = case
        whole = op == "layer"
        layer = Layer(library, recipe, shape, "fprop" if whole else op, kind, rng)
        return bench_layer(layer, whole, library, options, watch)

    return peers.compare(options, "bench/peers_fp8.py", lambda: cases(options), measure, show)


if __name__ == "__main__":
    sys.exit(main())
