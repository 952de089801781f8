# SPDX-License-Identifier: Apache-2.0
"""Expert parallelism by group_offset: every device gathers all tokens, multiplies those of its own
experts, which are rows in the middle, and the results are summed to the devices of the tokens.

    python examples/jax_ring.py
"""

from jax import lax

from jax_experts import by_expert, compare, mlp, unsorted


def layer(x, expert, w1, w2):
    first = lax.axis_index("ep") * w1.shape[0]
    x, expert = (lax.all_gather(a, "ep", tiled=True) for a in (x, expert))
    order, sizes = by_expert(expert)
    y = mlp(x[order], w1, w2, sizes, group_offset=first)  # zeros in the rows of other experts
    return lax.psum_scatter(unsorted(y, order), "ep", tiled=True)


if __name__ == "__main__":
    compare(layer)
