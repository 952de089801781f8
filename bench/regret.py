#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The cost of the model's choices: how much slower they are than the best kernel of the grid.

    python3 bench/regret.py [FILE...] [--program build/bin/quern] [--worst N] [--json FILE]

FILE is one of bench/grid.py, by default those of bench/results. The choice is that of the program
itself, `quern why --gpu` for the GPU that the file names. Regret is the choice's time divided by
the best time of the problem's candidates; a table has its geometric mean and the largest one for
each GPU, recipe and op, of the problems that constants may be fitted to and of those held out, to
which all of another seed belong. A choice that was not measured, since it was slow at once, counts with the first time of it.

For problems that were measured with several splits (bench/grid.py --every-split) it also prints the
least that any choice could reach: a choice is made before sizes are known, so that one kernel has
all splits of a problem.
"""

import argparse
import json
import math
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

HERE = os.path.dirname(os.path.abspath(__file__))
FILES = [os.path.join(HERE, "results", f"{gpu}_grid{which}.json")
         for gpu in ("h100", "h200") for which in ("", "_check")]
FITTED = 1  # the seed of the problems that constants were fitted to half of
PROGRAM = os.path.join(HERE, "..", "build", "bin", "quern")


def unpack(path):
    """(machine, rows), with the kernels' names."""
    with open(path) as file:
        data = json.load(file)
    for row in data["rows"]:
        row["ms"] = {data["kernels"][int(i)]: ms for i, ms in row["ms"].items()}
    return data["machine"], data["rows"]


def gpu_of(machine):
    """As `quern why --gpu` calls it: 'NVIDIA H100 80GB HBM3' is the H100."""
    return machine["gpu"].replace("NVIDIA ", "").split()[0]


def choice_of(program, gpu, row):
    """The candidate that would run."""
    words = [program, "why", "--json", *(["--gpu", gpu] if gpu else []), row["problem"]]
    told = json.loads(subprocess.run(words, capture_output=True, text=True, check=True).stdout)
    for line in told["lines"]:
        if line.startswith("dequantize=") and line.split(":")[0] in row["ms"]:
            return line.split(":")[0]
    return told["runs"][-1]


def measured(row, name):
    """The candidate's name in the row, or None. Kernels that differ only by scaling needlessly count
    as one."""
    return next((one for one in (name, name.replace("_scale_", "_")) if one in row["ms"]), None)


def regret_of(row, name):
    """1.0 if no candidate was faster."""
    return row["ms"][measured(row, name)] / min(row["ms"].values())


def judge(path, program, plain):
    machine, rows = unpack(path)
    gpu = gpu_of(machine)
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        names = pool.map(lambda row: choice_of(program, None if plain else gpu, row), rows)
    known = [(row, name) for row, name in zip(rows, names) if measured(row, name)]
    for row, name in known:
        row.update(gpu=gpu, choice=name, regret=regret_of(row, name),
                   held=row["held"] or machine["seed"] != FITTED)
    if len(known) < len(rows):
        print(f"{path}: {len(rows) - len(known)} rows are left out, as their choice is no candidate")
    return [row for row, _ in known]


def figures(rows):
    logs = [math.log(row["regret"]) for row in rows]
    return {"problems": len(rows), "mean": math.exp(sum(logs) / max(1, len(logs))),
            "worst": math.exp(max(logs, default=0)),
            "over": sum(log > math.log(1.1) for log in logs)}


def tables(rows):
    """(gpu, cell, fit's figures, held out's): all, each recipe, each recipe and op."""
    cells = {}
    for row in rows:
        for cell in ("all", row["recipe"], f"{row['recipe']} {row['op']}"):
            cells.setdefault((row["gpu"], cell), []).append(row)
    for (gpu, cell), mine in sorted(cells.items(), key=lambda item: (item[0][0], item[0][1])):
        yield (gpu, cell, figures([row for row in mine if not row["held"]]),
               figures([row for row in mine if row["held"]]))


def floors(rows):
    """(GPU, problem, regret, kernel): the kernel that loses least in its worst split."""
    problems = {}
    for row in rows:
        problems.setdefault((row["gpu"], row["problem"]), []).append(row)
    for (gpu, problem), mine in problems.items():
        known = set.intersection(*(set(row["ms"]) for row in mine))
        if len(mine) > 1 and known:
            worst = {name: max(regret_of(row, name) for row in mine) for name in known}
            least = min(sorted(known), key=worst.get)
            yield gpu, problem, worst[least], least


def show_floors(rows, worst):
    found = sorted(floors(rows), key=lambda floor: -floor[2])
    for gpu in sorted({floor[0] for floor in found}):
        least = [floor[2] for floor in found if floor[0] == gpu]
        print(f"{gpu} {len(least)} problems with several splits: no choice is within 10 % of the "
              f"best kernel of each for {sum(one > 1.1 for one in least)}, at worst {least[0]:.3f}")
    for gpu, problem, regret, name in found[:worst]:
        print(f"{regret:.3f} {gpu} {problem}: at best, {name}")


def show(rows, worst):
    print(f"{'':31s}fit: mean worst >1.1 of       held out: mean worst >1.1 of")
    for gpu, cell, fit, held in tables(rows):
        print(f"{gpu:6s} {cell:24s} " + "       ".join(
            f"{f['mean']:9.4f} {f['worst']:5.3f} {f['over']:4d} {f['problems']:4d}"
            for f in (fit, held)))
    for row in sorted(rows, key=lambda row: -row["regret"])[:worst]:
        best = min(row["ms"], key=row["ms"].get)
        print(f"{row['regret']:.3f} {row['gpu']} {'held' if row['held'] else 'fit '} "
              f"{row['problem']} {row['split']}: {row['choice']} instead of {best}")


def main(argv=None):
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("files", nargs="*", default=FILES)
    parser.add_argument("--program", default=PROGRAM)
    parser.add_argument("--plain", action="store_true",
                        help="without --gpu, for programs that have no such option")
    parser.add_argument("--worst", type=int, default=0, help="problems to show")
    parser.add_argument("--json", help="write the table here")
    options = parser.parse_args(argv)
    rows = [row for path in options.files for row in judge(path, options.program, options.plain)]
    show(rows, options.worst)
    show_floors(rows, options.worst)
    if options.json:
        with open(options.json, "w") as file:
            json.dump([{"gpu": gpu, "cell": cell, "fit": fit, "held_out": held}
                       for gpu, cell, fit, held in tables(rows)], file, indent=1)
            file.write("\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
