#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The interpreter of PTX against a GPU: the same runs of the GPU suite, kernel by kernel.

    python3 tests/ptx/calibrate.py measure FILE   on an H100: the digests of all runs, as JSON
    python3 tests/ptx/calibrate.py                run them in the interpreter; status 1 if a digest
                                                  differs from bench/results/h100_ptx.json
    python3 tests/ptx/calibrate.py compare FILE   the same, and write the counts of each kernel as JSON

Quantized values have one magnitude (--alike), as when the H100 was measured. Kernels are those of victims.h: one of
each template and feature. Integers are small enough that every order of fp32 sums gives the same bits; other
values have the bits of Hopper's tensor cores, as machine/sums.c adds them, and so have FP8 products. D must be equal to
the byte in all runs. Group sizes around the tiles with ragged tails, sides that fill no tile, and invalid sizes, of
which the report must be the same. QUERN_SHARE=I/N takes every N-th kernel.
"""

import concurrent.futures
import json
import os
import re
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
SUITE = os.path.join(ROOT, "build/bin/gpu_suite")
FAKE = os.path.join(ROOT, "build/lib/fake_ptx.so")
RESULTS = os.path.join(ROOT, "bench/results/h100_ptx.json")
# Those run by families that compare something else than D, or of recipes that are not quern's own.
OTHERS = ("_activate_", "_mainloop", "microbatches", "quern_test_")
# Runs by their kind and result: sums that are exact in fp32, others, and FP8 products.
KINDS = tuple(f"{kind}_{found}" for kind in ("exact", "rounded", "fp8") for found in ("equal", "different"))


def victims():
    with open(os.path.join(ROOT, "tests/ptx/victims.h"), encoding="utf-8") as file:
        text = file.read().replace("\\\n", "")
    names = ["quern_" + "".join(re.findall(r'"(.*?)"', line)) for line in re.findall(r"#define \w+ (.*)", text)]
    return sorted(name for name in names if not any(other in name for other in OTHERS))


def run(kernel, environment):
    """[(kind, digest, run)] of one kernel, and what the suite printed last."""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "digests")
        command = [SUITE, "--only", kernel, "--family", "torture,tails,bad_sizes", "--quick", "--threads", "1",
                   "--alike", "--digests", path]
        done = subprocess.run(command, env={**os.environ, **environment}, text=True, check=False,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        lines = done.stdout.splitlines() or ["nothing was printed"]
        if done.returncode:
            return [], "\n".join(lines[-8:])
        with open(path, encoding="utf-8") as file:
            rows = [line.rstrip("\n").split(" ", 2) for line in file]
    # Which kernels the model chooses depends on the GPU.
    return [row for row in rows if row[2].endswith(f" {kernel} [{kernel}]")], lines[-2]


def run_all(kernels, environment, workers):
    with concurrent.futures.ThreadPoolExecutor(workers) as pool:
        return dict(zip(kernels, pool.map(lambda kernel: run(kernel, environment), kernels)))


def measure(path):
    runs = run_all(victims(), {}, os.cpu_count())
    failed = {kernel: text for kernel, (made, text) in runs.items() if not made}
    commit = os.environ.get("QUERN_COMMIT", "")
    gpu = next(text for made, text in runs.values() if made).split(",")[0].lstrip("# ")
    with open(path, "w", encoding="utf-8") as file:
        json.dump({"gpu": gpu, "commit": commit, "failed": failed,
                   "kernels": {kernel: [" ".join(row[:2]) for row in made] for kernel, (made, _) in runs.items()}}, file, indent=0)
    print(f"{gpu}: {sum(len(made) for made, _ in runs.values())} runs of {len(runs) - len(failed)} kernels; "
          f"failed: {failed or 'none'}")
    return 1 if failed else 0


def share(kernels):
    index, count = map(int, os.environ.get("QUERN_SHARE", "0/1").split("/"))
    return kernels[index::count]


def compare(kernel, made, expected):
    """Counts of one kernel, and lines about runs that differ. Its runs are right within tolerance: the suite saw to that."""
    counts = dict.fromkeys(KINDS, 0)
    told = []
    for (kind, digest, label), row in zip(made, expected):
        equal = digest == row.split()[1]
        kind = "fp8" if kernel.startswith("quern_fp8_") else "exact" if kind == "integer" else "rounded"
        counts[f"{kind}_{'equal' if equal else 'different'}"] += 1
        if not equal:
            told.append(f"{label}: bytes differ from the GPU's")
    return counts, told


def check(path=None):
    with open(RESULTS, encoding="utf-8") as file:
        expected = json.load(file)["kernels"]
    real = os.environ.get("QUERN_NVRTC")
    environment = {"QUERN_CUDA": FAKE, "QUERN_NVRTC": FAKE, **({"PTX_NVRTC": real} if real else {})}
    kernels = share(sorted(expected))
    rows = {}
    wrong = 0
    for kernel in kernels:
        made, text = run(kernel, environment)
        if [row[0] for row in made] != [row.split()[0] for row in expected[kernel]]:
            wrong += 1
            print(f"{kernel}: other runs than on the GPU; {text}")
            continue
        rows[kernel], told = compare(kernel, made, expected[kernel])
        wrong += len(told)
        print("\n".join([f"{kernel}: {rows[kernel]}", *told]), flush=True)
    total = {key: sum(row[key] for row in rows.values()) for key in KINDS}
    if path:
        with open(path, "w", encoding="utf-8") as file:
            json.dump({"gpu_results": os.path.basename(RESULTS), "commit": os.environ.get("QUERN_COMMIT", ""),
                       "total": total, "kernels": rows}, file, indent=0)
    print(f"{len(kernels)} kernels: {total}")
    print(f"{len(kernels) if not wrong else 0} passed, {wrong} failed, 0 skipped")
    return 1 if wrong else 0


def main(words):
    if words[:1] == ["measure"]:
        return measure(words[1])
    return check(words[1] if words[:1] == ["compare"] else None)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
