#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""quern.jax next to jax.lax.ragged_dot and to XLA's dense product of equal groups.

    python3 bench/jax_ragged_dot.py [--shapes NAME,..] [--tokens N] [--json FILE] [--commit HASH]

Layers of bench/shapes.json with equal groups, forward, and forward and backward. `batched` is one
dense product for each group, which XLA does best, and which only equal groups allow. Each row is
the median of 9 turns of 10 calls, all rows taking turns: milliseconds with the wait, and the host's
microseconds for a call without it. For quern.torch on the same layers: bench/peers.py. --tokens
makes the layers smaller, for a machine without a GPU.
"""

import argparse
import functools
import json
import os
import statistics
import sys
import time

import jax
import jax.numpy as jnp
from jax import lax

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, os.path.join(ROOT, "runtime", "python"))
import quern.jax as qj  # noqa: E402

CALLS, TURNS = 10, 9


def batched(x, w, sizes):
    g, k, n = w.shape
    return jnp.einsum("gmk,gkn->gmn", x.reshape(g, -1, k), w).reshape(-1, n)


DOTS = {"quern bf16": qj.ragged_dot,
        "quern fp8_block": functools.partial(qj.ragged_dot, recipe="fp8_block"),
        "quern mxfp8": functools.partial(qj.ragged_dot, recipe="mxfp8"),
        "jax.lax.ragged_dot": lax.ragged_dot, "batched": batched}


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
    found = {f"{name}, forward": (jax.jit(dot), (x, w, sizes)) for name, dot in DOTS.items()}
    return found | {f"{name}, both": (jax.jit(both(dot)), (x, w, sizes, dy))
                    for name, dot in DOTS.items()}


def turn(function, arguments):
    """Seconds of a call, and those until it returns."""
    begin = time.perf_counter()
    for _ in range(CALLS):
        made = function(*arguments)
    returned = time.perf_counter()
    jax.block_until_ready(made)
    return (time.perf_counter() - begin) / CALLS, (returned - begin) / CALLS


def measure(shape):
    contestants, times = rows(*shape), {}
    for name, (function, arguments) in list(contestants.items()):
        try:
            jax.block_until_ready(function(*arguments))
        except jax.errors.JaxRuntimeError as error:  # jax's own may run out of memory
            print(f"{name}: {str(error).splitlines()[0][:120]}")
            del contestants[name]
    for _ in range(TURNS):
        for name, (function, arguments) in contestants.items():
            times.setdefault(name, []).append(turn(function, arguments))
    return {name: {"ms": round(statistics.median(t[0] for t in turns) * 1e3, 4),
                   "host_us": round(statistics.median(t[1] for t in turns) * 1e6, 2)}
            for name, turns in times.items()}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--shapes", default="dsv3_up_g8,mixtral_up,qwen3_up")
    parser.add_argument("--tokens", type=int)
    parser.add_argument("--json")
    parser.add_argument("--commit", default="")
    args = parser.parse_args()
    with open(os.path.join(ROOT, "bench", "shapes.json")) as file:
        known = {shape["name"]: shape for shape in json.load(file)["shapes"]}
    results = {}
    for name in args.shapes.split(","):
        s = known[name]
        shape = [s["groups"], s["tokens"], s["n"], s["k"]]
        if args.tokens:
            shape = [s["groups"], max(args.tokens, s["groups"]), 64, 64]
        print(f"{name}: g={shape[0]} tokens={shape[1]} n={shape[2]} k={shape[3]}")
        results[name] = measure(shape)
        for row, found in results[name].items():
            print(f"    {row:28s} {found['ms']:10.3f} ms {found['host_us']:10.1f} us host")
    if args.json:
        with open(args.json, "w") as out:
            json.dump({"commit": args.commit, "device": jax.devices()[0].device_kind,
                       "jax": jax.__version__, "tokens": args.tokens, "results": results}, out,
                      indent=1)


if __name__ == "__main__":
    main()
