#!/usr/bin/env python3
"""Tables in Markdown from committed results, so that none is typed by hand.

    python3 bench/report.py bench/results/bf16_fprop.json            the table for the README
    python3 bench/report.py --kernels bench/results/all.json         each kernel of the grid
    python3 bench/report.py --plot out.svg bench/results/*.json      needs matplotlib
"""

import argparse
import json
import math
import os
import sys

PEERS = ("torch_grouped_mm", "cublas_loop")
COLUMNS = (("quern", "quern"), ("torch_grouped_mm", "torch grouped"),
           ("cublas_loop", "cuBLAS loop"), ("cublas_dense", "dense cuBLAS"))


def cases(results):
    """{(shape, split): {what: row}} in the order of the file."""
    found = {}
    for row in results["rows"]:
        if "shape" in row:
            found.setdefault((row["shape"], row["split"]), {})[row["what"]] = row
    return found


def geometric_mean(values):
    return math.exp(sum(map(math.log, values)) / len(values)) if values else float("nan")


def ratio(rows):
    """quern's speed over the best peer's; None where one is missing."""
    peers = [rows[p]["ms"] for p in PEERS if p in rows]
    return min(peers) / rows["quern"]["ms"] if peers and "quern" in rows else None


def sentence(results, path):
    m = results["machine"]
    return (f"{m['gpu']}, driver {m['driver']}, CUDA {m['cuda']}, torch {m['torch']}, commit "
            f"{m['commit'][:12] or 'unknown'}, {m['date']}; TFLOP/s of real rows, random data, "
            f"medians of {m['rounds']} interleaved rounds. From `{os.path.relpath(path)}`.")


def cell(rows, what):
    row = rows.get(what)
    return f"{row['tflops']:.0f}" if row else "–"


def load(rows):
    row = rows.get("quern", {})
    return (f"{row['mhz']:.0f}" if row.get("mhz") else "–",
            f"{row['watts']:.0f}" if row.get("watts") else "–")


def table(results):
    """One line for each shape and split, and the geometric mean of the ratios."""
    head = ["shape", "split"] + [title for _, title in COLUMNS] + ["best peer", "MHz", "W"]
    lines = [head, ["---"] * 2 + ["---:"] * (len(head) - 2)]
    ratios = []
    for (shape, split), rows in cases(results).items():
        r = ratio(rows)
        ratios += [r] if r else []
        lines.append([shape, split] + [cell(rows, what) for what, _ in COLUMNS] +
                     [f"{r:.2f} ×" if r else "–", *load(rows)])
    lines.append(["geometric mean", ""] + [""] * len(COLUMNS) +
                 [f"**{geometric_mean(ratios):.3f} ×**", "", ""])
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def kernel_table(results):
    """For each case the kernels that were forced, fastest first; the model's choice is marked."""
    lines = ["| shape | split | kernel | TFLOP/s | of the fastest |", "|---|---|---|---:|---:|"]
    for (shape, split), rows in cases(results).items():
        forced = sorted((r for r in rows.values() if r["kernel"] == r["what"]),
                        key=lambda r: r["ms"])
        chosen = rows.get("quern", {}).get("kernel")
        for r in forced:
            mark = " (chosen)" if r["what"] == chosen else ""
            lines.append(f"| {shape} | {split} | `{r['what']}`{mark} | {r['tflops']:.0f} | "
                         f"{forced[0]['ms'] / r['ms']:.2f} |")
    return "\n".join(lines)


def plot(results, path):
    import matplotlib
    matplotlib.use("Agg")
    from matplotlib import pyplot

    found = cases(results)
    labels = [f"{shape}\n{split}" for shape, split in found]
    figure, axes = pyplot.subplots(figsize=(max(8, len(found) * 0.9), 4))
    for i, (what, title) in enumerate(COLUMNS):
        values = [rows[what]["tflops"] if what in rows else 0 for rows in found.values()]
        axes.bar([x + (i - 1.5) * 0.2 for x in range(len(found))], values, 0.2, label=title)
    axes.set_xticks(range(len(found)), labels, rotation=60, fontsize=7)
    axes.set_ylabel("TFLOP/s")
    axes.legend()
    figure.tight_layout()
    figure.savefig(path)


def main(argv=None):
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("files", nargs="+")
    parser.add_argument("--kernels", action="store_true", help="each kernel that was forced")
    parser.add_argument("--plot", metavar="FILE", help="draw the first file, as its ending says")
    options = parser.parse_args(argv)
    for path in options.files:
        with open(path) as file:
            results = json.load(file)
        print(kernel_table(results) if options.kernels else table(results))
        print("\n" + sentence(results, path) + "\n")
        if options.plot and path == options.files[0]:
            plot(results, options.plot)
    return 0


if __name__ == "__main__":
    sys.exit(main())
