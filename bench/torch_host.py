#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The host's time for a call of quern.torch, next to torch's own grouped product.

    python3 bench/torch_host.py [--json FILE] [--commit HASH]

A product so small that the GPU waits for the host: 8 experts, 64 tokens, n=384, k=256. Each row is
the least and the median of 30 turns of 100 calls, in microseconds of the calling thread; all rows
take turns. `product_` writes the caller's tensor; its time less that of quern_run for the same
line, by `quern bench --overhead`, is the front end's own share. Needs a GPU.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import time

import torch

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, os.path.join(ROOT, "runtime", "python"))
import quern.torch as qt  # noqa: E402

G, TOKENS, N, K = 8, 64, 384, 256
LINE = f"fprop bf16 g={G} m={TOKENS} n={N} k={K}"


def bare_launch():
    """Microseconds of quern_run for LINE and of the driver's launch in it, as the program times
    them."""
    program = os.path.join(ROOT, "build", "bin", "quern")
    made = subprocess.run([program, "bench", "--overhead", "--json", "-", LINE], check=True,
                          capture_output=True, text=True)
    row = json.loads(made.stdout)[0]
    return {"quern_run": row["run_us"], "launch": row["bare_us"]}


def driver():
    query = subprocess.run(["nvidia-smi", "--query-gpu=driver_version,clocks.max.sm",
                            "--format=csv,noheader,nounits"], check=True, capture_output=True,
                           text=True).stdout.splitlines()[0].split(", ")
    return {"driver": query[0], "sm_clock_mhz": int(query[1])}


def rows():
    torch.manual_seed(1)
    x = torch.randn(TOKENS, K, device="cuda", dtype=torch.bfloat16)
    w = torch.randn(G, N, K, device="cuda", dtype=torch.bfloat16)
    y, dy = (torch.randn(TOKENS, N, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    lengths = torch.full((G,), TOKENS // G, device="cuda", dtype=torch.int32)
    ends = lengths.cumsum(0, dtype=torch.int32)
    wt = w.transpose(-2, -1)
    xg, wg = x.clone().requires_grad_(), w.clone().requires_grad_()
    none = (None, None)
    product = ("fprop bf16", G, TOKENS, N, K, x, *none, w, *none, lengths, None, *none)

    def both(f):
        xg.grad = wg.grad = None
        f().backward(dy)

    return {
        "product_": lambda: torch.ops.quern.product_(*product, y),
        "product": lambda: torch.ops.quern.product(*product),
        "grouped_mm": lambda: qt.grouped_mm(x, w, lengths),
        "grouped_mm fp8_block": lambda: qt.grouped_mm(x, w, lengths, recipe="fp8_block"),
        "torch._grouped_mm": lambda: torch._grouped_mm(x, wt, offs=ends),
        "forward": lambda: qt.grouped_mm(xg, wg, lengths),
        "torch forward": lambda: torch._grouped_mm(xg, wg.transpose(-2, -1), offs=ends),
        "forward and backward": lambda: both(lambda: qt.grouped_mm(xg, wg, lengths)),
        "torch forward and backward":
            lambda: both(lambda: torch._grouped_mm(xg, wg.transpose(-2, -1), offs=ends)),
        "torch.mm": lambda: torch.mm(x, w[0].T),
        "mul(out=)": lambda: torch.mul(y, 2.0, out=dy),
        "new_empty": lambda: x.new_empty(TOKENS, N),
    }


def microseconds(call, count=100):
    begin = time.thread_time()
    for _ in range(count):
        call()
    spent = time.thread_time() - begin
    torch.cuda.synchronize()
    return spent / count * 1e6


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json")
    parser.add_argument("--commit", default="")
    args = parser.parse_args()
    calls, turns = rows(), {}
    for _ in range(31):
        for name, call in calls.items():
            turns.setdefault(name, []).append(microseconds(call))
    found = {name: {"least": round(min(t[1:]), 2), "median": round(statistics.median(t[1:]), 2)}
             for name, t in turns.items()}
    for name, us in found.items():
        print(f"{name:28s} {us['least']:8.2f} {us['median']:8.2f} us")
    launch = bare_launch()
    print(launch)
    if args.json:
        with open(args.json, "w") as out:
            json.dump({"commit": args.commit, "gpu": torch.cuda.get_device_name(), **driver(),
                       "torch": torch.__version__, "line": LINE, **launch, "us": found}, out,
                      indent=1)


if __name__ == "__main__":
    main()
