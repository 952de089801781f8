#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tables of the README and docs/, made from bench/results.

    python3 bench/tables.py            rewrite the tables
    python3 bench/tables.py --check    say which are out of date; status 1 if any is

Each has both GPUs, if bench/results has files of both: h100_NAME.json and h200_NAME.json. A table
stands between <!-- table: NAME --> and <!-- end -->; NAME is a function below.
"""

import json
import os
import re
import sys
import textwrap

import report

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
PAGES = ("README.md", "docs/performance.md", "docs/verification.md", "docs/kernels-ladder.md",
         "docs/jax.md", "docs/pytorch-parallel.md")
MARK = re.compile(r"(<!-- table: (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)
GPUS = ("h100", "h200")
PEERS = ("torch_grouped_mm", "torch_scaled_grouped_mm", "cublas_loop", "torch_bf16",
         "torch_fp8_row")


def load(name):
    with open(os.path.join(ROOT, f"bench/results/{name}.json"), encoding="utf-8") as file:
        return json.load(file)


def files(name):
    """GPU and file of each that has measured it."""
    return [(gpu, f"{gpu}_{name}") for gpu in GPUS
            if os.path.exists(os.path.join(ROOT, f"bench/results/{gpu}_{name}.json"))]


def link(name, up):
    return f"[`{name}`]({up}bench/results/{name}.json)"


def markdown(head, rows):
    """A table; columns whose cells begin with a digit are aligned to the right."""
    lines = [head, ["---:" if rows and re.match(r"[\d*–]", str(rows[0][i])) else "---"
                    for i in range(len(head))]] + rows
    return "".join("| " + " | ".join(map(str, line)) + " |\n" for line in lines)


def gains(name, op, peers):
    """quern's speed over the fastest of the peers, for each shape and split of a pass."""
    return {case: min(rows[p]["ms"] for p in peers if p in rows) / rows["quern"]["ms"]
            for case, rows in report.cases(load(name), op).items()
            if "quern" in rows and any(p in rows for p in peers)}


def mean(name, op, peers):
    return f"{report.geometric_mean(list(gains(name, op, peers).values())):.2f}"


HEADLINES = (  # without peers: layers
    ("layer_sonic", "layer from tokens, both passes: BF16, FP8", "SonicMoE, which is BF16",
     ("quern bf16", "quern fp8_block"), ()),
    ("bf16", "BF16 fprop, dgrad, wgrad", "faster of torch and cuBLAS", ("fprop", "dgrad", "wgrad"), PEERS),
    ("deepgemm", "FP8 fprop, dgrad, wgrad into fp32", "DeepGEMM, padded",
     ("fp8_block fprop", "fp8_block dgrad", "fp8_block accumulate"), ("deepgemm",)),
    ("mlp", "MLP, both passes: BF16, FP8", "torch's best, compiled",
     ("bf16 both", "fp8_block both"), PEERS))


def both_passes(name, state="loaded"):
    """Milliseconds of both passes of each layer, SonicMoE's and others'. Files of before 2026-11-30
    name no state of the clocks."""
    found = {}
    for row in load(name)["rows"]:
        if row["phase"] == "both" and row.get("state", state) == state:
            found.setdefault(row["shape"], {})[row["who"]] = row["ms"]
    return found


def over_sonic(name, who):
    times = both_passes(name).values()
    return f"{report.geometric_mean([ms['sonic'] / ms[who] for ms in times]):.2f}"


def headlines(up):
    """A column for each GPU; the files below, for the table's rows are short."""
    rows, names = [], []
    for what, title, against, ops, peers in HEADLINES:
        measured = dict(files(what))
        names += measured.values()
        rows.append([title, against] + [
            ", ".join(mean(measured[gpu], op, peers) if peers else over_sonic(measured[gpu], op)
                      for op in ops) if gpu in measured else "–" for gpu in GPUS])
    text = f"Files in [bench/results]({up}bench/results): {', '.join(names)}."
    return markdown(["times as fast as", "", *map(str.upper, GPUS)], rows) + (
        f"\n{textwrap.fill(text, 100, break_on_hyphens=False)}\n")


def speed_on(name, ops, peers):
    """quern's TFLOP/s and its ratio to the fastest of the peers."""
    found = {op: report.cases(load(name), op) for op in ops}
    ratio = {op: gains(name, op, peers) for op in ops}

    def cell(op, case):
        if case not in ratio[op]:
            return "–"
        return f"{found[op][case]['quern']['tflops']:.0f} ({ratio[op][case]:.2f} ×)"

    rows = [[*case] + [cell(op, case) for op in ops] for case in found[ops[0]]]
    return markdown(["shape", "split", *ops], rows + [
        ["geometric mean", ""] + [f"**{mean(name, op, peers)} ×**" for op in ops]])


def speed(what, ops, peers):
    """A table for each GPU, under its name if there are two."""
    runs = files(what)
    return "\n".join((f"{gpu.upper()}:\n\n" if len(runs) > 1 else "") + speed_on(name, ops, peers)
                     for gpu, name in runs)


def bf16(up):
    return speed("bf16", ("fprop", "dgrad", "wgrad", "accumulate"), PEERS)


def fp8_block(up):
    return speed("deepgemm", [f"fp8_block {op}" for op in ("fprop", "dgrad", "accumulate")],
                 ("deepgemm",))


def fp8_row(up):
    return speed("fp8_row", [f"fp8_row {op}" for op in ("fprop", "dgrad", "wgrad")], PEERS)


def mlp(up):
    return speed("mlp", [f"{recipe} {phase}" for recipe in ("bf16", "fp8_block")
                              for phase in ("forward", "backward", "both")], PEERS)


def layers(up):
    return speed("layers", ("fprop", "dgrad", "wgrad", "accumulate"), PEERS)


def scaled(up):
    """Recipes with scales of 16 and 32 values, compared with quern's own BF16."""
    recipes, ops = ("mxfp8", "nvfp4", "mxfp4"), ("fprop", "dgrad", "wgrad")
    ratio = {(r, op): gains("h200_expanded_auto", f"{r} {op}", ("quern_bf16",))
             for r in recipes for op in ops}
    cases = ratio["mxfp8", "fprop"]
    rows = [[case[0]] + [", ".join(f"{ratio[r, op][case]:.2f}" for op in ops) for r in recipes]
            for case in cases]
    return markdown(["shape", *recipes], rows)


def casts(up):
    results = load("h200_casts")
    rows = [[f"`{row['problem']}`", f"{row['ms']:.3f}", f"{row['gbytes'] / 1000:.1f}",
             f"{100 * row['gbytes'] / results['copy_gbytes']:.0f} %"] for row in results["rows"]]
    return markdown(["line", "ms", "TB/s", "of a plain copy"], rows)


def cast_peers(up):
    rows = [[peer["what"], f"{peer['ms']:.3f}", f"{peer['quern_ms']:.3f}"]
            for peer in load("h200_casts")["peers"]]
    return markdown(["cast of 32768 × 7168 values", "`torch.compile`, ms", "quern, ms"], rows)


def merged(up):
    """Four deferred weight gradients in one launch, by shape and tokens."""
    rows = load("h200_merged")["rows"]
    counts = sorted({row["tokens"] for row in rows})
    names = list(dict.fromkeys((row["recipe"], row["shape"]) for row in rows))
    gain = {(row["recipe"], row["shape"], row["tokens"]): row["gain"] for row in rows}
    return markdown(["recipe", "shape"] + [f"{count} tokens" for count in counts],
                    [[*name] + [f"{gain[(*name, count)]:.2f}" if (*name, count) in gain else "–"
                                for count in counts] for name in names])


def host(up):
    """Time of calls on the host."""
    rows = [[gpu.upper(), f"`{row['problem']}`", f"{row['run_us']:.2f}", f"{row['bare_us']:.2f}",
             f"{row['ratio']:.2f}", f"{row['warm_ms']:.2f}", f"{row['cold_ms']:.0f}"]
            for gpu, name in files("overhead") for row in load(name) if "run_us" in row]
    return markdown(["GPU", "line", "`quern_run`, µs", "the driver's launch, µs", "ratio",
                     "plan, warm cache, ms", "plan, cold cache, ms"], rows)


def ragged_dot(up):
    """quern.jax, XLA and quern.torch: milliseconds, and the host's microseconds of a call."""
    rows = []
    for gpu, name in files("jax_ragged_dot"):
        for shape, found in load(name)["results"].items():
            whose = dict.fromkeys(key.rsplit(", ", 1)[0] for key in found)
            for who in whose:
                cells = [found.get(f"{who}, {phase}") for phase in ("forward", "both")]
                rows.append([gpu.upper(), shape, who] + [
                    f"{cell['ms']:.2f} ({cell['host_us']:.0f})" if cell else "–" for cell in cells])
    return markdown(["GPU", "shape", "", "forward, ms (host, µs)", "both, ms (host, µs)"], rows)


def phases_of(results):
    """Rows of each shape and of whom, by phase."""
    found = {}
    for row in results["rows"]:
        found.setdefault((row["shape"], row["who"]), {})[row["phase"]] = row
    return found


def expert_parallel(up):
    """Milliseconds of a layer whose experts are on several GPUs."""
    rows = []
    for gpu, name in files("expert_parallel"):
        results = load(name)
        found = phases_of(results)
        for (shape, who), phases in found.items():
            if who.endswith(" graph"):
                continue
            best = found.get((shape, "torch"), phases)["both"]["ms"]
            cells = [f"{run[phase]['ms']:.2f}" if phase in run else "–"
                     for run in (phases, found.get((shape, who + " graph"), {}))
                     for phase in ("forward", "both")]
            last = found.get((shape, who + " graph"), phases).get("both", {})
            rows.append([f"{results['ranks']} {gpu.upper()}", shape, who, *cells,
                         "–" if who.startswith(("exchange", "local")) else
                         f"{best / phases['both']['ms']:.2f}",
                         f"{last['hidden']:.2f}" if "hidden" in last else "–",
                         f"{last['gbytes_per_s']:.0f}" if "gbytes_per_s" in last else "–"])
    return markdown(["GPUs", "shape", "", "forward, ms", "both, ms", "forward, graph", "both, graph",
                     "times as fast as torch, both", "hidden, both, graph", "GB/s to others"], rows)


def expert_parallel_ranks(up):
    """The same on more GPUs, in graphs."""
    rows = []
    for gpu, name in [of for ranks in (2, 4, 8) for of in files(f"expert_parallel_{ranks}")]:
        results = load(name)
        for (shape, who), phases in phases_of(results).items():
            if not who.endswith(" graph") or who.startswith("exchange") or "overlapped" in who:
                continue
            hidden = phases["both"].get("hidden")
            rows.append([f"{results['ranks']} {gpu.upper()}", shape, who.removesuffix(" graph"),
                         *(f"{phases[phase]['ms']:.2f}" for phase in ("forward", "both")),
                         "–" if hidden is None else f"{hidden:.2f}"])
    return markdown(["GPUs", "shape", "", "forward, ms", "both, ms", "hidden, both"], rows)


def modules(up):
    """A step of GroupedMLP over that of the faster of torch's two, and its peak memory."""
    rows = []
    for gpu in ("h100", "h200"):
        steps = {}
        for row in load(gpu + "_torch_modules")["rows"]:
            steps.setdefault(row["name"], {})[row["module"]] = row
        for name, found in steps.items():
            best = min((found["torch"], found["torch compiled"]), key=lambda row: row["ms"])
            cells = [f"{row['ms']:.2f} ({best['ms'] / row['ms']:.2f} ×)" for row in (
                found["quern bf16"], found["quern fp8_block"], found["quern fp8_block cached"])]
            rows.append([gpu.upper(), name, f"{best['ms']:.2f}", *cells, f"{best['peak_mb']:.0f}",
                         f"{found['quern bf16']['peak_mb']:.0f}"])
    return markdown(["GPU", "experts", "torch, ms", "bf16", "fp8_block", "fp8_block, weights kept",
                     "torch, MB", "bf16, MB"], rows)


def sonic(up):
    """Both passes of a layer in milliseconds, SonicMoE's over quern's."""
    rows = []
    for gpu, state in (("h100", "–"), ("h200", "loaded"), ("h200", "rested")):
        for shape, ms in both_passes(gpu + "_layer_sonic", state).items():
            cells = [f"{ms[who]:.2f} ({ms['sonic'] / ms[who]:.2f} ×)"
                     for who in ("quern bf16", "quern fp8_block", "torch")]
            rows.append([gpu.upper(), state, shape, f"{ms['sonic']:.2f}", *cells])
    return markdown(["GPU", "GPU was", "layer", "SonicMoE, ms", "bf16", "fp8_block", "torch"], rows)


def packed_layers(up):
    """Forward layers of packed weights in microseconds, Humming's and quern's BF16 over them."""
    rows = []
    for gpu in ("h100", "h200"):
        for row in load(gpu + "_packed_layers")["rows"]:
            if row["tokens"] in (1, 16, 256):
                us = row["us"]
                rows.append([gpu.upper(), row["shape"], f"`{row['recipe']}`", str(row["tokens"]),
                             f"{us['quern']:.0f}", f"{us['humming'] / us['quern']:.2f} ×",
                             f"{us.get('quern bf16', us.get('quern fp16')) / us['quern']:.2f} ×"])
    return markdown(["GPU", "layer", "recipe", "tokens", "µs", "of Humming", "of BF16"], rows)


def torch_host(up):
    """Microseconds of the host for calls of quern.torch and torch."""
    runs = [load(gpu + "_torch_host") for gpu in ("h100", "h200")]
    rows = [["`quern_run`, from C", *[f"{run['quern_run']:.1f}" for run in runs]]]
    rows += [[f"`{name}`", *[f"{run['us'][name]['least']:.1f}" for run in runs]]
             for name in runs[0]["us"]]
    return markdown(["call", "H100", "H200"], rows)


def ladder(up):
    """Kernels that improve step by step, on one product, and those that the page mentions."""
    found = {gpu: {row["what"]: row for row in load(name)["rows"]} for gpu, name in files("ladder")}
    rows = []
    for kernel, first in next(iter(found.values())).items():
        cells = []
        for run in found.values():
            row, dense = run[kernel], run["cublas_dense"]
            cells.append(f"{row['tflops']:.0f} ({row['ms']:.2f} ms, "
                         f"{row['tflops'] / dense['tflops']:.0%})")
        name = kernel.replace("quern_bf16_fprop_tn_m_bf16_", "")
        rows.append([first["step"] or "", "cuBLAS, dense" if name == "cublas_dense"
                     else f"`{name}`", *cells])
    return markdown(["step", "kernel", *[f"{gpu.upper()}, TFLOP/s" for gpu in found]], rows)


SLOW = (("bf16", "accumulate", PEERS, "torch or cuBLAS, which overwrite BF16"),
        ("bf16", "fprop", ("deepgemm",), "DeepGEMM"),
        ("bf16", "dgrad", ("deepgemm",), "DeepGEMM"),
        ("deepgemm", "fp8_block fprop", ("deepgemm",), "DeepGEMM"),
        ("deepgemm", "fp8_block dgrad", ("deepgemm",), "DeepGEMM"),
        ("expanded_auto", "mxfp8 fprop", ("quern_bf16",), "quern's BF16"),
        ("expanded_auto", "nvfp4 wgrad", ("quern_bf16",), "quern's BF16"),
        ("layers", "accumulate", PEERS, "torch or cuBLAS, which overwrite BF16"))


def slow(up):
    """The worst case of passes in which quern loses."""
    rows = []
    for what, op, peers, against in SLOW:
        for gpu, name in files(what):
            worst = gains(name, op, peers)
            if worst and min(worst.values()) < 1:
                case, ratio = min(worst.items(), key=lambda item: item[1])
                rows.append([op, " ".join(case), against, gpu.upper(), f"{ratio:.2f}", link(name, up)])
    return markdown(["pass", "worst case", "compared with", "GPU", "times as fast", "file"], rows)


def suites(up):
    """Runs of tests/gpu/run.py and others that count cases."""
    rows = []
    for path in sorted(os.listdir(os.path.join(ROOT, "bench/results"))):
        results = load(path[:-5]) if path.endswith(".json") else None
        for run in results.get("runs", [results]) if isinstance(results, dict) else []:
            if "families" not in run:
                continue
            count = {word: sum(f[word] for f in run["families"])
                     for word in ("passed", "failed", "skipped")}
            stopped = sum("its time was over" in f["text"] for f in run["failures"])
            rows.append([link(path[:-5], up), run["gpu"].replace("NVIDIA ", ""), run["commit"],
                         len(run["families"]), *count.values(), stopped])
    return markdown(["file", "GPU", "commit", "families", "passed", "failed", "skipped", "stopped"],
                    rows)


def sanitizers(up):
    rows = []
    for name in ("", "_fp8", "_scaled", "_nvfp4"):
        name = "h200_sanitizers" + name
        results = load(name)
        tools = sorted({run["tool"] for run in results["runs"]})
        rows.append([link(name, up), results["commit"], ", ".join(tools), len(results["runs"]),
                     sum(run["passed"] for run in results["runs"])])
    return markdown(["file", "commit", "tools", "runs", "clean"], rows)


def fill(text, up):
    return MARK.sub(lambda m: m.group(1) + globals()[m.group(2)](up) + m.group(3), text)


def main():
    stale = 0
    for page in PAGES:
        path = os.path.join(ROOT, page)
        with open(path, encoding="utf-8") as file:
            before = file.read()
        after = fill(before, "../" * page.count("/"))
        if after == before:
            continue
        stale = 1
        if "--check" in sys.argv:
            print(f"{page}: tables differ from bench/results; run: python3 bench/tables.py")
        else:
            with open(path, "w", encoding="utf-8") as file:
                file.write(after)
    return stale if "--check" in sys.argv else 0


if __name__ == "__main__":
    sys.exit(main())
