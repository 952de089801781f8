#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The gain from tuning: quern with measured winners and with only the model, on one GPU.

    python3 bench/tuned.py [--recipes bf16,fp8_row,...] [--rows 0,8,64,256] [--budget SECONDS]
                           [--seconds PER_PROBLEM] [--json FILE] [--commit HASH]

The shapes are layers of held-out models, unused for the grids and the model (none of
bench/shapes.json is among them), each with the tokens of a training step and with 8, 64 and 256
rows for each expert, as decoding and fine-tuning have them; the passes are fprop, dgrad and wgrad.
All problems of a recipe are shuffled by --seed and recipes alternate until the budget is spent, so
that the figure is that of a random sample. MXFP8 and the like may multiply by BF16's kernels after
a dequantize pass (`dequantize=`): these strategies are compared, too, and their kernels are
compiled when the first problem has them.

quern_tune measures a problem with the groups that it will have, on data of its own; then two plans,
of a context that reads the winners and of one that reads none, run in turn as bench/peers.py does
it, on other data, and both results are compared with torch's. If both plans have the same kernel
they are timed all the same: the ratio is then noise, which belongs to the figure. Rows are `quern`
(tuned) and `quern_untuned`; bench/report.py makes a table of them. Kernels are compiled first, by
all cores, unless $QUERN_CACHE is warm.
"""

import argparse
import math
import os
import random
import re
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor

import torch

import libquern
import peers
import peers_fp8
from watch import Watch

# Experts, tokens of a training step (rows routed to all experts together), output and input features.
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
RECIPES = "bf16,fp8_row,fp8_block,mxfp8,nvfp4"


def sizes(wanted):
    """Every layer with so many rows for each expert; 0: as many as SHAPES says."""
    seen = set()
    for name, groups, tokens, n, k in SHAPES:
        for rows in wanted:
            shape = {"groups": groups, "tokens": groups * rows if rows else tokens, "n": n, "k": k}
            if tuple(shape.values()) not in seen:
                seen.add(tuple(shape.values()))
                yield {"name": f"{name}_{rows}" if rows else name, **shape}


def cases(options):
    """The sample, without an end that a budget would choose: recipes in turn."""
    rows = [int(word) for word in options.rows.split(",")]
    lists = []
    for recipe in options.recipes.split(","):
        mine = [(shape, recipe, op) for shape in sizes(rows) for op in OPS]
        random.Random(f"{options.seed} {recipe}").shuffle(mine)
        lists.append(mine)
    splits = options.splits.split(",")
    for i, turn in enumerate(zip(*lists)):
        for shape, recipe, op in turn:
            yield shape, recipe, op, splits[i % len(splits)]


def make_layer(case, library, rng):
    shape, recipe, op, kind = case
    if recipe == "bf16":
        return peers.Layer(shape, op, kind, rng)
    return peers_fp8.Layer(library, recipe, shape, op, kind, rng)


def kernels_of(library, line):
    """The kernels that a tuner would consider: those that `why` does not exclude."""
    text = library.why(line).split("\nexcluded")[0]
    return re.findall(r"^(?:>|\s) (quern_\w+_sm\d+\w*)$", text, re.MULTILINE)


def compile_one(make, *arguments):
    """The error of a kernel that cannot be compiled, which the tuner leaves out too; None if it
    can."""
    torch.zeros(1, device="cuda")  # the thread's context
    try:
        make(*arguments).close()
    except libquern.Failed as error:
        return f"{arguments[-1]}: {error}"
    return None


def products(library, chosen):
    """Each kernel that a problem may have, with the first such problem."""
    found = {}
    for shape, recipe, op, _ in chosen:
        tokens, n, k, groups = (shape[name] for name in ("tokens", "n", "k", "groups"))
        m, n, k = {"fprop": (tokens, n, k), "dgrad": (tokens, k, n)}.get(op, (n, k, tokens))
        dequantize = " dequantize=mainloop" if recipe in peers_fp8.EXPANDED else ""
        line = f"{op} {recipe} g={groups} m={m} n={n} k={k}{dequantize}"
        for kernel in kernels_of(library, line):
            found.setdefault(kernel, line)
    return [(libquern.Plan, library, line, kernel) for kernel, line in found.items()]


def casts(library, recipes):
    """Plans that make the operands, and that dequantize them."""
    lines = [f"{recipe} of={of} g=8 m=1024 k=1024" for recipe in recipes if recipe != "bf16"
             for of in ("x", "w", "dy")]
    return [(libquern.Plan, library, line) for cast in lines
            for line in (f"quantize {cast}", f"dequantize {cast} copies=rowwise",
                         f"dequantize {cast} copies=columnwise")]


def compile_ahead(library, chosen, recipes):
    """Into the cache, by all cores: a problem's kernels serve all sizes."""
    jobs = casts(library, recipes) + products(library, chosen)
    begin = time.monotonic()
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        said = list(pool.map(lambda job: compile_one(*job), jobs))
    for text in filter(None, said):
        print(f"# {text[:200]}")
    print(f"# {len(jobs)} plans compiled by {os.cpu_count()} threads in "
          f"{time.monotonic() - begin:.1f} s", flush=True)


def verify(layer, plans, library):
    if isinstance(layer, peers_fp8.Layer):
        return peers_fp8.verify(layer, plans, library)
    return peers.verify(layer, plans, layer.reference())


def bench_case(layer, recipe, tuner, alone, options, watch):
    """Two rows; none where a result is wrong."""
    plans = {"quern_untuned": layer.plan(alone)}
    begin = time.monotonic()
    found = tuner.tune(layer.line, layer.rows, options.seconds, options.seed)
    spent = time.monotonic() - begin
    plans = {"quern": layer.plan(tuner), **plans}
    if (found.certain and not plans["quern"].tuned) or plans["quern_untuned"].tuned:
        raise SystemExit(f"{layer.line}: the plans are not tuned and untuned")
    errors = verify(layer, plans, alone)
    calls = peers.calls_for(layer, options.replay)
    graphs = {}
    for name, plan in plans.items():
        graphs[name] = peers.capture(
            lambda plan=plan: plan.run(torch.cuda.current_stream().cuda_stream), calls)
    results = peers.measure(graphs, calls, options.rounds, watch) if len(graphs) == 2 else {}
    rows = [{"shape": layer.name, "op": layer.op if recipe == "bf16" else f"{recipe} {layer.op}",
             "split": layer.kind, "problem": layer.line, "what": name,
             "kernel": plans[name].kernel, "error": errors[name], "calls": calls,
             **result, "tflops": layer.flops / result["ms"] / 1e9,
             "gbytes": layer.bytes / result["ms"] / 1e6} for name, result in results.items()]
    for row in rows[:1]:
        row.update({"tune_ratio": found.ratio, "tune_rounds": found.rounds,
                    "tune_certain": bool(found.certain), "tune_mhz": found.clock_mhz,
                    "tune_seconds": spent, "band": found.band, "dequantize": found.dequantize})
    for plan in plans.values():
        plan.close()
    return rows


def show(rows):
    by = {row["what"]: row for row in rows}
    tuned, alone = by["quern"], by["quern_untuned"]
    same = " (the same kernel)" if tuned["kernel"] == alone["kernel"] else ""
    print(f"{tuned['shape']:19s} {tuned['op']:15s} {tuned['split']:5s} {tuned['ms']:8.3f} ms "
          f"{tuned['tflops']:6.0f} TFLOP/s {alone['ms'] / tuned['ms']:6.3f} x here, "
          f"{tuned['tune_ratio']:6.3f} x while tuning in {tuned['tune_seconds']:.1f} s "
          f"{tuned['kernel']}{same}", flush=True)
    return alone["ms"] / tuned["ms"]


def mean(ratios):
    return math.exp(sum(map(math.log, ratios)) / len(ratios))


def parser_of():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--recipes", default=RECIPES)
    parser.add_argument("--rows", default="0,8,64,256",
                        help="of each expert; 0: a training step's")
    parser.add_argument("--splits", default="mild,skew", help="in turn")
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
    alone = libquern.Library(options.library)
    tuner = libquern.Library(options.library, folder)
    rng = random.Random(options.seed)
    chosen = list(cases(options))
    results = {"machine": peers.machine(options, alone, watch), "rows": [], "left_out": 0,
               "wrong": [], "geometric_mean": {}}
    ratios = {}
    compile_ahead(alone, chosen, options.recipes.split(","))
    for i, case in enumerate(chosen):
        # the most time of a case: tuning, operands and the comparison
        if time.monotonic() - begin > options.budget - options.seconds - 2:
            results["left_out"] = len(chosen) - i
            break
        layer = make_layer(case, alone, rng)
        rows = bench_case(layer, case[1], tuner, alone, options, watch)
        if isinstance(layer, peers_fp8.Layer):
            layer.close()
        del layer
        torch.cuda.empty_cache()
        if not rows:
            results["wrong"].append([case[0]["name"], *case[1:]])
            continue
        for name in (case[1], "all"):
            ratios.setdefault(name, []).append(0)
        ratios[case[1]][-1] = ratios["all"][-1] = show(rows)
        results["rows"] += rows
        results["geometric_mean"] = {name: mean(each) for name, each in ratios.items()}
        if options.json:
            peers.write(options.json, results)  # measured cases are kept
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
    print(f"# left out, the budget was spent: {results['left_out']}; "
          f"wrong: {len(results['wrong'])}")
    for name, ratio in results["geometric_mean"].items():
        print(f"geometric mean {ratio:.3f} x {name}")
    print(f"of {len(results['rows']) // 2} problems")
    return 1 if results["wrong"] or not results["rows"] else 0


if __name__ == "__main__":
    sys.exit(main())
