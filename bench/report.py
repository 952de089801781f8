#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tables in Markdown from committed results, so that none is typed by hand.

    python3 bench/report.py bench/results/bf16_fprop.json            one table for each pass
    python3 bench/report.py --page out.html bench/results/*.json     plots; needs matplotlib
"""

import argparse
import json
import math
import os
import sys

PEERS = ("torch_grouped_mm", "torch_scaled_grouped_mm", "cublas_loop", "quern_untuned", "torch_bf16",
         "torch_fp8_row")
COLUMNS = (("quern", "quern"), ("quern_untuned", "the model only"), ("torch_grouped_mm", "torch grouped"),
           ("torch_scaled_grouped_mm", "torch scaled grouped"), ("torch_bf16", "torch BF16"),
           ("torch_fp8_row", "torch FP8, rows"), ("deepgemm", "DeepGEMM"), ("cublas_loop", "cuBLAS loop"),
           ("cublas_dense", "dense cuBLAS"), ("cublas_dense_fp8", "dense cuBLAS, FP8"))


HERE = os.path.dirname(os.path.abspath(__file__))


def pass_of(row):
    """The op; for an MLP the recipe and the phase."""
    return f"{row['recipe']} {row['phase']}" if "phase" in row else row.get("op", "fprop")


def cases(results, op):
    """{(shape, split): {what: row}} of one pass, in the order of the file."""
    found = {}
    for row in results["rows"]:
        if "shape" in row and pass_of(row) == op:
            found.setdefault((row["shape"], row["split"]), {})[row["what"]] = row
    return found


def passes(results):
    """The passes that were measured, in the order of the file."""
    return list(dict.fromkeys(pass_of(row) for row in results["rows"] if "shape" in row))


def deepgemm(shape, op, rows):
    """quern's speed over DeepGEMM's. If it is missing: quern's ratio to dense cuBLAS over
    DeepGEMM's in its own recorded run, mild splits; where memory binds (DeepGEMM under 0.65 of
    dense), dense says nothing, and TFLOP/s are compared as they are."""
    if "deepgemm" in rows and "quern" in rows:
        return rows["deepgemm"]["ms"] / rows["quern"]["ms"]
    if rows.get("quern", {}).get("split") != "mild":
        return None
    with open(os.path.join(HERE, "deepgemm.json")) as file:
        recorded = json.load(file)["shapes"].get(shape, {})
    if op not in recorded or not {"quern", "cublas_dense"} <= rows.keys():
        return None
    rate = 2 if op.startswith("fp8") else 1  # of the tensor cores, to BF16's
    if recorded[op] < 0.65 * rate * recorded["dense"]:
        return rows["quern"]["tflops"] / recorded[op]
    dense = rows["cublas_dense"]["tflops"]
    return rows["quern"]["tflops"] / dense / (recorded[op] / recorded["dense"])


def geometric_mean(values):
    return math.exp(sum(map(math.log, values)) / len(values)) if values else float("nan")


def ratio(rows):
    """quern's speed over the best peer's; None where one is missing."""
    peers = [rows[p]["ms"] for p in PEERS if p in rows]
    return min(peers) / rows["quern"]["ms"] if peers and "quern" in rows else None


def best_peer(cases):
    """Whom the ratios of a pass are to."""
    there = {what for rows in cases.values() for what in rows}
    return ("the model only" if "quern_untuned" in there
            else "the best of torch's compositions" if "torch_bf16" in there
            else "the better of torch and a cuBLAS loop")


def sentence(results, path):
    m = results["machine"]
    beside = any(row.get("what") == "deepgemm" for row in results["rows"])
    last = "in the same run" if beside else "recorded: by its share of dense cuBLAS (`bench/deepgemm.json`)"
    return (f"{m['gpu']}, driver {m['driver']}, CUDA {m['cuda']}, torch {m['torch']}, commit "
            f"{m['commit'][:12] or 'unknown'}, {m['date']}; TFLOP/s of real rows, random data, "
            f"medians of {m['rounds']} interleaved rounds; the last ratio is to DeepGEMM, {last}. "
            f"From `{os.path.relpath(path)}`.")


def cell(rows, what):
    row = rows.get(what)
    return f"{row['tflops']:.0f}" if row else "–"


def load(rows):
    row = rows.get("quern", {})
    return (f"{row['mhz']:.0f}" if row.get("mhz") else "–",
            f"{row['watts']:.0f}" if row.get("watts") else "–")


def times(r):
    return f"{r:.2f} ×" if r else "–"


def columns_of(results, op):
    """The candidates measured in this pass."""
    there = {what for rows in cases(results, op).values() for what in rows}
    return [column for column in COLUMNS if column[0] in there]


def ratio_title(columns):
    """bench/tuned.py has no other peer than quern itself."""
    return "tuned" if any(what == "quern_untuned" for what, _ in columns) else "torch or cuBLAS"


def table(results, op):
    """One line for each shape and split, and the geometric means of the ratios."""
    columns = columns_of(results, op)
    head = ([op, "split"] + [title for _, title in columns] +
            [ratio_title(columns), "to DeepGEMM", "MHz", "W"])
    lines = [head, ["---"] * 2 + ["---:"] * (len(head) - 2)]
    ratios = {"here": [], "recorded": []}
    for (shape, split), rows in cases(results, op).items():
        here, recorded = ratio(rows), deepgemm(shape, op, rows)
        ratios["here"] += [here] if here else []
        ratios["recorded"] += [recorded] if recorded else []
        lines.append([shape, split] + [cell(rows, what) for what, _ in columns] +
                     [times(here), times(recorded), *load(rows)])
    lines.append(["geometric mean", ""] + [""] * len(columns) +
                 [f"**{geometric_mean(r):.3f} ×**" if r else "–" for r in ratios.values()] +
                 ["", ""])
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def main(argv=None):
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("files", nargs="+")
    parser.add_argument("--page", metavar="FILE", help="write one HTML page of plots instead")
    options = parser.parse_args(argv)
    if options.page:
        try:
            import page
        except ImportError as error:
            print(f"report.py: --page: {error}", file=sys.stderr)
            return 3
        text = page.render(options.files, sys.modules[__name__])
        with open(options.page, "w", encoding="utf-8") as out:
            out.write(text)
        return 0
    for path in options.files:
        with open(path) as file:
            results = json.load(file)
        if not isinstance(results, dict) or "rows" not in results:
            print(f"report.py: {path}: no results of a script in bench/", file=sys.stderr)
            return 2
        for op in passes(results):
            print(table(results, op))
            print()
        print(sentence(results, path) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
