#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Layers from unpermuted tokens, forward and backward: quern's moe lines, torch's composition, and
SonicMoE where it can be imported, in one process, on one GPU.

    python3 bench/layer.py [--recipes bf16,fp8_block] [--shapes 'qwen3*,olmoe'] [--rounds N]
                           [--budget SECONDS] [--alone] [--all-tiles] [--tune] [--json FILE]
                           [--commit HASH]

All take the same tokens, weights, experts and probabilities; each finds its routing maps inside the
clock. quern's quantized weights are made before it, as once for many microbatches; the cast of both
weights is timed after it. torch sorts the pairs, gathers rows, multiplies by torch._grouped_mm and
sums by a compiled kernel, its backward through autograd. --alone leaves the peers out. SonicMoE
tunes among the tiles that were fastest for it here, which takes half a minute a shape, and
with --all-tiles among all of its own, which takes minutes. --tune lets quern take the winners of
bench/tune, as an installed library does. Times are
medians of eager calls in turn, in another order each round. Results are compared before: 1 - 2 xy /
(xx + yy).

A GPU that has worked for a tenth of a second lowers its clocks to keep to its power limit, by as much
as the work before took. So each turn is timed in two states: rested, after a pause, at the highest
clocks; and loaded, after the same calls have run for a while, as a training step has it.
"""

import argparse
import fnmatch
import json
import os
import statistics
import time

import torch

import libquern

SHAPES = [  # name, tokens, hidden, ffn, experts, choices
    ("qwen3_30b", 8192, 2048, 768, 128, 8), ("olmoe", 8192, 2048, 1024, 64, 8),
    ("mixtral", 8192, 4096, 14336, 8, 2), ("granite", 8192, 1536, 512, 40, 8),
    ("fine", 8192, 2048, 256, 128, 8), ("decode", 64, 2048, 768, 128, 8)]
STATES = ("rested", "loaded")
RESULTS = ("y", "dx", "dw1", "dw2", "dprob")


class Layer:
    """Operands of one shape, on the GPU."""

    def __init__(self, name, tokens, hidden, ffn, experts, topk):
        torch.manual_seed(1)
        make = dict(device="cuda", dtype=torch.bfloat16)
        self.name, self.tokens, self.topk = name, tokens, topk
        self.hidden, self.ffn, self.experts = hidden, ffn, experts
        self.x, self.dy = torch.randn(tokens, hidden, **make), torch.randn(tokens, hidden, **make)
        self.w1 = torch.randn(experts, 2 * ffn, hidden, **make) * hidden ** -0.5
        self.w2 = torch.randn(experts, hidden, ffn, **make) * ffn ** -0.5
        logits = torch.randn(tokens, experts, device="cuda") + torch.randn(
            experts, device="cuda") / 2
        values, index = logits.topk(topk, -1)
        self.prob, self.index = values.softmax(-1).contiguous(), index.to(torch.int32)
        self.flops = 2.0 * tokens * topk * hidden * 3 * ffn  # forward


class Quern:

    def __init__(self, layer, library, recipe):
        l = self.l = layer
        self.name, self.kept = f"quern {recipe}", []
        self.plan = libquern.Plan(
            library, f"moe {recipe} g={l.experts} m={l.tokens} topk={l.topk} hidden={l.hidden} "
            f"ffn={l.ffn} in=bf16 dw=bf16")
        self.results = {"y": torch.empty_like(l.x), "dx": torch.empty_like(l.x),
                        "dw1": torch.empty_like(l.w1), "dw2": torch.empty_like(l.w2),
                        "dprob": torch.empty_like(l.prob)}
        given = {"x": l.x, "dy": l.dy, "w1": l.w1, "w2": l.w2, "prob": l.prob, "index": l.index}
        self.plan.bind(**{name: t.data_ptr() for name, t in {**given, **self.results}.items()})
        before = torch.cuda.memory_allocated()
        self.plan.bind_missing(self.zeros)
        self.bytes = torch.cuda.memory_allocated() - before
        self.weights()

    def zeros(self, size):
        self.kept.append(torch.zeros(size, dtype=torch.uint8, device="cuda"))
        return self.kept[-1].data_ptr()

    def run(self, phase):
        self.plan.run(torch.cuda.current_stream().cuda_stream, phase)

    def weights(self):
        self.run(libquern.WEIGHTS)

    def forward(self):
        self.run(libquern.FORWARD)

    def both(self):
        self.run(libquern.FORWARD)
        self.run(libquern.BACKWARD)

    def close(self):
        self.plan.close()


def gated(pre, prob):
    a, b = pre.float().chunk(2, -1)
    return (a * torch.sigmoid(a) * b * prob[:, None]).to(pre.dtype)


def add_rows(rows, inverse):
    return rows[inverse].float().sum(1).to(rows.dtype)


def ends_of(experts, count):
    """The end of each expert's pairs, which are sorted."""
    return torch.searchsorted(experts, torch.arange(1, count + 1, device=experts.device,
                                                    dtype=experts.dtype)).to(torch.int32)


def inverse_of(order):
    inverse = torch.empty_like(order)
    inverse[order] = torch.arange(len(order), device=order.device)
    return inverse


class Torch:
    name = "torch"

    def __init__(self, layer):
        l = self.l = layer
        self.gated, self.add_rows = torch.compile(gated), torch.compile(add_rows)
        self.leaves = {"x": l.x, "w1": l.w1, "w2": l.w2, "prob": l.prob}
        self.leaves = {name: t.detach().clone().requires_grad_()
                       for name, t in self.leaves.items()}

    def forward(self):
        l, t = self.l, self.leaves
        flat = l.index.flatten()
        order = flat.argsort(stable=True)
        ends = ends_of(flat[order], l.experts)
        rows = t["x"][order // l.topk]
        pre = torch._grouped_mm(rows, t["w1"].transpose(-2, -1), offs=ends)
        h = self.gated(pre, t["prob"].flatten()[order])
        y = torch._grouped_mm(h, t["w2"].transpose(-2, -1), offs=ends)
        return self.add_rows(y, inverse_of(order).view(l.tokens, l.topk))

    def both(self):
        for t in self.leaves.values():
            t.grad = None
        y = self.forward()
        y.backward(self.l.dy)
        return y

    @property
    def results(self):
        y, t = self.both(), self.leaves
        return {"y": y.detach(), "dx": t["x"].grad, "dw1": t["w1"].grad, "dw2": t["w2"].grad,
                "dprob": t["prob"].grad}

    def close(self):
        self.leaves = None


class Sonic(Torch):
    """Its gate and up rows alternate."""
    name = "sonic"
    # Rows and columns of a tile, pingpong, a cluster.
    wide, others = (128, 256, False, 2, 1), {(128, 192, True, 2, 1), (128, 208, True, 1, 2)}
    tiles = {"gemm_gated_tuned": {wide}, "gemm_dgated_tuned": {wide}}

    @classmethod
    def narrow(cls):
        """Tune among these tiles only."""
        from quack import gemm_interface
        for kind in (gemm_interface.gemm_tuned, gemm_interface.gemm_gated_tuned,
                     gemm_interface.gemm_dgated_tuned):
            tiles = cls.tiles.get(kind.fn.__name__, cls.others | {cls.wide})
            found = [(c, c.kwargs["config"]) for c in kind.configs]
            kind.configs = [c for c, k in found if k.device_capacity == 9 and not k.swap_ab and
                            (k.tile_m, k.tile_n, k.pingpong, k.cluster_m, k.cluster_n) in tiles]

    def __init__(self, layer, all_tiles):
        if not all_tiles:
            self.narrow()
        from sonicmoe import functional
        from sonicmoe.enums import ActivationType
        super().__init__(layer)
        self.f, self.swiglu = functional, ActivationType.SWIGLU
        mixed = torch.stack(layer.w1.chunk(2, 1), 2).flatten(1, 2)
        self.leaves["w1"] = mixed.contiguous().requires_grad_()

    def forward(self):
        l, t = self.l, self.leaves
        pairs = l.tokens * l.topk
        scatter, reverse, counts, starts, gather = (
            torch.empty(n, dtype=torch.int32, device="cuda")
            for n in (pairs, pairs, l.experts, l.experts + 1, pairs))
        self.f.TC_topk_router_metadata_triton(l.index, l.experts, counts, starts, gather, scatter,
                                              reverse)
        a, h = self.f._UpProjection.apply(t["x"], t["w1"].permute(1, 2, 0), None, starts, pairs,
                                          l.topk, gather, scatter, reverse, None, False,
                                          self.swiglu, False, False)
        return self.f._DownProjection.apply(a, h, t["w2"].permute(1, 2, 0), None, t["prob"], starts,
                                            l.tokens, l.topk, gather, scatter, reverse, None, False,
                                            self.swiglu)

    @property
    def results(self):
        found = super().results
        dw1 = found["dw1"]
        return dict(found, dw1=torch.cat((dw1[:, 0::2], dw1[:, 1::2]), 1))


def distance(a, b):
    a, b = a.double(), b.double()
    return float(1 - 2 * (a * b).sum() / ((a * a).sum() + (b * b).sum()))


def once(call, inner):
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    begin.record()
    for _ in range(inner):
        call()
    end.record()
    end.synchronize()
    return begin.elapsed_time(end) / inner


def settle(call, state):
    """Bring the GPU's clocks and power to a state, by calls that are not timed."""
    if state == "rested":
        torch.cuda.synchronize()
        time.sleep(0.1)
        call()
        return
    end = time.time() + 0.25
    while time.time() < end:
        once(call, 4)


def take_turns(calls, rounds, state, inner=4):
    """Milliseconds of each, the median of the rounds."""
    times = {name: [] for name in calls}
    for turn in range(rounds):
        for name in sorted(calls, key=lambda name: hash((name, turn))):
            settle(calls[name], state)
            times[name].append(once(calls[name], inner))
    return {name: statistics.median(found) for name, found in times.items()}


def contenders(layer, library, recipes, options):
    """Everybody that can be made, with the time until its first results."""
    made = [(lambda recipe=recipe: Quern(layer, library, recipe)) for recipe in recipes]
    made += [] if options.alone else [lambda: Torch(layer),
                                      lambda: Sonic(layer, options.all_tiles)]
    for make in made:
        start = time.time()
        try:
            one = make()
            one.both()
        except ImportError as error:
            print(f"# {error}")
            continue
        torch.cuda.synchronize()
        one.first = time.time() - start
        yield one


def measure(layer, library, options):
    found = list(contenders(layer, library, options.recipes.split(","), options))
    calls, right, rows = {}, found[0].results, []
    right = {name: t.clone() for name, t in right.items()}
    for one in found:
        got = one.results
        errors = {name: distance(right[name], got[name]) for name in RESULTS}
        print(f"# {layer.name} {one.name}: first call {one.first:.1f} s, distance from "
              f"{found[0].name} " + " ".join(f"{n} {e:.1e}" for n, e in errors.items()), flush=True)
        calls[one.name, "forward"], calls[one.name, "both"] = one.forward, one.both
        if isinstance(one, Quern) and "bf16" not in one.name:
            calls[one.name, "weights"] = one.weights
    for state in STATES:
        times = take_turns(calls, options.rounds, state)
        for (name, phase), ms in times.items():
            flops = layer.flops * {"forward": 1, "both": 3, "weights": 0}[phase]
            row = {"shape": layer.name, "who": name, "phase": phase, "state": state, "ms": ms,
                   "tflops": flops / ms / 1e9}
            for peer in ("torch", "sonic"):
                if (peer, phase) in times:
                    row[f"over_{peer}"] = times[peer, phase] / ms
            rows.append(row)
            print(" ".join(f"{key}={value:.4g}" if isinstance(value, float) else str(value)
                           for key, value in row.items()), flush=True)
    for one in found:
        if isinstance(one, Quern):
            operands = one.plan.operands
            for row in rows:
                if row["who"] == one.name:
                    row.update({name: operands[name].bytes
                                for name in ("saved", "pending", "workspace")})
        one.close()
    return rows


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--recipes", default="bf16,fp8_block")
    parser.add_argument("--shapes", default="*")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--budget", type=float, default=300)
    parser.add_argument("--alone", action="store_true")
    parser.add_argument("--all-tiles", action="store_true")
    parser.add_argument("--tune", action="store_true")
    parser.add_argument("--json")
    parser.add_argument("--commit", default="")
    options = parser.parse_args()
    root = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..")
    library = libquern.Library(os.path.join(root, "build/lib/libquern.so"),
                               tune=os.path.join(root, "bench/tune") if options.tune else "")
    start, rows = time.time(), []
    print(f"# {torch.cuda.get_device_name()}, torch {torch.__version__}")
    for shape in SHAPES:
        if not any(fnmatch.fnmatch(shape[0], glob) for glob in options.shapes.split(",")):
            continue
        if time.time() - start > options.budget:
            print("# no time is left")
            break
        rows += measure(Layer(*shape), library, options)
        torch.cuda.empty_cache()
    library.close()
    if options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump({"gpu": torch.cuda.get_device_name(), "torch": torch.__version__,
                       "commit": options.commit, "tuned": options.tune, "rows": rows}, file, indent=1)


if __name__ == "__main__":
    main()
