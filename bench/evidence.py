#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The evidence of kernels: which ran on which GPU, or in the interpreter of PTX, from the GPU suite's results in
bench/results.

    python3 bench/evidence.py [QUERN]           write ran.lua and interpreted.lua in specs/kernels; rebuild quern
                                                after it
    python3 bench/evidence.py --check [QUERN]   compare the labels of `QUERN list -k` with the results; status 1
                                                if a label differs

QUERN is build/bin/quern. A kernel ran on a GPU if a file of the suite lists it and no failure of that file
names it: among `ran`, all that were loaded, or among `kernels`, the products of a process that was not stopped
before the family `torture`, which runs each of them. Results of before `ran` existed name no casts;
h100_gpu_casts.json has those of one run.
"""

import glob
import json
import os
import re
import subprocess
import sys
import textwrap

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
INTERPRETED = "interpreted"
GPUS = {"NVIDIA H100 80GB HBM3": "sm_90", "NVIDIA H200": "sm_90",
        **{f"PTX interpreter {device}": INTERPRETED for device in ("8.0", "9.0", "10.0", "12.0")}}
TORTURE = 2  # the number of the family in the suite's output
HEAD = """\
-- Kernels that ran in the GPU suite{}.
-- bench/evidence.py writes this list from bench/results, and CI compares both. A name with an
-- asterisk is the beginning of several.

"""


def runs():
    """(GPU, results) of each run of the suite."""
    for path in sorted(glob.glob(os.path.join(ROOT, "bench/results/*.json"))):
        with open(path, encoding="utf-8") as file:
            results = json.load(file)
        for run in results.get("runs", [results]) if isinstance(results, dict) else []:
            if "families" in run or "ran" in run:
                if run["gpu"] not in GPUS:
                    sys.exit(f"{path}: bench/evidence.py does not know the GPU '{run['gpu']}'")
                yield GPUS[run["gpu"]], run


def stopped(run):
    """Families of processes that ended before each of their kernels had run."""
    for failure in run.get("failures", []):
        text = failure["text"]
        if text.startswith(("stopped", "ended", "left")):
            done = re.search(r"ok (\d+) - ", text)
            if not done or int(done[1]) < TORTURE:
                yield failure["family"]


def listed(run):
    """The kernels that ran, by their names at that time."""
    named = {name for failure in run.get("failures", []) for name in re.findall(r"quern_\w+", failure["text"])}
    lost = tuple(f"quern_{family}_" for family in stopped(run))
    products = {name for name in run.get("kernels", []) if not name.startswith(lost)}
    return (products | set(run.get("ran", []))) - named


def list_kernels(quern):
    """[(name, row)] of all kernels, by name."""
    text = subprocess.run([quern, "list", "-k", "--json"], check=True, stdout=subprocess.PIPE, text=True).stdout
    return sorted((row["kernel"], row) for row in json.loads(text))


def evidence(kernels):
    """{GPU: names} that the results show."""
    ran = {}
    for gpu, run in runs():
        serves = {name for name, row in kernels if gpu in row["gpus"] or gpu == INTERPRETED}
        ran.setdefault(gpu, set()).update(listed(run) & serves)
    return ran


def patterns(names, every):
    """Beginnings of names, up to an underscore, that no other kernel has; or whole names."""
    found = []
    for name in sorted(names):
        if found and found[-1][-1] == "*" and name.startswith(found[-1][:-1]):
            continue
        ends = [m.end() for m in re.finditer("_", name)][1:]
        for end in ends:
            alike = [other for other in every if other.startswith(name[:end])]
            if len(alike) > 1 and names.issuperset(alike):
                found.append(name[:end] + "*")
                break
        else:
            found.append(name)
    return found


def write_list(path, where, lists, every):
    with open(os.path.join(ROOT, "specs/kernels", path), "w", encoding="utf-8") as file:
        file.write(HEAD.format(where))
        for gpu, names in sorted(lists.items()):
            file.write(f'evidence "{gpu}" {{\n')
            words = " ".join(f'"{pattern}",' for pattern in patterns(names, every))
            file.write(textwrap.fill(words, 100, initial_indent="  ", subsequent_indent="  ",
                                     break_long_words=False, break_on_hyphens=False) + "\n}\n\n")
        file.write("-- SPDX-License-Identifier: Apache-2.0\n")


def write(kernels):
    every, ran = [name for name, _ in kernels], evidence(kernels)
    write_list("interpreted.lua", " on the interpreter of PTX (bench/interpret.py)",
               {INTERPRETED: ran.pop(INTERPRETED, set())}, every)
    write_list("ran.lua", "", ran, every)


def check(kernels):
    """How many labels differ from the results."""
    ran, wrong = evidence(kernels), 0
    for name, row in kernels:
        for gpu, label in row["gpus"].items():
            known = "run" if name in ran.get(gpu, ()) else "interpreted" if name in ran.get(INTERPRETED, ()) else "compiled"
            if label != known:
                wrong += 1
                if wrong <= 10:
                    print(f"{name}: evidence {label} on {gpu}; bench/results show that it is {known}")
    if wrong:
        print(f"{wrong} labels differ from bench/results; run: python3 bench/evidence.py")
    return wrong


def main():
    args = [arg for arg in sys.argv[1:] if arg != "--check"]
    kernels = list_kernels(args[0] if args else os.path.join(ROOT, "build/bin/quern"))
    if "--check" in sys.argv:
        return 1 if check(kernels) else 0
    write(kernels)
    return 0


if __name__ == "__main__":
    sys.exit(main())
