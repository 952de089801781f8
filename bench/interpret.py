#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Kernels in the interpreter of PTX: the GPU suite, each kernel by itself, for the GPU that it is made for.

    python3 bench/interpret.py [GLOB ...]   products and epilogues that ran on no GPU: the shipped ones and, of each
                                            grid and architecture, so many that each word of a name is in one; or
                                            those of which a GLOB matches the name

Adds the suite's findings to bench/results/ptx_interpreter.json, from which bench/evidence.py labels kernels.
Kernels that ran right there are not run again.
"""

import concurrent.futures
import fnmatch
import json
import os
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
RESULTS = os.path.join(ROOT, "bench/results/ptx_interpreter.json")
FAKE = os.path.join(ROOT, "build/lib/fake_ptx.so")
SEED = "3"  # of data and of the machine: every copy lands late
DEVICES = {"sm_80": "8.0", "sm_90a": "9.0", "sm_100f": "10.0", "sm_120a": "12.0"}
# Families of kernels that are more than a product.                             COUPLED: families
FAMILIES = (("_gather_", "gather"), ("_lora", "lora"), ("_scatter", "scatter"), ("_activate_", "activate"), ("_gradient_", "activate"), ("_copies_", "activate"),
            ("_epilogue_", "epilogues"),
            ("_mainloop", "fuse"), ("microbatch", "queue,torture,bad_sizes"), ("", "torture,many,tails,bad_sizes"))


def is_new(row, words):
    """Has the name a word that no kernel of its grid and architecture had before?"""
    mine = {(row["spec"], row["arch"], word) for word in row["kernel"].split("_")}
    new = not mine <= words
    words |= mine
    return new


def list_kernels(globs):
    """[(name, architecture)] of those to run."""
    text = subprocess.run([os.path.join(ROOT, "build/bin/quern"), "list", "-k", "--json"], check=True,
                          stdout=subprocess.PIPE, text=True).stdout
    rows = [row for row in json.loads(text) if row["arch"] in DEVICES
            and (row["tile"] != "0x0x0" or "_epilogue_" in row["kernel"])]
    words = set()
    if globs:
        rows = [row for row in rows if any(fnmatch.fnmatch(row["kernel"], glob) for glob in globs)]
    else:
        rows = [row for row in rows if "run" not in row["gpus"].values()
                and (row["shipped"] or row["arch"] != "sm_90a" and is_new(row, words))]
    return [(row["kernel"], row["arch"]) for row in rows]


def families(kernel):
    return next(names for part, names in FAMILIES if part in kernel)


def interpret(kernel):
    """The suite's results of (name, architecture)."""
    name, arch = kernel
    real = os.environ.get("QUERN_NVRTC")
    environment = {**os.environ, "PTX_DEVICE": DEVICES[arch], "PTX_SEED": SEED, "QUERN_CUDA": FAKE, "QUERN_NVRTC": FAKE}
    if real:
        environment["PTX_NVRTC"] = real
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "results.json")
        command = [os.path.join(ROOT, "build/bin/gpu_suite"), "--only", name, "--family", families(name), "--quick",
                   "--threads", "1", "--seed", SEED, "--json", path]
        subprocess.run(command, env=environment, check=False, stdout=subprocess.DEVNULL)
        with open(path, encoding="utf-8") as file:
            return json.load(file)


def add(runs, results):
    """Add a kernel's results to those of its GPU."""
    run = next((run for run in runs if run["gpu"] == results["gpu"]), None)
    if not run:
        run = {"gpu": results["gpu"], "commit": results["commit"], "seed": results["seed"], "passed": 0, "suite": [],
               "ran": [], "failures": []}
        runs.append(run)
    run["passed"] += sum(family["passed"] for family in results["families"])
    run["failures"] += results["failures"]
    run["suite"] = sorted({*run["suite"], *(family["name"] for family in results["families"])})
    if results["finished"] and not results["failures"]:
        run["ran"] = sorted({*run["ran"], *results["ran"]})


def write(runs):
    with open(RESULTS, "w", encoding="utf-8") as file:
        json.dump({"runs": sorted(runs, key=lambda run: run["gpu"])}, file, indent=1)
        file.write("\n")


def main():
    runs = []
    if os.path.exists(RESULTS):
        with open(RESULTS, encoding="utf-8") as file:
            runs = json.load(file)["runs"]
    known = {name for run in runs for name in run["ran"]}
    kernels = [kernel for kernel in list_kernels(sys.argv[1:]) if kernel[0] not in known]
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        for results in pool.map(interpret, kernels):
            add(runs, results)
            write(runs)
    for run in runs:
        print(f"{run['gpu']}: {run['passed']} passed, {len(run['failures'])} failed, {len(run['ran'])} kernels ran")
    return 1 if any(run["failures"] for run in runs) else 0


if __name__ == "__main__":
    sys.exit(main())
