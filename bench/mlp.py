#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The grouped MLP, forward and backward: quern and a composition of torch's, in one process, on one
GPU.

    python3 bench/mlp.py [--recipes bf16,fp8_block,fp8_row,mxfp8] [--shapes 'qwen3*,dsv3'] [--splits mild,skew]
                         [--rows 1,16,256] [--phases forward] [--budget SECONDS] [--json FILE]
                         [--commit HASH]

--rows measures every shape with so many rows for all experts together, as decoding has them, in
place of its own.

Peers: torch's grouped products in BF16 with activation, probability and their gradients compiled by
torch.compile into one kernel each (`torch_bf16`); and, for every FP8 recipe, the same with x, h, dy
and dpre cast to FP8 with row scales by a compiled kernel before torch._scaled_grouped_mm, forward
and for dx, and wgrad in BF16 (`torch_fp8_row`: it takes sizes on the device only so). Weights are
quantized before the clock starts, as they are once for many microbatches.

Every row times forward, backward with both wgrads, and the two together. Timing is that of
peers.py: CUDA graphs in turn. Before anything is timed, y, dx, dprob, dw1 and dw2 are compared with
torch's in BF16: 1 - 2 xy / (xx + yy).
"""

import json
import os
import sys

import torch

import libquern
import peers

E4M3_MAX = 448.0

with open(os.path.join(peers.HERE, "mlps.json"), encoding="utf-8") as shapes:
    SHAPES = json.load(shapes)["shapes"]


def activate(pre, probability):
    """h: swiglu of two halves, times each row's probability."""
    a, b = pre.float().chunk(2, -1)
    return (a * torch.sigmoid(a) * b * probability[:, None]).to(pre.dtype)


def activate_back(dh, pre, probability):
    """dpre and dprob."""
    a, b = pre.float().chunk(2, -1)
    s, d = torch.sigmoid(a), dh.float()
    scaled = d * probability[:, None]
    da, db = scaled * b * s * (1 + a * (1 - s)), scaled * a * s
    return torch.cat((da, db), -1).to(pre.dtype), (d * a * s * b).sum(-1)


def quantize_rows(x):
    """FP8 with a scale for each row."""
    scale = x.abs().amax(-1).float().clamp(min=1e-12) / E4M3_MAX
    return (x.float() / scale[:, None]).clamp(-E4M3_MAX, E4M3_MAX).to(torch.float8_e4m3fn), scale


class Layer:
    """Operands of one shape with one split, on the GPU, and who computes with them."""

    def __init__(self, shape, kind, rng):
        make = dict(device="cuda", dtype=torch.bfloat16)
        g, m, hidden, ffn = (shape[key] for key in ("groups", "tokens", "hidden", "ffn"))
        self.name, self.kind, self.shape = shape["name"], kind, shape
        self.rows = peers.split(g, m, kind, rng)
        self.x, self.dy = torch.randn(m, hidden, **make), torch.randn(m, hidden, **make)
        self.w1 = torch.randn(g, 2 * ffn, hidden, **make) * hidden ** -0.5
        self.w2 = torch.randn(g, hidden, ffn, **make) * ffn ** -0.5
        self.probability = torch.rand(m, device="cuda")
        self.sizes = torch.tensor(self.rows, device="cuda", dtype=torch.int32)
        self.ends = self.sizes.cumsum(0).to(torch.int32)
        self.flops = 6.0 * m * hidden * 3 * ffn
        self.weights = 6.0 * sum(rows > 0 for rows in self.rows) * hidden * ffn  # bytes that are read
        self.bytes = 2.0 * (m * (4 * hidden + 9 * ffn) + 9 * g * hidden * ffn)
        self.line = f"g={g} m={m} hidden={hidden} ffn={ffn} prob=1 split={kind}"


class Torch:
    """The same in BF16, products grouped, the rest compiled."""

    def __init__(self, layer):
        self.l = layer
        self.activate = torch.compile(activate)
        self.activate_back = torch.compile(activate_back)

    def product(self, a, w, transposed):
        """a times the weights of its group."""
        return torch._grouped_mm(a, w.transpose(-2, -1) if transposed else w, offs=self.l.ends)

    def gradient(self, dy, x):
        """That of the weights of each group."""
        return torch._grouped_mm(dy.t(), x, offs=self.l.ends)

    def forward(self):
        self.pre = self.product(self.l.x, self.l.w1, True)
        self.h = self.activate(self.pre, self.l.probability)
        self.y = self.product(self.h, self.l.w2, True)

    def backward(self):
        dh = self.product(self.l.dy, self.l.w2, False)
        dpre, self.dprob = self.activate_back(dh, self.pre, self.l.probability)
        self.dx = self.product(dpre, self.l.w1, False)
        self.dw2 = self.gradient(self.l.dy, self.h)
        self.dw1 = self.gradient(dpre, self.l.x)

    def close(self):
        pass


class TorchLoop(Torch):
    """Group by group: the reference where torch does not take so many groups together."""

    def product(self, a, w, transposed):
        parts = a.split(self.l.rows)
        return torch.cat([part @ (w[i].t() if transposed else w[i]) for i, part in enumerate(parts)])

    def gradient(self, dy, x):
        pairs = zip(dy.split(self.l.rows), x.split(self.l.rows))
        return torch.stack([a.t() @ b for a, b in pairs])


class TorchRows(Torch):
    """FP8 with row scales where torch takes it: forward and for the gradients of tokens."""

    def __init__(self, layer):
        super().__init__(layer)
        self.quantize = torch.compile(quantize_rows)
        self.copies = {}
        for name in ("w1", "w2"):
            w = getattr(layer, name)
            for transposed in (True, False):  # rows are not summed
                rows = w if transposed else w.transpose(-2, -1).contiguous()
                scale = rows.abs().amax(-1).float().clamp(min=1e-12) / E4M3_MAX
                cast = (rows.float() / scale[..., None]).to(torch.float8_e4m3fn)
                self.copies[w.data_ptr(), transposed] = cast.transpose(-2, -1), scale

    def product(self, a, w, transposed):
        (qa, sa), (qb, sb) = self.quantize(a), self.copies[w.data_ptr(), transposed]
        return torch._scaled_grouped_mm(qa, qb, sa, sb, offs=self.l.ends, out_dtype=torch.bfloat16,
                                        use_fast_accum=True)


class Quern:
    """A plan with all its buffers."""

    def __init__(self, layer, library, recipe):
        self.line = f"mlp {recipe} {layer.line}"
        self.plan, l = libquern.Plan(library, self.line), layer
        self.keep = []
        given = {"x": l.x, "dy": l.dy, "w1": l.w1, "w2": l.w2, "lengths": l.sizes,
                 "prob": l.probability}
        for name, like in (("y", l.x), ("dx", l.x), ("dw1", l.w1), ("dw2", l.w2),
                           ("dprob", l.probability)):
            given[name] = torch.full_like(like, float("nan"))
            setattr(self, name, given[name])
        if "random" in self.plan.operands:
            given["random"] = torch.arange(12, device="cuda")
        if "scale" in self.plan.operands:
            given["scale"] = torch.ones(12, device="cuda")
        for name, tensor in given.items():
            self.plan.bind(**{name: self.hold(tensor)})
        self.plan.bind_missing(self.zeros)
        if "w1_rowwise" in self.plan.operands:
            self.run(libquern.WEIGHTS)

    def hold(self, tensor):
        self.keep.append(tensor)
        return tensor.data_ptr()

    def zeros(self, count):
        return self.hold(torch.zeros(max(count, 16), device="cuda", dtype=torch.uint8))

    def run(self, phase):
        self.plan.run(torch.cuda.current_stream().cuda_stream, phase)

    def forward(self):
        self.run(libquern.FORWARD)

    def backward(self):
        self.run(libquern.BACKWARD)

    def close(self):
        self.plan.check(torch.cuda.current_stream().cuda_stream)
        self.plan.close()


def distance(got, expected):
    """1 - 2 xy / (xx + yy) in fp32, in pieces that fit the remaining memory."""
    xy = both = 0.0
    chunk = max(1, got.shape[0] // 16)
    for a, b in zip(got.split(chunk), expected.split(chunk)):
        a, b = a.float(), b.float()
        xy += (a * b).sum(dtype=torch.float64).item()
        both += (a * a + b * b).sum(dtype=torch.float64).item()
    return 1 - 2 * xy / both


def with_rows(shapes, rows):
    """The shapes with so many tokens each; as they are if none is given."""
    if not rows:
        return shapes
    return [{**shape, "name": f"{shape['name']}_{count}", "tokens": int(count)}
            for shape in shapes for count in rows.split(",")]


def calls_for(layer, seconds):
    """So many calls that one replay takes about `seconds`, by operations, bytes or launches."""
    one = max(layer.flops / 600e12, layer.weights / 4e12, 2e-5)
    return max(2, min(100, round(seconds / one)))


def reference_of(layer):
    """torch's results, group by group where it refuses the groups."""
    reference = Torch(layer)
    try:
        both(reference)
    except Exception as error:
        peers.lose([layer.name, layer.kind, "torch_bf16"], error)
        reference = TorchLoop(layer)
        both(reference)
    return reference


def verify(candidates, reference, case):
    """The distances of each one's results from the reference's; one that fails is lost."""
    errors = {}
    for name, candidate in list(candidates.items()):
        try:
            both(candidate)
            torch.cuda.synchronize()
        except Exception as error:
            peers.lose([*case, name], error)
            candidates.pop(name).close()
            continue
        errors[name] = {what: distance(getattr(candidate, what), getattr(reference, what))
                        for what in ("y", "dx", "dprob", "dw1", "dw2")}
    return errors


def both(candidate):
    candidate.forward()
    candidate.backward()


def bench_layer(layer, library, recipe, options, watch):
    """Rows of results for one layer."""
    case = [layer.name, recipe, layer.kind]
    reference = reference_of(layer)
    candidates = {"quern": Quern(layer, library, recipe)}
    line = candidates["quern"].line
    if not isinstance(reference, TorchLoop):
        candidates["torch_bf16"] = reference
    if recipe not in ("bf16", "fp16"):
        candidates["torch_fp8_row"] = TorchRows(layer)
    errors = verify(candidates, reference, case)
    calls = calls_for(layer, options.replay)
    graphs = peers.Graphs(case, calls)
    for name, candidate in candidates.items():
        phases = {"forward": candidate.forward, "backward": candidate.backward,
                  "both": lambda c=candidate: both(c)}
        for what in options.phases.split(","):
            graphs.add((name, what), phases[what])
    results = peers.measure(graphs, calls, options.rounds, watch)
    share = {"forward": 1 / 3, "backward": 2 / 3, "both": 1}
    rows = [{"shape": layer.name, "recipe": recipe, "split": layer.kind, "phase": what,
             "problem": line, "what": name, "errors": errors[name],
             "calls": calls, **result,
             "tflops": share[what] * layer.flops / result["ms"] / 1e9}
            for (name, what), result in results.items()]
    for candidate in candidates.values():
        candidate.close()
    return rows


def show(rows):
    """One layer's rows; the last column compares with the better peer of the same phase."""
    for r in rows:
        peer = min((p["ms"] for p in rows if p["phase"] == r["phase"] and p["what"] != "quern"),
                   default=float("nan"))
        print(f"{r['shape']:9s} {r['recipe']:10s} {r['split']:5s} {r['phase']:8s} {r['ms']:8.3f} ms "
              f"{r['tflops']:6.0f} TFLOP/s {r['mhz'] or 0:5.0f} MHz {max(r['errors'].values()):8.1e} "
              f"{peer / r['ms']:6.3f} {r['what']}", flush=True)


def main(argv=None):
    parser = peers.parser_of(__doc__)
    parser.add_argument("--recipes", default="bf16,fp8_block,fp8_row,mxfp8")
    parser.add_argument("--rows", default="", help="rows of all experts, by commas, for each shape")
    parser.add_argument("--phases", default="forward,backward,both")
    options = parser.parse_args(argv)
    layers = {}  # the last one: its recipes share the data

    def cases():
        shapes = with_rows(peers.choose(SHAPES, options.shapes), options.rows)
        return ([[shape["name"], recipe, kind], (shape, recipe, kind)] for shape in shapes
                for kind in options.splits.split(",") for recipe in options.recipes.split(","))

    def measure(case, library, rng, watch):
        shape, recipe, kind = case
        if (shape["name"], kind) not in layers:
            layers.clear()
            layers[shape["name"], kind] = Layer(shape, kind, rng)
        return bench_layer(layers[shape["name"], kind], library, recipe, options, watch)

    return peers.compare(options, "bench/mlp.py", cases, measure, show)


if __name__ == "__main__":
    sys.exit(main())
