# SPDX-License-Identifier: Apache-2.0
"""Shared by the examples of expert parallelism: tokens and experts over the devices of a mesh, an
MLP of each expert, and the same on one device. On the CPU jax simulates four devices."""

import os

os.environ.setdefault("XLA_FLAGS", "--xla_force_host_platform_device_count=4")
os.environ.setdefault("QUERN_THREADS", "1")  # of each of the simulated devices

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, PartitionSpec as P

import quern.jax as qj

EXPERTS, TOKENS, HIDDEN, FFN = 8, 128, 64, 32
SHARDED = P("ep")


def mlp(x, w1, w2, sizes, **more):
    """The experts, over tokens that are sorted by expert."""
    return qj.grouped_mlp(x, w1, w2, sizes, **more)


def by_expert(expert):
    """The order that sorts tokens by expert, and the tokens of each expert."""
    return jnp.argsort(expert, stable=True), jnp.bincount(expert, length=EXPERTS).astype(jnp.int32)


def unsorted(y, order):
    return jnp.zeros_like(y).at[order].set(y)


def unsharded(x, expert, w1, w2):
    order, sizes = by_expert(expert)
    return unsorted(mlp(x[order], w1, w2, sizes), order)


def compare(layer, check_vma=True):
    """Run a layer of shards, forward and backward, next to the unsharded one."""
    devices = jax.devices()
    devices = devices[:max(n for n in (1, 2, 4, 8) if n <= len(devices))]
    mesh = Mesh(np.array(devices), ("ep",))
    keys = jax.random.split(jax.random.key(0), 5)
    x = jax.random.normal(keys[0], (TOKENS, HIDDEN), jnp.bfloat16)
    w1 = jax.random.normal(keys[1], (EXPERTS, HIDDEN, 2 * FFN), jnp.bfloat16) / 8
    w2 = jax.random.normal(keys[2], (EXPERTS, FFN, HIDDEN), jnp.bfloat16) / 8
    dy = jax.random.normal(keys[3], (TOKENS, HIDDEN), jnp.bfloat16)
    expert = jax.random.randint(keys[4], (TOKENS,), 0, EXPERTS)
    sharded = jax.shard_map(layer, mesh=mesh, in_specs=(SHARDED,) * 4, out_specs=SHARDED,
                            check_vma=check_vma)

    def both(layer):
        def run(x, w1, w2):
            y, back = jax.vjp(lambda *a: layer(a[0], expert, *a[1:]), x, w1, w2)
            return (y, *back(dy))
        return jax.jit(run)(x, w1, w2)

    for name, found, expected in zip(("y", "dx", "dw1", "dw2"), both(sharded), both(unsharded)):
        found, expected = np.asarray(found, np.float32), np.asarray(expected, np.float32)
        error = np.abs(found - expected).max() / np.abs(expected).max()
        print(f"{name}: {len(devices)} devices and one differ by {error:.1e}")
        assert error <= 2**-7
