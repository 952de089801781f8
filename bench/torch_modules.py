#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Forward and backward of a module of experts, the host's time included: quern.torch and torch.

    python3 bench/torch_modules.py [--shapes 'qwen3*,small'] [--budget SECONDS] [--json FILE]
                                  [--commit HASH]

Tokens come in expert order. The peers are torch's grouped products with SwiGLU between them, eager
and under torch.compile, both in BF16 with sizes on the device. quern runs GroupedMLP in BF16 and in
FP8, where each step casts the weights, or keeps the casts of the first one (`cached`). Times are wall
clock: steps of forward and backward follow each other without waiting, and the clock stops when the
GPU is done; the median of several turns. `peak` is the memory of a step above inputs, weights and
their gradients. `gradient`, the norm of dx, is nearly the same in all rows of a shape. Needs a GPU.
"""

import argparse
import fnmatch
import json
import os
import statistics
import sys
import time

import torch
import torch.nn.functional as F

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, os.path.join(ROOT, "runtime", "python"))
import quern.torch as qt  # noqa: E402
from watch import Watch  # noqa: E402

SHAPES = [  # name, experts, tokens of all, hidden, ffn
    ("small", 8, 512, 1024, 512), ("decode_qwen3", 128, 256, 2048, 768),
    ("olmoe", 64, 65536, 2048, 1024), ("qwen3", 128, 65536, 2048, 768),
    ("gptoss", 32, 32768, 2880, 2880), ("dsv3", 8, 32768, 7168, 2048),
    ("mixtral", 8, 16384, 4096, 14336)]


class TorchExperts(torch.nn.Module):
    """The same computation by torch's grouped products."""

    def __init__(self, w1, w2):
        super().__init__()
        self.w1, self.w2 = torch.nn.Parameter(w1.clone()), torch.nn.Parameter(w2.clone())

    def forward(self, x, ends, prob):
        pre = torch._grouped_mm(x, self.w1.transpose(-2, -1), offs=ends)
        a, b = pre.chunk(2, -1)
        h = (F.silu(a.float()) * b.float() * prob[:, None]).to(x.dtype)
        return torch._grouped_mm(h, self.w2.transpose(-2, -1), offs=ends)


def lengths_of(groups, tokens):
    """Skewed lengths that are no multiples of anything."""
    share = torch.rand(groups).exp()
    lengths = (share / share.sum() * tokens).int()
    lengths[0] += tokens - lengths.sum()
    return lengths


class Case:
    """Modules with the same weights, and a step of each."""

    def __init__(self, name, groups, tokens, hidden, ffn):
        torch.manual_seed(1)
        make = dict(device="cuda", dtype=torch.bfloat16)
        self.shape = dict(name=name, experts=groups, tokens=tokens, hidden=hidden, ffn=ffn)
        self.lengths = lengths_of(groups, tokens).cuda()
        self.ends = self.lengths.cumsum(0, dtype=torch.int32)
        self.x = torch.randn(tokens, hidden, **make, requires_grad=True)
        self.dy = torch.randn(tokens, hidden, **make)
        self.prob = torch.rand(tokens, device="cuda").requires_grad_()
        self.w1 = torch.randn(groups, 2 * ffn, hidden, **make) * hidden**-0.5
        self.w2 = torch.randn(groups, hidden, ffn, **make) * ffn**-0.5
        self.flops = 18.0 * tokens * hidden * ffn

    def modules(self):
        """Yields a name, a module and its forward's arguments after x."""
        yield "torch", TorchExperts(self.w1, self.w2), (self.ends, self.prob)
        yield "torch compiled", torch.compile(TorchExperts(self.w1, self.w2), dynamic=False), \
            (self.ends, self.prob)
        for recipe, cached in (("bf16", None), ("fp8_block", None), ("fp8_block", False)):
            module = qt.GroupedMLP(len(self.w1), *self.w2.shape[1:], recipe=recipe,
                                   params_dtype=torch.bfloat16, device="cuda")
            with torch.no_grad():
                module.w1.copy_(self.w1)
                module.w2.copy_(self.w2)
            if cached is False:
                module(self.x, self.lengths, self.prob, is_first_microbatch=True)
            name = f"quern {recipe}" + " cached" * (cached is False)
            yield name, module, (self.lengths, self.prob, cached)

    def step(self, module, extra):
        for t in (self.x, self.prob, *module.parameters()):
            t.grad = None
        module(self.x, *extra).backward(self.dy)


def peak_bytes(step):
    step()
    torch.cuda.synchronize()
    kept = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    step()
    torch.cuda.synchronize()
    return torch.cuda.max_memory_allocated() - kept


def seconds_of(step, count):
    torch.cuda.synchronize()
    begin = time.perf_counter()
    for _ in range(count):
        step()
    torch.cuda.synchronize()
    return (time.perf_counter() - begin) / count


def measure(case, watch, turns=7):
    """A row for each module."""
    steps, rows = {}, {}
    for name, module, extra in case.modules():
        begin = time.perf_counter()

        def step(module=module, extra=extra):
            case.step(module, extra)

        try:
            step()
            torch.cuda.synchronize()
            first = time.perf_counter() - begin
            rows[name] = {**case.shape, "module": name, "first_call_s": round(first, 2),
                          "peak_mb": round(peak_bytes(step) / 1e6, 1),
                          "gradient": case.x.grad.float().norm().item()}
            steps[name] = step
        except Exception as error:
            print(f"{case.shape['name']}: {name} failed: {str(error)[:300]}", file=sys.stderr)
    times, spans = {name: [] for name in steps}, {name: [] for name in steps}
    count = max(2, min(50, int(0.15 / seconds_of(steps["torch"], 3))))
    for _ in range(turns):
        for name, step in steps.items():
            begin = time.monotonic()
            times[name].append(seconds_of(step, count))
            spans[name].append((begin, time.monotonic()))
    for name, row in rows.items():
        row["ms"] = round(statistics.median(times[name]) * 1e3, 4)
        row["tflops"] = round(case.flops / row["ms"] / 1e9, 1)
        row.update(watch.during(spans[name]))
    return list(rows.values())


def measure_all(args, watch):
    begin = time.monotonic()
    wanted = [s for s in SHAPES if any(fnmatch.fnmatch(s[0], p) for p in args.shapes.split(","))]
    for shape in wanted:
        if time.monotonic() - begin > args.budget:
            print(f"{shape[0]} and later shapes are left out: the budget is spent")
            break
        for row in measure(Case(*shape), watch):
            print("{name:14s} {module:24s} {ms:9.3f} ms {tflops:7.1f} TFLOP/s {peak_mb:9.1f} MB  "
                  "first call {first_call_s:.2f} s  |dx| {gradient:.4g}".format(**row), flush=True)
            yield row
        torch.cuda.empty_cache()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--shapes", default="*")
    parser.add_argument("--budget", type=float, default=200)
    parser.add_argument("--json")
    parser.add_argument("--commit", default="")
    args = parser.parse_args()
    with Watch() as watch:
        rows = list(measure_all(args, watch))
        found = {"commit": args.commit, "gpu": torch.cuda.get_device_name(),
                 "driver": watch.driver(), "torch": torch.__version__, "rows": rows}
    if args.json:
        with open(args.json, "w") as out:
            json.dump(found, out, indent=1)


if __name__ == "__main__":
    main()
