#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""quern.jax next to jax.lax.ragged_dot, XLA's dense product of equal groups, and quern.torch.

    python3 bench/jax_ragged_dot.py [--shapes NAME,..] [--tokens N] [--torch PYTHON] [--json FILE]
                                    [--commit HASH]

Layers of bench/shapes.json with equal groups, forward, and forward and backward; `small` is the
product of bench/torch_host.py, so small that the GPU waits for the host. `batched` is one dense
product for each group, which XLA does best, and which only equal groups allow. Each row is the
median of 9 turns of up to 10 calls, all rows taking turns: milliseconds with the wait, and the
host's microseconds for a call without it. --torch names a Python with torch, which then measures
quern.torch in a process of its own. --tokens makes the layers smaller, for a machine without a GPU.
"""

import argparse
import functools
import json
import os
import statistics
import subprocess
import sys
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, os.path.join(ROOT, "runtime", "python"))
IS_TORCH = "--only-torch" in sys.argv
if IS_TORCH:
    import torch
    import quern.torch as qt
else:
    import jax
    import jax.numpy as jnp
    from jax import lax
    import quern.jax as qj

CALLS, TURNS, SECONDS = 10, 9, 0.1  # of a turn, about
SMALL = {"name": "small", "groups": 8, "tokens": 64, "n": 384, "k": 256}
RECIPES = ("bf16", "fp8_block")


def batched(x, w, sizes):
    g, k, n = w.shape
    return jnp.einsum("gmk,gkn->gmn", x.reshape(g, -1, k), w).reshape(-1, n)


def dots():
    return {f"quern {recipe}": functools.partial(qj.ragged_dot, recipe=recipe)
            for recipe in RECIPES} | {"jax.lax.ragged_dot": lax.ragged_dot, "batched": batched}


def both(dot):
    def run(x, w, sizes, dy):
        y, back = jax.vjp(lambda x, w: dot(x, w, sizes), x, w)
        return y, *back(dy)
    return run


def rows(g, tokens, n, k):
    """{name: (function, arguments)}"""
    tokens -= tokens % g
    keys = jax.random.split(jax.random.key(0), 3)
    x = jax.random.normal(keys[0], (tokens, k), jnp.bfloat16)
    w = jax.random.normal(keys[1], (g, k, n), jnp.bfloat16)
    dy = jax.random.normal(keys[2], (tokens, n), jnp.bfloat16)
    sizes = jnp.full((g,), tokens // g, jnp.int32)
    found = {f"{name}, forward": (jax.jit(dot), (x, w, sizes)) for name, dot in dots().items()}
    return found | {f"{name}, both": (jax.jit(both(dot)), (x, w, sizes, dy))
                    for name, dot in dots().items()}


def torch_rows(g, tokens, n, k):
    """Those of quern.torch."""
    tokens -= tokens % g
    device = "cuda" if torch.cuda.is_available() else "cpu"
    x, w, dy = (torch.randn(shape, device=device).bfloat16() for shape in (
        (tokens, k), (g, n, k), (tokens, n)))
    sizes = torch.full((g,), tokens // g, device=device, dtype=torch.int32)
    leaves = [t.clone().requires_grad_() for t in (x, w)]

    def step(recipe):
        return torch.autograd.grad(qt.grouped_mm(*leaves, sizes, recipe=recipe), leaves, dy)

    found = {}
    for recipe in RECIPES:
        found[f"quern.torch {recipe}, forward"] = functools.partial(
            qt.grouped_mm, x, w, sizes, recipe=recipe), ()
        found[f"quern.torch {recipe}, both"] = functools.partial(step, recipe), ()
    return found


def wait(made):
    if not IS_TORCH:
        jax.block_until_ready(made)
    elif torch.cuda.is_available():
        torch.cuda.synchronize()


def turn(function, arguments, calls):
    """Seconds of a call, and those until it returns."""
    begin = time.perf_counter()
    for _ in range(calls):
        made = function(*arguments)
    returned = time.perf_counter()
    wait(made)
    return (time.perf_counter() - begin) / calls, (returned - begin) / calls


def measure(shape):
    contestants, times, calls = (torch_rows if IS_TORCH else rows)(*shape), {}, {}
    for name, (function, arguments) in list(contestants.items()):
        try:
            wait(function(*arguments))
            calls[name] = max(1, min(CALLS, int(SECONDS / turn(function, arguments, 1)[0])))
        except RuntimeError as error:  # jax's own may run out of memory
            print(f"{name}: {str(error).splitlines()[0][:120]}", file=sys.stderr)
            del contestants[name]
    for _ in range(TURNS):
        for name, (function, arguments) in contestants.items():
            times.setdefault(name, []).append(turn(function, arguments, calls[name]))
    return {name: {"ms": round(statistics.median(t[0] for t in turns) * 1e3, 4),
                   "host_us": round(statistics.median(t[1] for t in turns) * 1e6, 2)}
            for name, turns in times.items()}


def measure_all(args):
    with open(os.path.join(ROOT, "bench", "shapes.json")) as file:
        known = {shape["name"]: shape for shape in [SMALL, *json.load(file)["shapes"]]}
    results = {}
    for name in args.shapes.split(","):
        s = known[name]
        shape = [s["groups"], s["tokens"], s["n"], s["k"]]
        if args.tokens:
            shape = [s["groups"], max(args.tokens, s["groups"]), 64, 64]
        results[name] = measure(shape)
    return results


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--shapes", default="small,dsv3_up_g8,qwen3_up")
    parser.add_argument("--tokens", type=int)
    parser.add_argument("--torch")
    parser.add_argument("--only-torch", action="store_true")
    parser.add_argument("--json")
    parser.add_argument("--commit", default="")
    args = parser.parse_args()
    results = measure_all(args)
    if IS_TORCH:
        print(json.dumps(results))
        return
    if args.torch:
        more = ["--tokens", str(args.tokens)] if args.tokens else []
        made = subprocess.run([args.torch, __file__, "--only-torch", "--shapes", args.shapes, *more],
                              check=True, stdout=subprocess.PIPE, text=True)
        for name, found in json.loads(made.stdout.splitlines()[-1]).items():
            results[name] |= found
    for name, found in results.items():
        print(name)
        for row, numbers in found.items():
            print(f"    {row:32s} {numbers['ms']:10.3f} ms {numbers['host_us']:10.1f} us host")
    if args.json:
        with open(args.json, "w") as out:
            json.dump({"commit": args.commit, "device": jax.devices()[0].device_kind,
                       "jax": jax.__version__, "tokens": args.tokens, "results": results}, out,
                      indent=1)
            out.write("\n")


if __name__ == "__main__":
    main()
