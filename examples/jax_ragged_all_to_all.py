# SPDX-License-Identifier: Apache-2.0
"""Expert parallelism by ragged_all_to_all: each device sends every other one exactly the rows of
its experts. XLA:CPU has no such operation; there a gather of all rows stands for it.

    python examples/jax_ragged_all_to_all.py
"""

import jax
import jax.numpy as jnp
from jax import lax

from jax_experts import EXPERTS, by_expert, compare, mlp, unsorted


def exchange(x, room, input_offsets, send, output_offsets, receive):
    """Rows of x, those from input_offsets[d] on, go to device d, at output_offsets[d] there."""
    out = jnp.zeros((room, x.shape[1]), x.dtype)
    if jax.default_backend() != "cpu":
        out = lax.pcast(out, ("ep",), to="varying")
        return lax.ragged_all_to_all(x, out, input_offsets, send, output_offsets, receive,
                                     axis_name="ep")
    me, rows = lax.axis_index("ep"), jnp.arange(x.shape[0])
    x, begin, count, place = (lax.all_gather(a, "ep") for a in (
        x, input_offsets, send, output_offsets))
    begin, count, place = begin[:, me, None], count[:, me, None], place[:, me, None]
    inside = (rows >= begin) & (rows < begin + count)
    return out.at[jnp.where(inside, rows - begin + place, room)].add(x, mode="drop")


def layer(x, expert, w1, w2):
    tokens, local, me = x.shape[0], w1.shape[0], lax.axis_index("ep")
    devices = EXPERTS // local
    order, sizes = by_expert(expert)
    every = lax.all_gather(sizes, "ep")  # [source, experts]
    rows = every.reshape(devices, devices, local).sum(2)  # [source, destination]
    there = jnp.cumsum(rows, 0) - rows  # where a source's rows begin at a destination
    here = jnp.cumsum(rows, 1) - rows  # where a destination's rows begin at the source
    room = devices * tokens  # enough for the tokens of all
    got = exchange(x[order], room, here[me], rows[me], there[me], rows[:, me])
    # Rows are sorted by source, then by expert; sort them by expert only.
    mine = lax.dynamic_slice(every, (0, me * local), (devices, local)).reshape(-1)
    run = jnp.sum(jnp.arange(room)[:, None] >= jnp.cumsum(mine), 1)
    of = jnp.where(run < devices * local, run % local, local)
    inner = jnp.argsort(of, stable=True)
    y = unsorted(mlp(got[inner], w1, w2, mine.reshape(devices, local).sum(0)), inner)
    back = exchange(y, tokens, there[:, me], rows[:, me], here[:, me], rows[me])
    return unsorted(back, order)


if __name__ == "__main__":
    compare(layer)
