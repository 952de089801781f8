#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""quern.jax's layer whose experts are spread over the GPUs of one process, forward and backward.

    python3 bench/expert_parallel_jax.py [--recipes bf16,fp8_block] [--shapes 'qwen3*,fine'] [--tokens N]
                                         [--rounds N] [--json FILE] [--commit HASH]

Shapes, room for pairs and `local` are those of bench/expert_parallel.py, which times quern.torch;
XLA exchanges rows by all_to_all. Times are medians over rounds in which all take turns, of a jitted
call with the wait for every GPU. y and the gradients are compared bit by bit with those of one GPU
that has all tokens and experts. --tokens makes layers smaller; with
JAX_PLATFORMS=cpu there are two simulated devices.
"""

import functools
import json
import os
import statistics
import sys
import time

if os.environ.get("JAX_PLATFORMS") == "cpu":
    os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=2"

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, PartitionSpec as P

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(os.path.dirname(HERE), "runtime", "python"))

import expert_layers  # noqa: E402
import quern.jax as qj  # noqa: E402


def draw(shape, devices):
    """x, probs, w1, w2, indices and dy of all devices."""
    _, tokens, hidden, ffn, experts, topk = shape
    keys = jax.random.split(jax.random.key(1), 5)
    rows = tokens * devices
    x, dy = (jax.random.normal(key, (rows, hidden), jnp.bfloat16) for key in keys[:2])
    w1 = jax.random.normal(keys[2], (experts, hidden, 2 * ffn), jnp.bfloat16) * hidden**-0.5
    w2 = jax.random.normal(keys[3], (experts, ffn, hidden), jnp.bfloat16) * ffn**-0.5
    values, indices = jax.lax.top_k(jax.random.normal(keys[4], (rows, experts)), topk)
    return (x, jax.nn.softmax(values), w1, w2, indices.astype(jnp.int32)), dy


def both(layer):
    def run(x, probs, w1, w2, indices, dy):
        y, back = jax.vjp(lambda *given: layer(*given, indices), x, probs, w1, w2)
        return y, *back(dy)
    return run


def layers_of(given, mesh, recipe):
    """{name: the layer}, of arrays that are spread over the mesh."""
    devices, indices = mesh.size, np.asarray(given[4])
    own, tokens = given[2].shape[0] // devices, len(indices) // devices
    to = (indices // own).reshape(devices, tokens, -1)
    pairs = max(int((to == device).sum((1, 2)).max()) for device in range(devices))
    capacity = expert_layers.capacity(pairs, tokens, indices.shape[1])

    def whole(x, probs, w1, w2, indices):
        return qj.expert_parallel_moe(x, indices, probs, w1, w2, axis_name="ep", recipe=recipe,
                                      capacity=capacity, token_capacity=tokens)

    def local(x, probs, w1, w2, indices):
        return qj.moe(x, indices % own, probs, w1, w2, recipe=recipe)

    spread = functools.partial(jax.shard_map, mesh=mesh, in_specs=(P("ep"),) * 5, out_specs=P("ep"))
    return {f"quern.jax {recipe}": spread(whole), f"local {recipe}": spread(local)}


def one_device(given, dy, recipe):
    device = jax.devices()[0]
    moved = [jax.device_put(np.asarray(a), device) for a in (*given, dy)]
    def moe(x, probs, w1, w2, indices):
        return qj.moe(x, indices, probs, w1, w2, recipe=recipe)
    return [np.asarray(a) for a in jax.jit(both(moe))(*moved)]


def turn(function, arguments, calls):
    """Milliseconds of a call."""
    begin = time.perf_counter()
    for _ in range(calls):
        made = function(*arguments)
    jax.block_until_ready(made)
    return (time.perf_counter() - begin) / calls * 1e3


def measure(shape, mesh, recipe, rounds):
    given, dy = draw(shape, mesh.size)
    spread = jax.sharding.NamedSharding(mesh, P("ep"))
    arguments = [jax.device_put(a, spread) for a in (*given, dy)]
    calls, rows, times = {}, {}, {}
    for name, layer in layers_of(given, mesh, recipe).items():
        calls[name, "forward"] = jax.jit(layer), arguments[:5]
        calls[name, "both"] = jax.jit(both(layer)), arguments
    for (name, phase), (function, arguments) in calls.items():
        made = jax.block_until_ready(function(*arguments))
        rows[name, phase] = {"shape": shape[0], "who": name, "phase": phase}
        if phase == "both" and name.startswith("quern"):
            found = [np.asarray(a) for a in made]
            expected = one_device(given, dy, recipe)
            rows[name, phase]["bits_of_one_device"] = [
                what for what, a, b in zip(("y", "dx", "dprob", "dw1", "dw2"), found, expected)
                if a.tobytes() == b.tobytes()]
            del found, expected
    for _ in range(rounds):
        for name, (function, arguments) in calls.items():
            times.setdefault(name, []).append(turn(function, arguments, 4))
    for name, row in rows.items():
        row["ms"] = statistics.median(times[name])
    return list(rows.values())


def main():
    options = expert_layers.parser().parse_args()
    mesh = Mesh(np.array(jax.devices()), ("ep",))
    head = {"gpu": jax.devices()[0].device_kind, "devices": mesh.size, "jax": jax.__version__,
            "commit": options.commit}
    rows = []
    for shape in expert_layers.chosen(options):
        for recipe in options.recipes.split(","):
            for row in measure(shape, mesh, recipe, options.rounds):
                rows.append(row)
                print(row, flush=True)
            if options.json:
                with open(options.json, "w", encoding="utf-8") as out:
                    json.dump(head | {"rows": rows}, out, indent=1)


if __name__ == "__main__":
    main()
