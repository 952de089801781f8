#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""BF16 products: quern and its alternatives, in one process, on one GPU.

    python3 bench/peers.py [--ops fprop,dgrad,wgrad,accumulate] [--shapes 'qwen3*,decode_up'] [--splits mild,skew] [--all [GLOB]]
                           [--layers FILE] [--budget SECONDS] [--tune] [--json FILE]
                           [--commit HASH]

Peers: torch._grouped_mm, a loop of cuBLAS products with the sizes known on the host, and one dense
cuBLAS product of as many operations (the ceiling). `accumulate` is wgrad added to fp32, which of
these peers none does: theirs overwrite bf16. deepgemm.json quotes DeepGEMM's recorded ratio to
dense cuBLAS of its own run. Needs PyTorch with CUDA, and build/lib/libquern.so.

How it is timed: each candidate is captured into a CUDA graph of several calls; the graphs are
replayed one after the other, in another order in each round, because a candidate after one that
draws little power finds a cooler chip and a higher clock; the figure is the median over rounds.
A candidate that fails, as torch does from 1,024 groups on, loses its row and nothing else; `lost`
in the results names it and its error.
Data are random normal values: zeros would run faster than real data. The SM clock and the power are
read while each graph runs. Before anything is timed, D is filled with NaN, computed once and
compared with torch's.
"""

import argparse
import fnmatch
import json
import os
import random
import re
import statistics
import sys
import time

import torch

import deepgemm
import libquern
from drawn import split
from watch import Watch

HERE = os.path.dirname(os.path.abspath(__file__))
LIBRARY = os.path.join(HERE, "..", "build", "lib", "libquern.so")

# Two results rounded to BF16 differ by at most two roundings of 2^-9 relative to the value.
AGREE = 4e-3


lost = []  # of this run: measurements that failed, and why


def lose(names, error):
    """Note that something fails: its rows are lost, not the run."""
    lost.append({"names": list(names), "error": f"{type(error).__name__}: {error}"[:400]})
    print(f"# {' '.join(names)}: {lost[-1]['error'][:200]}", file=sys.stderr)


def in_blocks(rows, block):
    """The same, each group's end at the nearest multiple of `block`, which divides their sum."""
    ends = [0]
    for count in rows:
        ends.append(ends[-1] + count)
    ends = [(end + block // 2) // block * block for end in ends]
    return [after - before for before, after in zip(ends, ends[1:])]


class Layer:
    """One pass of one shape with one split: operands on the GPU and its candidates.

    n and k are the layer's output and input features in every pass; a, b, d those of the
    canonical product. Groups end at multiples of `block` tokens."""

    def __init__(self, shape, op, kind, rng, block=1):
        self.name, self.op, self.kind = shape["name"], op, kind
        self.groups, self.tokens = shape["groups"], shape["tokens"]
        self.n, self.k = shape["n"], shape["k"]
        self.rows = in_blocks(split(self.groups, self.tokens, kind, rng), block)
        self.flops = 2.0 * self.tokens * self.n * self.k
        weights = self.n * self.k
        self.bytes = 2.0 * self.tokens * (self.n + self.k)
        self.bytes += {"wgrad": 2.0, "accumulate": 8.0}.get(op, 0) * self.groups * weights
        if op in ("fprop", "dgrad"):
            self.bytes += 2.0 * sum(r > 0 for r in self.rows) * weights
        make = dict(device="cuda", dtype=torch.bfloat16)
        x = torch.randn(self.tokens, self.k, **make)
        y = torch.randn(self.tokens, self.n, **make)
        w = torch.randn(self.groups, self.n, self.k, **make)
        self.a, self.b, self.d = {"fprop": (x, w, y), "dgrad": (y, w, x),
                                  "wgrad": (y, x, w), "accumulate": (y, x, w)}[op]
        self.sum = torch.zeros_like(w, dtype=torch.float32) if op == "accumulate" else None
        self.sizes = torch.tensor(self.rows, device="cuda", dtype=torch.int32)
        self.ends = self.sizes.cumsum(0).to(torch.int32)
        self.workspace = torch.zeros(1 << 16, device="cuda", dtype=torch.uint8)
        m, n, k = {"fprop": (self.tokens, self.n, self.k),
                   "dgrad": (self.tokens, self.k, self.n)}.get(op, (self.n, self.k, self.tokens))
        name = "wgrad" if op == "accumulate" else op
        more = " d=f32 beta=1" if op == "accumulate" else ""
        self.line = f"{name} bf16 g={self.groups} m={m} n={n} k={k}{more}"

    def grouped_mm(self):
        if self.op == "fprop":
            return torch._grouped_mm(self.a, self.b.transpose(-2, -1), offs=self.ends)
        if self.op == "dgrad":
            return torch._grouped_mm(self.a, self.b, offs=self.ends)
        return torch._grouped_mm(self.a.t(), self.b, offs=self.ends)

    def loop(self):
        begin = 0
        for group, rows in enumerate(self.rows):
            mine = slice(begin, begin + rows)
            if self.op in ("wgrad", "accumulate"):
                torch.mm(self.a[mine].t(), self.b[mine], out=self.d[group])
            elif rows:
                w = self.b[group].t() if self.op == "fprop" else self.b[group]
                torch.mm(self.a[mine], w, out=self.d[mine])
            begin += rows

    def reference(self):
        """The product by torch: group by group where it does not take them together."""
        try:
            return self.grouped_mm()
        except Exception as error:
            lose([self.name, self.op, self.kind, "torch_grouped_mm"], error)
        self.loop()
        return self.d.clone()

    def dense(self):
        if self.op == "fprop":
            torch.mm(self.a, self.b[0].t(), out=self.d)
        elif self.op == "dgrad":
            torch.mm(self.a, self.b[0], out=self.d)
        else:
            torch.mm(self.a.t(), self.b, out=self.d[0])

    def plan(self, library, kernel=None):
        plan = libquern.Plan(library, self.line, kernel)
        if plan.operands["workspace"].bytes > self.workspace.numel():
            raise SystemExit("the workspace is larger than this benchmark expects")
        d = self.d if self.sum is None else self.sum
        plan.bind(a=self.a.data_ptr(), b=self.b.data_ptr(), d=d.data_ptr(),
                  lengths=self.sizes.data_ptr(), workspace=self.workspace.data_ptr())
        return plan


def plans_of(layer, library, every):
    """The model's choice, and each kernel that takes the problem and fits the glob `every`."""
    plans = {"quern": layer.plan(library)}
    if not every:
        return plans
    names = re.findall(r"\bquern_\w+_sm\d+\w*", library.why(layer.line))
    for name in sorted(set(fnmatch.filter(names, every))):
        try:
            plans[name] = layer.plan(library, name)
        except libquern.Failed as error:
            # Points that a spec rejects are named too, and are no kernels.
            if error.code not in (libquern.ENOKERNEL, libquern.EINVAL):
                print(f"# {name}: {error}", file=sys.stderr)
    return plans


def relative_error(got, expected):
    """|got - expected| / |expected| in fp32, in pieces that fit the remaining memory."""
    wrong = norm = 0.0
    chunk = max(1, got.shape[0] // 16)
    for a, b in zip(got.split(chunk), expected.split(chunk)):
        wrong += (a.float() - b.float()).square().sum().item()
        norm += b.float().square().sum().item()
    return (wrong / norm) ** 0.5


def verify(layer, plans, expected, most=AGREE):
    """Compute once into NaN; drop a plan whose result is another one."""
    stream = torch.cuda.current_stream().cuda_stream
    errors = {}
    for name, plan in list(plans.items()):
        # Into NaN; an accumulator starts at zero, where adding and overwriting are the same.
        d = layer.d if layer.sum is None else layer.sum
        d.fill_(float("nan") if layer.sum is None else 0)
        plan.run(stream)
        plan.check(stream)
        errors[name] = relative_error(d, expected)
        if not errors[name] <= most:
            print(f"# {layer.name} {layer.op} {layer.kind} {name}: WRONG, error {errors[name]}")
            plans.pop(name).close()
    return errors


def capture(call, calls):
    """A graph of several calls, warmed up."""
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for _ in range(2):
            call()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(calls):
            call()
    return graph


class Graphs(dict):
    """Graphs of candidates, by name; those that cannot be captured are lost."""

    def __init__(self, case, calls):
        super().__init__()
        self.case, self.calls = case, calls

    def add(self, name, call):
        try:
            self[name] = capture(call, self.calls)
        except Exception as error:  # a peer that can't
            lose([*self.case, *([name] if isinstance(name, str) else name)], error)


def calls_for(layer, seconds):
    """So many calls that one replay takes about `seconds`, at 600 TFLOP/s or 4 TB/s."""
    one = max(layer.flops / 600e12, layer.bytes / 4e12)
    return max(3, min(50, round(seconds / one)))


def measure(graphs, calls, rounds, watch):
    """Milliseconds of one call, medians of rounds in turn, with clock and power meanwhile."""
    times = {name: [] for name in graphs}
    loads = {name: [] for name in graphs}
    order = list(graphs)
    for turn in range(rounds + 1):
        random.Random(turn).shuffle(order)
        for name, graph in ((name, graphs[name]) for name in order):
            begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            begin.record()
            graph.replay()
            end.record()
            since = time.monotonic()
            end.synchronize()
            if turn:  # the first is warm-up
                times[name].append(begin.elapsed_time(end) / calls)
                loads[name].append((since, time.monotonic()))
    return {name: {"ms": statistics.median(times[name]), "low": min(times[name]),
                   "high": max(times[name]), **watch.during(loads[name])} for name in graphs}


def add_deepgemm(calls, layer, expected, fp8, most):
    """DeepGEMM on the layer's values, if it is there and computes the same."""
    if not deepgemm.takes(layer):
        return
    try:
        call, result = deepgemm.calls_of(layer, layer.a, layer.b, fp8)
        call()
        torch.cuda.synchronize()
        error = relative_error(result(), expected)
        if not error <= most:
            raise ValueError(f"another result: error {error}")
        calls["deepgemm"] = call
    except Exception as error:  # a peer that can't
        lose([layer.name, layer.op, layer.kind, "deepgemm"], error)


def candidates(layer, plans, expected):
    def queue(plan):
        return lambda: plan.run(torch.cuda.current_stream().cuda_stream)

    calls = {name: queue(plan) for name, plan in plans.items()}
    add_deepgemm(calls, layer, expected, False, AGREE)
    calls["torch_grouped_mm"] = layer.grouped_mm
    calls["cublas_loop"] = layer.loop
    calls["cublas_dense"] = layer.dense
    return calls


def bench_layer(layer, library, options, watch):
    """Rows of results for one layer."""
    plans = plans_of(layer, library, options.all)
    expected = layer.reference()
    errors = verify(layer, plans, expected)
    calls = calls_for(layer, options.replay)
    graphs = Graphs([layer.name, layer.op, layer.kind], calls)
    for name, call in candidates(layer, plans, expected).items():
        graphs.add(name, call)
    results = measure(graphs, calls, options.rounds, watch)
    rows = []
    for name, result in results.items():
        rows.append({"shape": layer.name, "op": layer.op, "split": layer.kind, "problem": layer.line, "what": name,
                     "kernel": plans[name].kernel if name in plans else None,
                     "error": errors.get(name), "calls": calls, **result,
                     "tflops": layer.flops / result["ms"] / 1e9,
                     "gbytes": layer.bytes / result["ms"] / 1e6})
    for plan in plans.values():
        plan.close()
    return rows


def show(rows):
    """One layer's rows; the last column compares with the best of the two peers."""
    peers = [r["ms"] for r in rows if r["what"] in ("torch_grouped_mm", "cublas_loop")]
    for r in rows:
        ratio = min(peers) / r["ms"] if peers else float("nan")
        print(f"{r['shape']:13s} {r['op']:10s} {r['split']:5s} {r['ms']:8.3f} ms {r['tflops']:6.0f} TFLOP/s "
              f"{r['gbytes']:6.0f} GB/s {r['mhz'] or 0:5.0f} MHz {r['watts'] or 0:4.0f} W "
              f"{ratio:6.3f} {r['what']}", flush=True)


def copy_rate(watch):
    """GB/s of a large copy, read and written bytes counted."""
    a = torch.empty(1 << 31, dtype=torch.uint8, device="cuda").random_(0, 255)
    b = torch.empty_like(a)
    result = measure({"copy": capture(lambda: b.copy_(a), 5)}, 5, 5, watch)["copy"]
    return {"what": "copy", "gbytes": 2 * a.numel() / result["ms"] / 1e6, **result}


def choose(shapes, patterns):
    wanted = patterns.split(",")
    chosen = [s for s in shapes if any(fnmatch.fnmatch(s["name"], p) for p in wanted)]
    if not chosen:
        names = ", ".join(s["name"] for s in shapes)
        raise SystemExit(f"--shapes {patterns}: no such shape; there are {names}")
    return chosen


def shapes_of(options):
    with open(options.layers) as file:
        return choose(json.load(file)["shapes"], options.shapes)


def parser_of(about):
    parser = argparse.ArgumentParser(description=about.split("\n")[0])
    parser.add_argument("--shapes", default="*", help="names or globs, by commas")
    parser.add_argument("--layers", default=os.path.join(HERE, "shapes.json"),
                        help="file of shapes; layers.json has some that nothing was fitted to")
    parser.add_argument("--ops", default="fprop,dgrad,wgrad,accumulate")
    parser.add_argument("--splits", default="mild,skew")
    parser.add_argument("--all", nargs="?", const="*", metavar="GLOB",
                        help="each kernel of the grid, too, or those that fit")
    parser.add_argument("--budget", type=float, default=400, help="seconds; the rest is left out")
    parser.add_argument("--rounds", type=int, default=11)
    parser.add_argument("--replay", type=float, default=0.02, help="seconds of one graph replay")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--library", default=LIBRARY)
    parser.add_argument("--tune", action="store_true", help="let quern take the winners of bench/tune")
    parser.add_argument("--commit", default=os.environ.get("QUERN_COMMIT", ""))
    parser.add_argument("--json", help="write the results here")
    return parser


def machine(options, library, watch):
    return {"commit": options.commit, "tuned": options.tune, "date": time.strftime("%Y-%m-%d"),
            "gpu": torch.cuda.get_device_name(), "driver": watch.driver(),
            "cuda": torch.version.cuda, "torch": torch.__version__,
            "quern": library.version(), "seed": options.seed, "rounds": options.rounds}


def write(path, results):
    with open(path + ".new", "w") as file:
        json.dump(results, file, indent=1)
        file.write("\n")
    os.replace(path + ".new", path)


def compare(options, program, cases, measure, show, finish=None):
    """Measure case after case until the budget is spent; measured cases are kept. main's status.

    cases()                            yields (names, case); the names say which it is, for people
    measure(case, library, rng, watch) its rows; an error: noted, and the next
    show(rows)                         prints them
    finish(watch)                      a last row
    """
    if not torch.cuda.is_available():
        print(f"{program} needs an NVIDIA GPU and a PyTorch with CUDA", file=sys.stderr)
        return 3
    todo = cases()
    begin = time.monotonic()
    torch.manual_seed(options.seed)
    torch.zeros(1, device="cuda")  # makes the context that the library then uses
    library = libquern.Library(options.library,
                               tune=os.path.join(HERE, "tune") if options.tune else "")
    rng = random.Random(options.seed)
    lost.clear()
    with Watch() as watch:
        results = {"machine": machine(options, library, watch), "rows": [], "left_out": [],
                   "lost": lost}
        for names, case in todo:
            if time.monotonic() - begin > options.budget:
                results["left_out"].append(names)
                continue
            try:
                rows = measure(case, library, rng, watch)
            except Exception as error:  # no kernel yet, no memory, ..
                lose(names, error)
                continue
            torch.cuda.empty_cache()
            show(rows)
            results["rows"] += rows
            if options.json:
                write(options.json, results)
        if finish:
            results["rows"].append(finish(watch))
    if options.json:
        write(options.json, results)
    for names in results["left_out"]:
        print(f"# left out, the budget was spent: {' '.join(names)}")
    return 0


def main(argv=None):
    options = parser_of(__doc__).parse_args(argv)

    def cases():
        return ([[shape["name"], op, kind], (shape, op, kind)] for shape in shapes_of(options)
                for op in options.ops.split(",") for kind in options.splits.split(","))

    def measure(case, library, rng, watch):
        return bench_layer(Layer(*case, rng), library, options, watch)

    return compare(options, "bench/peers.py", cases, measure, show, copy_rate)


if __name__ == "__main__":
    sys.exit(main())
