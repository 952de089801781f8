#!/usr/bin/env python3
"""What tuning is worth: quern with measured winners beside the model alone, on one GPU.

    python3 bench/tuned.py [--budget SECONDS] [--seconds PER_PROBLEM]
                           [--json FILE] [--commit HASH]

The shapes are layers of models that nobody looked at when the grids and the model were made (none of
bench/shapes.json is among them), with the passes fprop, dgrad and wgrad each. quern_tune measures a
problem with the groups that it will have, on data of its own; then two plans, of a context that
reads the winners and of one that reads none, run in turn as bench/peers.py does it, on other data,
and both results are compared with torch's. Where both plans have the same kernel they are timed all
the same: the ratio is then noise, which belongs to the figure. Rows are `quern` (tuned) and
`quern_untuned`; bench/report.py makes a table of them. Kernels are compiled anew for each run
unless $QUERN_CACHE is warm.
"""

import argparse
import math
import os
import random
import sys
import tempfile
import time

import torch

import libquern
import peers
from watch import Watch

# Experts, tokens (rows routed to all experts together), output and input features.
SHAPES = (
    ("olmoe_up", 64, 32768, 2048, 2048),
    ("olmoe_down", 64, 32768, 2048, 1024),
    ("qwen15_up", 60, 16384, 2816, 2048),
    ("dsv2_lite_up", 64, 24576, 2816, 2048),
    ("dsv2_lite_down", 64, 24576, 2048, 1408),
    ("phi35_up", 16, 16384, 12800, 4096),
    ("dbrx_down", 16, 16384, 6144, 10752),
    ("granite_up", 40, 16384, 1024, 1536),
    ("jamba_down", 16, 8192, 4096, 14336),
    ("scout_up", 16, 4096, 16384, 5120),
    ("small_steps", 64, 4096, 2816, 2048),
    ("few_tokens", 16, 512, 12800, 4096),
)
OPS = ("fprop", "dgrad", "wgrad")


def cases(splits):
    """One pass of every shape after the other, so that a short budget sees all shapes."""
    for op in OPS:
        for i, (name, groups, tokens, n, k) in enumerate(SHAPES):
            shape = {"name": name, "groups": groups, "tokens": tokens, "n": n, "k": k}
            yield shape, op, splits[i % len(splits)]


def bench_case(layer, tuner, alone, options, watch):
    """Two rows, or none where a result is wrong."""
    begin = time.monotonic()
    found = tuner.tune(layer.line, layer.rows, options.seconds, options.seed)
    spent = time.monotonic() - begin
    plans = {"quern": layer.plan(tuner), "quern_untuned": layer.plan(alone)}
    if not plans["quern"].tuned or plans["quern_untuned"].tuned:
        raise SystemExit(f"{layer.line}: the plans are not tuned and untuned")
    errors = peers.verify(layer, plans)
    calls = peers.calls_for(layer, options.replay)
    graphs = {}
    for name, plan in plans.items():
        graphs[name] = peers.capture(
            lambda plan=plan: plan.run(torch.cuda.current_stream().cuda_stream), calls)
    results = peers.measure(graphs, calls, options.rounds, watch) if len(graphs) == 2 else {}
    rows = [{"shape": layer.name, "op": layer.op, "split": layer.kind, "problem": layer.line,
             "what": name, "kernel": plans[name].kernel, "error": errors[name], "calls": calls,
             **result, "tflops": layer.flops / result["ms"] / 1e9,
             "gbytes": layer.bytes / result["ms"] / 1e6} for name, result in results.items()]
    for row in rows[:1]:
        row.update({"tune_ratio": found.ratio, "tune_rounds": found.rounds,
                    "tune_certain": bool(found.certain), "tune_mhz": found.clock_mhz,
                    "tune_seconds": spent, "band": found.band})
    for plan in plans.values():
        plan.close()
    return rows


def show(rows):
    by = {row["what"]: row for row in rows}
    tuned, alone = by["quern"], by["quern_untuned"]
    same = " (the same kernel)" if tuned["kernel"] == alone["kernel"] else ""
    print(f"{tuned['shape']:15s} {tuned['op']:6s} {tuned['split']:5s} {tuned['ms']:8.3f} ms "
          f"{tuned['tflops']:6.0f} TFLOP/s {alone['ms'] / tuned['ms']:6.3f} x here, "
          f"{tuned['tune_ratio']:6.3f} x while tuning in {tuned['tune_seconds']:.1f} s "
          f"{tuned['kernel']}{same}", flush=True)
    return alone["ms"] / tuned["ms"]


def parser_of():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--splits", default="mild,skew", help="in turn, one for each shape")
    parser.add_argument("--budget", type=float, default=200, help="seconds; the rest is left out")
    parser.add_argument("--seconds", type=float, default=5, help="to tune one problem, at most")
    parser.add_argument("--rounds", type=int, default=11)
    parser.add_argument("--replay", type=float, default=0.02, help="seconds of one graph replay")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--store", help="folder for the winners (default: one that is removed)")
    parser.add_argument("--library", default=peers.LIBRARY)
    parser.add_argument("--commit", default=os.environ.get("QUERN_COMMIT", ""))
    parser.add_argument("--json", help="write the results here")
    return parser


def run(options, folder, watch):
    begin = time.monotonic()
    alone = libquern.open_library(options.library)
    tuner = libquern.Library(options.library, folder)
    rng = random.Random(options.seed)
    results = {"machine": peers.machine(options, alone, watch), "rows": [], "left_out": []}
    ratios = []
    for shape, op, kind in cases(options.splits.split(",")):
        # what one case takes at most: tuning, operands and the comparison
        if time.monotonic() - begin > options.budget - options.seconds - 2:
            results["left_out"].append([shape["name"], op, kind])
            continue
        rows = bench_case(peers.Layer(shape, op, kind, rng), tuner, alone, options, watch)
        torch.cuda.empty_cache()
        if not rows:
            continue
        ratios.append(show(rows))
        results["rows"] += rows
        results["geometric_mean"] = math.exp(sum(map(math.log, ratios)) / len(ratios))
        if options.json:
            peers.write(options.json, results)  # what is measured is kept
    return results


def main(argv=None):
    options = parser_of().parse_args(argv)
    if not torch.cuda.is_available():
        print("bench/tuned.py needs an NVIDIA GPU and a PyTorch with CUDA", file=sys.stderr)
        return 3
    torch.manual_seed(options.seed)
    torch.zeros(1, device="cuda")  # makes the context that the library then uses
    with Watch() as watch, tempfile.TemporaryDirectory() as folder:
        results = run(options, options.store or folder, watch)
    for name in results["left_out"]:
        print(f"# left out, the budget was spent: {' '.join(name)}")
    wrong = len(results["rows"]) == 0
    if not wrong:
        print(f"geometric mean {results['geometric_mean']:.3f} x of {len(results['rows']) // 2} "
              "problems")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
