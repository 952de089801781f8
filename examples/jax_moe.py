# SPDX-License-Identifier: Apache-2.0
"""Expert parallelism of a layer whose tokens choose several experts, with the bits of one device.
A token goes once to each device that has some of its experts, in blocks of a fixed length; the
results come back and are added up at home, in the order of the token's choices.

    python examples/jax_moe.py
"""

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import Mesh

from jax_experts import EXPERTS, FFN, HIDDEN, SHARDED, TOKENS

import quern.jax as qj

TOPK = 3


def compare(check_vma=True, **more):
    """Forward and backward, next to one device."""
    devices = jax.devices()
    devices = devices[:max(n for n in (1, 2, 4, 8) if n <= len(devices))]
    keys = jax.random.split(jax.random.key(0), 6)
    x, dy = (jax.random.normal(key, (TOKENS, HIDDEN), jnp.bfloat16) for key in keys[:2])
    w1 = jax.random.normal(keys[2], (EXPERTS, HIDDEN, 2 * FFN), jnp.bfloat16) / 8
    w2 = jax.random.normal(keys[3], (EXPERTS, FFN, HIDDEN), jnp.bfloat16) / 8
    probs, indices = lax.top_k(jax.random.uniform(keys[4], (TOKENS, EXPERTS)), TOPK)
    indices = indices.at[::5, 1].set(EXPERTS)  # dropped pairs
    mesh = Mesh(np.array(devices), ("ep",))

    def layer(*arguments):  # of this device's tokens and experts
        return qj.expert_parallel_moe(*arguments, axis_name="ep",
                                      token_capacity=TOKENS // len(devices), **more)

    sharded = jax.shard_map(layer, mesh=mesh, in_specs=(SHARDED,) * 5, out_specs=SHARDED,
                            check_vma=check_vma)

    def both(function):
        def run(x, probs, w1, w2):
            y, back = jax.vjp(lambda x, p, *w: function(x, indices, p, *w), x, probs, w1, w2)
            return (y, *back(dy))
        return jax.jit(run)(x, probs, w1, w2)

    found, expected = both(sharded), both(lambda *a: qj.moe(*a, **more))
    for name, a, b in zip(("y", "dx", "dprobs", "dw1", "dw2"), found, expected):
        assert np.asarray(a).tobytes() == np.asarray(b).tobytes(), name
    print(f"y and all gradients: {len(devices)} devices and one have the same bits")


if __name__ == "__main__":
    compare()
