# SPDX-License-Identifier: Apache-2.0
"""Expert parallelism by all_to_all of padded buffers: each device sends every other one as many
rows as it has tokens, of which the first ones are used.

    python examples/jax_all_to_all.py
"""

import jax.numpy as jnp
from jax import lax

from jax_experts import EXPERTS, by_expert, compare, mlp, unsorted


def layer(x, expert, w1, w2):
    tokens, local, me = x.shape[0], w1.shape[0], lax.axis_index("ep")
    devices = EXPERTS // local
    order, sizes = by_expert(expert)
    send = sizes.reshape(devices, local).sum(1)  # rows for each device
    row = (jnp.cumsum(send) - send)[:, None] + jnp.arange(tokens)
    used = jnp.arange(tokens) < send[:, None]
    padded = jnp.where(used[..., None], x[order][jnp.minimum(row, tokens - 1)], 0)
    got = lax.all_to_all(padded, "ep", 0, 0)  # [source, tokens, hidden]
    every = lax.all_gather(sizes, "ep")  # [source, experts]
    mine = lax.dynamic_slice(every, (0, me * local), (devices, local))
    # Rows of each source are sorted by expert; sort them all, and padding to the end.
    ends = jnp.cumsum(mine, 1)
    of = jnp.sum(jnp.arange(tokens)[None, :, None] >= ends[:, None, :], 2).reshape(-1)
    inner = jnp.argsort(of, stable=True)
    y = mlp(got.reshape(devices * tokens, -1)[inner], w1, w2, mine.sum(0))
    back = lax.all_to_all(unsorted(y, inner).reshape(devices, tokens, -1), "ep", 0, 0)
    y = jnp.zeros_like(x).at[jnp.where(used, row, tokens)].add(back, mode="drop")
    return unsorted(y, order)


if __name__ == "__main__":
    compare(layer)
