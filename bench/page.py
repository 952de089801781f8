# SPDX-License-Identifier: Apache-2.0
"""One page of plots from committed results: self-contained HTML, its figures embedded SVG whose
colours are the page's own, so that they follow the reader's light or dark theme. Needs matplotlib.

Drawn by bench/report.py --page FILE; every figure names the JSON file that it is drawn from.
"""

import html
import io
import json
import os
import re

import matplotlib

matplotlib.use("Agg")
from matplotlib import pyplot  # noqa: E402

# These colours are replaced by the page's: --ink, --grid, and one for each series.
INK, GRID = "#010203", "#0a0b0c"
SERIES = {"quern": "#100001", "quern_bf16": "#100003", "torch_grouped_mm": "#100002",
          "torch_scaled_grouped_mm": "#100002", "torch_bf16": "#100002", "torch_fp8_row": "#100005",
          "deepgemm": "#100006",
          "cublas_loop": "#100003", "cublas_dense": "#100004", "cublas_dense_fp8": "#100005"}
TITLES = {"quern": "quern", "quern_bf16": "quern in BF16", "torch_grouped_mm": "torch grouped",
          "torch_scaled_grouped_mm": "torch scaled grouped", "torch_bf16": "torch in BF16",
          "torch_fp8_row": "torch in FP8", "deepgemm": "DeepGEMM", "cublas_loop": "cuBLAS loop",
          "cublas_dense": "dense cuBLAS", "cublas_dense_fp8": "dense cuBLAS, FP8"}
MARKS = {"quern": "o", "quern_bf16": "^", "torch_grouped_mm": "s", "torch_scaled_grouped_mm": "s",
         "torch_bf16": "s", "torch_fp8_row": "D", "deepgemm": "D", "cublas_loop": "^",
         "cublas_dense": "|",
         "cublas_dense_fp8": "|"}
PASSES = {"fprop": "o", "dgrad": "s", "wgrad": "^", "accumulate": "D"}

# Vendor's figures: dense TFLOP/s of BF16 (and the factor of 8 bits), at that clock; TB/s.
PEAKS = {"NVIDIA H200": {"tflops": 989.4, "fp8": 2, "mhz": 1830, "tbytes": 4.8}}

STYLE = """
:root { color-scheme: light dark;
  --paper: #ffffff; --ink: #1d2125; --soft: #5c656e; --grid: #d9dde1; --line: #e6e9ec;
  --quern: #1a5fb4; --torch: #c64600; --loop: #1b7f4b; --dense: #77767b; --fp8: #813d9c;
  --deepgemm: #9a6b00; }
@media (prefers-color-scheme: dark) { :root {
  --paper: #15181b; --ink: #e4e7ea; --soft: #9aa4ad; --grid: #363c42; --line: #2a2f34;
  --quern: #78aeed; --torch: #ff9a57; --loop: #57c98b; --dense: #a5a4a9; --fp8: #c99be0;
  --deepgemm: #e3b341; } }
body { background: var(--paper); color: var(--ink); margin: 0 auto; padding: 2rem 1rem 4rem;
  max-width: 62rem; font: 16px/1.5 system-ui, sans-serif; }
h1 { font-size: 1.6rem; margin: 0; } h2 { font-size: 1.2rem; margin: 2.5rem 0 0; }
p { max-width: 46rem; } figure { margin: 1.2rem 0 2rem; border-top: 1px solid var(--line); }
figure > div { overflow-x: auto; } svg { max-width: 100%; height: auto; }
svg text { font-family: system-ui, sans-serif; }
figcaption { color: var(--soft); font-size: .85rem; max-width: 54rem; }
code { font-size: .92em; } a { color: var(--quern); }
@media (max-width: 45rem) { svg { max-width: none; } }
"""

COLOURS = {INK: "var(--ink)", GRID: "var(--grid)", "#100001": "var(--quern)",
           "#100002": "var(--torch)", "#100003": "var(--loop)", "#100004": "var(--dense)",
           "#100005": "var(--fp8)", "#100006": "var(--deepgemm)"}

matplotlib.rcParams.update({
    "svg.fonttype": "none", "font.family": "sans-serif", "font.size": 9.5,
    "axes.edgecolor": GRID, "axes.labelcolor": INK, "axes.titlecolor": INK, "text.color": INK,
    "xtick.color": INK, "ytick.color": INK, "grid.color": GRID, "axes.spines.top": False,
    "axes.spines.right": False, "legend.frameon": False, "axes.axisbelow": True,
    "axes.titlesize": 10.5, "axes.titlelocation": "left", "xtick.major.size": 0,
    "ytick.major.size": 0, "xtick.minor.size": 0, "ytick.minor.size": 0})


def svg(figure, name):
    """The figure as SVG that names the page's colours; the same bytes for the same data."""
    matplotlib.rcParams["svg.hashsalt"] = name
    out = io.StringIO()
    figure.savefig(out, format="svg", transparent=True, bbox_inches="tight",
                   metadata={"Date": None, "Creator": None})
    pyplot.close(figure)
    text = out.getvalue()
    text = text[text.index("<svg"):]
    # Ids must differ from those of the page's other figures, which share a document.
    text = re.sub(r'(\bid="|url\(#|href="#)', lambda m: m.group(1) + name + "-", text)
    text = re.sub("#[0-9a-f]{6}", lambda m: COLOURS.get(m.group(0), m.group(0)), text)
    return text.replace("<svg", f'<svg role="img" aria-label="{html.escape(name)}"', 1)


def block(figure, name, caption):
    return (f"<figure><div>{svg(figure, name)}</div>\n"
            f"<figcaption>{caption}</figcaption></figure>\n")


def span(values, unit):
    """The range of measured clocks, as "1395 to 1755 MHz"."""
    values = [v for v in values if v]
    if not values:
        return "not recorded"
    low, high = min(values), max(values)
    return f"{low:.0f} {unit}" if round(low) == round(high) else f"{low:.0f} to {high:.0f} {unit}"


def origin(path, facts):
    """The sentence under each figure: the source of its data."""
    return (f"From <code>{html.escape(os.path.relpath(path))}</code>: " +
            html.escape(", ".join(str(fact) for fact in facts if fact)) + ".")


def product_origin(path, results, rows):
    m = results["machine"]
    return origin(path, [m["gpu"], f"commit {m['commit'][:12]}", m["date"],
                         "SM clock " + span([r.get("mhz") for r in rows], "MHz"),
                         f"driver {m['driver']}", f"torch {m['torch']}",
                         f"medians of {m['rounds']} interleaved rounds"])


def name_of(path):
    return re.sub("[^a-z0-9]+", "-", os.path.splitext(os.path.basename(path))[0].lower())


# ------------------------------------------------------------------------------------------ speed

def lines(axes, names, unit):
    """A line for each name, the first on top, and a grid that values are read by."""
    axes.set_yticks(range(len(names)), names)
    axes.set_ylim(len(names) - 0.4, -0.6)
    axes.set_xlabel(unit)
    axes.grid(axis="x", linewidth=0.8)
    axes.spines["left"].set_visible(False)


def draw_speed(axes, cases, op):
    labels = [f"{shape}  {split}" for shape, split in cases]
    there = [what for what in SERIES if any(what in rows for rows in cases.values())]
    for what in reversed(there):
        points = [(rows[what]["tflops"], i) for i, rows in enumerate(cases.values()) if what in rows]
        size = {"quern": 42, "cublas_dense": 90, "cublas_dense_fp8": 90}.get(what, 30)
        axes.scatter(*zip(*points), s=size, marker=MARKS[what], color=SERIES[what],
                     linewidths=1.6 if MARKS[what] == "|" else 0, label=TITLES[what], zorder=3)
    lines(axes, labels, "TFLOP/s")
    axes.set_xlim(left=0)
    axes.grid(axis="y", linewidth=0.5, alpha=0.6)
    axes.set_title(op)


def speed(path, results, report):
    """One panel for each pass, two in a row."""
    parts = [f"<h3>{html.escape(name_of(path))}</h3><p>TFLOP/s of real rows, by shape and split: to the right is faster. Dense cuBLAS "
             "multiplies one matrix of as many rows, without groups.</p>"]
    ops = report.passes(results)
    for first in range(0, len(ops), 2):
        pair = ops[first:first + 2]
        found = [report.cases(results, op) for op in pair]
        height = 0.9 + 0.215 * max(map(len, found))
        figure, axes = pyplot.subplots(1, len(pair), figsize=(4.9 * len(pair), height),
                                       sharey=len(pair) == 2, squeeze=False)
        for ax, cases, op in zip(axes[0], found, pair):
            draw_speed(ax, cases, op)
        handles, labels = axes[0][0].get_legend_handles_labels()
        figure.tight_layout(w_pad=1.5)
        figure.legend(handles[::-1], labels[::-1], loc="lower center", ncols=len(labels),
                      bbox_to_anchor=(0.5, 1.0), handletextpad=0.2, columnspacing=1.4)
        rows = [r for cases in found for c in cases.values() for r in c.values()]
        parts.append(block(figure, f"{name_of(path)}-{'-'.join(pair)}",
                           html.escape(means(zip(pair, found), report))
                           + product_origin(path, results, rows)))
    return "".join(parts)


def means(passes, report):
    """A sentence; nothing where no peer ran."""
    said = []
    for op, cases in passes:
        ratios = [r for r in map(report.ratio, cases.values()) if r]
        if ratios:
            said.append(f"{op} {report.geometric_mean(ratios):.3f} × {report.best_peer(cases)}")
    return "Geometric means: " + "; ".join(said) + ". " if said else ""


# --------------------------------------------------------------------------------------- roofline

def ceiling(intensity, tflops, tbytes):
    return [min(tflops, x * tbytes) for x in intensity]


def roofline(path, results, report):
    """TFLOP/s over FLOPs for each byte that must be moved, under the vendor's peaks."""
    peak = PEAKS.get(results["machine"]["gpu"])
    rows = [r for r in results["rows"] if r["what"] == "quern" and r.get("gbytes")]
    if not peak or not rows:
        return ""
    factor = peak["fp8"] if any(report.pass_of(r).startswith("fp8") for r in rows) else 1
    top = peak["tflops"] * factor
    clock = sorted(r["mhz"] for r in rows if r.get("mhz"))
    x = sorted([2 ** (i / 8) for i in range(8 * 3, 8 * 13)] + [top / peak["tbytes"]])
    figure, axes = pyplot.subplots(figsize=(8.2, 4.2))
    axes.loglog(x, ceiling(x, top, peak["tbytes"]), color=INK, linewidth=1.4)
    axes.annotate(f"{top:.0f} TFLOP/s at {peak['mhz']} MHz", (x[-1], top), (0, 4), ha="right",
                  textcoords="offset points")
    axes.annotate(f"{peak['tbytes']} TB/s", (40, 40 * peak["tbytes"]), (-4, 4), ha="right",
                  textcoords="offset points")
    if clock:
        real = top * clock[len(clock) // 2] / peak["mhz"]
        axes.loglog(x, ceiling(x, real, peak["tbytes"]), color=INK, linewidth=1, linestyle=(0, (4, 3)))
        axes.annotate(f"{real:.0f} at the median clock,\n{clock[len(clock) // 2]:.0f} MHz",
                      (0.62 * real / peak["tbytes"], 0.82 * real), ha="right")
    colours = list(dict.fromkeys(SERIES.values()))
    for i, op in enumerate(report.passes(results)):
        points = [(1000 * r["tflops"] / r["gbytes"], r["tflops"]) for r in rows
                  if report.pass_of(r) == op]
        if points:
            axes.scatter(*zip(*points), s=26, marker=PASSES.get(op, "o"), linewidths=0, label=op,
                         color=colours[i % len(colours)], zorder=3)
    axes.set_xlabel("FLOP for each byte that must be moved, once each")
    axes.set_ylabel("TFLOP/s")
    axes.set_xlim(x[0], x[-1])
    axes.set_ylim(20, 2 * top)
    for axis, ticks in ((axes.xaxis, [10, 30, 100, 300, 1000, 3000]),
                        (axes.yaxis, [30, 100, 300, 1000])):
        axis.set_major_locator(matplotlib.ticker.FixedLocator(ticks))
        axis.set_major_formatter(matplotlib.ticker.FormatStrFormatter("%d"))
        axis.set_minor_locator(matplotlib.ticker.NullLocator())
    axes.grid(linewidth=0.8)
    axes.legend(loc="lower right", handletextpad=0.2)
    figure.tight_layout()
    return block(figure, f"{name_of(path)}-roofline",
                 "Solid: the vendor's peaks. Dashed: the same tensor cores at the clock that the "
                 "power limit left them. " + product_origin(path, results, rows))


# ------------------------------------------------------------------------------- casts and tuning

def bars(names, values, unit, width=9.2):
    figure, axes = pyplot.subplots(figsize=(width, 0.7 + 0.235 * len(names)))
    axes.barh(range(len(names)), values, height=0.62, color=SERIES["quern"])
    lines(axes, names, unit)
    return figure, axes


USUAL = "g=8 m=32768 k=7168 split=mild"


def short(problem):
    """Without the usual values; the sizes stay where one of them is unusual."""
    words = problem.replace("quantize ", "", 1)
    return words.replace(" " + USUAL, "")


def casts(path, results, _):
    """GB/s of each cast, and of torch's for the same copies where it was measured."""
    rows = sorted(results["rows"], key=lambda r: -r["gbytes"])
    figure, axes = bars([short(r["problem"]) for r in rows], [r["gbytes"] for r in rows], "GB/s")
    place = {r["problem"]: i for i, r in enumerate(rows)}
    rate = {r["problem"]: r["gbytes"] * r["ms"] for r in rows}
    points = [(rate[p["problem"]] / p["ms"], place[p["problem"]]) for p in results.get("peers", [])
              if p["problem"] in place]
    if points:
        axes.scatter(*zip(*points), s=46, marker="D", color=SERIES["torch_grouped_mm"], zorder=3,
                     linewidths=0, label="torch.compile, the same copies")
    if results.get("copy_gbytes"):
        axes.axvline(results["copy_gbytes"], color=INK, linewidth=1.2, linestyle=(0, (4, 3)),
                     label="a plain copy")
    axes.legend(loc="lower center", bbox_to_anchor=(0.5, 1), ncols=2)
    figure.tight_layout()
    return block(figure, name_of(path), f"Sizes are <code>{USUAL}</code> unless the line has others. "
                 + origin(path, [
        results["gpu"], f"commit {results['commit']}",
        "SM clock " + span([r.get("mhz") for r in rows], "MHz"),
        f"driver {results['driver']}" if "driver" in results else "",
        f"torch {results['torch']}" if "torch" in results else ""]))


def tuning_rows(results):
    rows = results.get("rows", []) if isinstance(results, dict) else results
    return [r for r in rows if isinstance(r, dict) and r.get("model_us") and r.get("us")]


def tuning(path, results, _):
    """By how much the tuner's winners beat the model's choices."""
    rows = sorted(tuning_rows(results), key=lambda r: r["us"] / r["model_us"])
    figure, axes = bars([r["problem"] for r in rows],
                        [100 * (r["model_us"] / r["us"] - 1) for r in rows], "% faster")
    axes.axvline(0, color=INK, linewidth=1)
    figure.tight_layout()
    head = results if isinstance(results, dict) else {}
    machine = head.get("machine", head)
    return block(figure, name_of(path), origin(path, [
        machine.get("gpu", "GPU not recorded"), f"commit {machine.get('commit', 'not recorded')}",
        "SM clock " + span([r.get("mhz") for r in rows], "MHz")]))


def drawn(path, results, report):
    """The same of many problems, a point for each."""
    ops = sorted(report.passes(results))
    found = [report.cases(results, op) for op in ops]
    figure, axes = pyplot.subplots(figsize=(9.2, 0.7 + 0.26 * len(ops)))
    for i, cases in enumerate(found):
        gains = [100 * (report.ratio(rows) - 1) for rows in cases.values()]
        axes.scatter(gains, [i] * len(gains), s=26, color=SERIES["quern"], alpha=0.5, linewidths=0,
                     zorder=3)
    axes.axvline(0, color=INK, linewidth=1)
    lines(axes, ops, "% faster than the model's choice")
    figure.tight_layout()
    rows = [r for cases in found for c in cases.values() for r in c.values()]
    return block(figure, name_of(path), html.escape(means(zip(ops, found), report))
                 + product_origin(path, results, rows))


def steps(path, results, report):
    """The kernels of docs/kernels-ladder.md, the first on top, and dense cuBLAS as a line."""
    rows = [r for r in results["rows"] if r["what"] != "cublas_dense"]
    names = [f"{r['step'] or ''}  {r['what'].split('_fprop_tn_m_bf16_')[1]}" for r in rows]
    dense = next(r for r in results["rows"] if r["what"] == "cublas_dense")
    figure, axes = pyplot.subplots(figsize=(9.8, 0.9 + 0.26 * len(rows)))
    axes.scatter([r["tflops"] for r in rows], range(len(rows)), s=42, color=SERIES["quern"], zorder=3)
    axes.axvline(dense["tflops"], color=SERIES["cublas_dense"], linewidth=1.6)
    lines(axes, names, "TFLOP/s; the line is dense cuBLAS")
    axes.set_xlim(left=0)
    figure.tight_layout()
    return block(figure, name_of(path), f"<code>{dense['problem']}</code>. "
                 + product_origin(path, results, results["rows"]))


# -------------------------------------------------------------------------------------- the page

def is_measured(results):
    return isinstance(results, dict) and "machine" in results and "rows" in results and any(
        "shape" in r for r in results["rows"])


def is_drawn(results):
    return is_measured(results) and any(r["what"] == "quern_untuned" for r in results["rows"])


def is_steps(results):
    return is_measured(results) and any(r.get("step") for r in results["rows"])


def is_product(results):
    return is_measured(results) and not is_drawn(results) and not is_steps(results)


def is_casts(results):
    return isinstance(results, dict) and "copy_gbytes" in results and all(
        "gbytes" in r for r in results["rows"])


SECTIONS = (("Speed by shape", is_product, speed), ("A kernel in five steps", is_steps, steps),
            ("Roofline", is_product, roofline), ("Gains by tuning", tuning_rows, tuning),
            ("Gains by tuning, drawn problems", is_drawn, drawn),
            ("Quantize bandwidth", is_casts, casts))


def render(paths, report):
    """The page's text. Files that no section is about, as those of tests, are left out."""
    loaded = []
    for path in paths:
        with open(path, encoding="utf-8") as file:
            loaded.append((path, json.load(file)))
    body = []
    for title, wanted, draw in SECTIONS:
        parts = [draw(path, results, report) for path, results in loaded if wanted(results)]
        if any(parts):
            body.append(f"<h2>{title}</h2>\n" + "".join(parts))
    return ("<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
            "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
            f"<title>quern: measurements</title>\n<style>{STYLE}</style>\n</head>\n<body>\n"
            "<h1>quern: measurements</h1>\n<p>Drawn by <code>bench/report.py --page</code> from "
            "the committed results that each figure names; nothing here was typed by hand.</p>\n" +
            "".join(body) + "</body>\n</html>\n")
