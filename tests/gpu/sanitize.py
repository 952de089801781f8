#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Small runs of every recipe under the four tools of compute-sanitizer, several at once.

    tests/gpu/sanitize.py [--json FILE] [--jobs N] [--seconds N] [--commit HASH] [RECIPE ...]

Products: gpu_suite --sanitize, a process for each recipe. Casts and the grouped MLP: `quern run --check`.
A run passes if the tool ends with no error and the program with status 0. Runs that have not ended --seconds
after the start of all are stopped and count as failed. Prints a line for each failure and the sums by
tool; status 0 if all passed. Needs a GPU, compute-sanitizer and libnvrtc; plain Python is enough.
"""
import argparse
import concurrent.futures
import json
import os
import re
import subprocess
import sys
import time

from run import kernels

BIN = os.path.join(os.path.dirname(__file__), "../../build/bin")
TOOLS = ("memcheck", "racecheck", "synccheck", "initcheck")
SIZES = "g=3 m=200 k=256 split=0,129,71"
CASTS = ("quantize {} of=dy dbias=1 " + SIZES, "quantize {} of=w g=2 m=128 k=256",
         "quantize {} of=x activation=swiglu prob=1 " + SIZES, "dequantize {} of=x copies=columnwise " + SIZES,
         "quantize {} of=dy activation=swiglu prob=1 dprob=1 dbias=1 " + SIZES, "transpose {} of=x " + SIZES)
UNSCALED = ("bf16", "fp16")  # nothing to quantize: only activations
MLP = "mlp {} g=3 m=200 hidden=256 ffn=128 prob=1 bias=1 split=0,129,71"


def runs(args):
    """(what, command) of each run under one tool."""
    suite, quern = f"{args.bin}/gpu_suite", f"{args.bin}/quern"
    for recipe in args.recipes or sorted({name.rsplit("_", 1)[0] for name in kernels([suite, "--quick"])}):
        yield recipe, [suite, "--sanitize", "--quick", f"--only=quern_{recipe}_*", "--threads=1"]
        lines = [line.format(recipe) for line in CASTS if recipe not in UNSCALED] + [MLP.format(recipe)]
        for line in lines:
            yield line, [quern, "run", "--check", line]


def sanitize(tool, what, command, deadline):
    left = deadline - time.time()
    result = {"tool": tool, "what": what, "passed": False, "summary": "not begun: its time was over"}
    if left <= 0:
        return result
    barriers = ["--num-cuda-barriers", "64"] if tool == "racecheck" else []  # or it knows none in shared memory
    wrapped = ["compute-sanitizer", "--tool", tool, *barriers, "--error-exitcode", "9"] + command
    began = time.time()
    try:
        ended = subprocess.run(wrapped, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=left,
                               errors="replace")
    except subprocess.TimeoutExpired:
        return dict(result, summary="stopped: its time was over")
    found = re.findall(r"(?:ERROR|RACECHECK) SUMMARY: (.*)", ended.stdout)
    result.update(passed=ended.returncode == 0, seconds=round(time.time() - began, 1), summary=found[-1] if found else "no summary")
    if ended.returncode:
        result["output"] = ended.stdout[-3000:]
    return result


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("recipes", nargs="*", metavar="RECIPE", help="these alone (all that have kernels here)")
    parser.add_argument("--json", metavar="FILE")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 2, help="processes at once (all cores)")
    parser.add_argument("--seconds", type=float, default=1e6, help="stop what has not ended by then")
    parser.add_argument("--commit", default=os.environ.get("QUERN_COMMIT", ""))
    parser.add_argument("--bin", default=BIN, help="where gpu_suite and quern are")
    args = parser.parse_args()
    began = time.time()

    with concurrent.futures.ThreadPoolExecutor(args.jobs) as pool:
        jobs = [pool.submit(sanitize, tool, what, command, began + args.seconds)
                for tool in TOOLS for what, command in runs(args)]
        results = [job.result() for job in jobs]
    for r in results:
        if not r["passed"]:
            print(f"# {r['tool']} {r['what']}: {r['summary']}")
    for tool in TOOLS:
        mine = [r["passed"] for r in results if r["tool"] == tool]
        print(f"{tool:10} {sum(mine):4} passed {len(mine) - sum(mine):4} failed")
    if args.json:
        with open(args.json, "w") as file:
            rows = ",\n".join(map(json.dumps, results))
            file.write(f'{{"commit": {json.dumps(args.commit)}, "seconds": {time.time() - began}, "runs": [\n{rows}]}}\n')
    sys.exit(0 if all(r["passed"] for r in results) else 1)


if __name__ == "__main__":
    main()
