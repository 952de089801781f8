# SPDX-License-Identifier: Apache-2.0
"""vmap: a batch of grouped products becomes one product of more groups."""

import typing

import jax
import jax.numpy as jnp
from jax import lax

from quern.jax._checks import signed

MAX_GROUPS, MAX_PAIRS = 1024, 1 << 24  # QUERN_MAX_GROUPS; tokens times choices of a line


class Window(typing.NamedTuple):
    """The experts of a line that takes tokens: `groups` from `first` on, of `total`."""
    groups: int
    first: int
    total: int


def local(index, first, groups, total):
    """Indices of experts as those of the ones that are here: others have no row, those that are
    errors stay errors. A line's own keys do this where they are known."""
    here = index - first
    inside = (here >= 0) & (here < groups)
    return jnp.where(inside, here, jnp.where(index > total, groups + 1, -1))


def local_of_batch(index, window):
    """Those of a batch [batch, m, topk], as experts of one line that has all of them."""
    batch, (groups, first, total) = index.shape[0], window
    index = local(signed(index), first, groups, total)
    number = jnp.arange(batch, dtype=index.dtype)[:, None, None]
    return jnp.where(index < 0, -1, jnp.where(index > groups, batch * groups + 1,
                                              index + number * groups))


def batched(run, sizes, kinds, results, window=None):
    """A function of arrays, with vmap's rule: run({name: sizes}, *arrays), a tuple.

        sizes    names of the first arrays: lengths [g], starts [g + 1], or both
        kinds    of the others: "rows" [m, ..], "columns" [.., m], "groups" [g, ..], "flat" [bytes]
                 of weights and seeds, "index" [m, topk]; and, which are not merged, "bytes", whose
                 layout depends on rows, and "state"
        results  the kinds of run's results
        window   of lines that take tokens, which have no sizes: run(window, *arrays)

    A batch is merged into one run of more rows and groups, with gaps between these where rows are
    outside of all groups. Each batch by itself, if the groups are more than a line may have, or if
    an array or a result is not merged.
    """
    return _merged(run, tuple(sizes), tuple(kinds), tuple(results), window)


def _merged(run, sizes, kinds, results, window):
    are_apart = not {"bytes", "state"}.isdisjoint(kinds + results)

    @jax.custom_batching.custom_vmap
    def function(*arrays):
        return run(window or dict(zip(sizes, arrays)), *arrays[len(sizes):])

    @function.def_vmap
    def rule(batch, is_batched, *arrays):
        if not all(b for b, kind in zip(is_batched[len(sizes):], kinds) if kind == "state"):
            raise NotImplementedError("vmap: delayed scaling needs a state for each call of the "
                                      "batch, since its gradient would be a sum over the batch")
        alone = arrays
        arrays = [a if b else jnp.broadcast_to(a, (batch, *a.shape))
                  for a, b in zip(arrays, is_batched)]
        given, rest = dict(zip(sizes, arrays)), arrays[len(sizes):]
        groups = window.groups if window else arrays[0].shape[1] - ("starts" in sizes[:1])
        pairs = max((a.size // max(batch, 1) for a, kind in zip(rest, kinds) if kind == "index"), default=0)
        if are_apart or batch * groups > MAX_GROUPS or batch * pairs > MAX_PAIRS or \
                0 in (batch, groups):
            return _each(function, alone, is_batched), (True,) * len(results)
        rows = [a.shape[-1 if kind == "columns" else 1] for a, kind in zip(rest, kinds)
                if kind in ("rows", "columns")]
        merged = _merge(given, rows[0]) if sizes else {}
        rest = [local_of_batch(a, window) if kind == "index" else a for a, kind in zip(rest, kinds)]
        wide = window and Window(batch * groups, 0, batch * groups)
        made = _merged(run, tuple(merged), kinds, results, wide)(
            *merged.values(), *map(_join, rest, kinds))
        return tuple(_split(batch, m, kind) for m, kind in zip(made, results)), \
            (True,) * len(results)

    return function


def _each(function, arrays, is_batched):
    """Those of each batch, one after the other; arrays that have no batch are not copied."""
    def one(slices):
        slices = iter(slices)
        return function(*[next(slices) if b else a for a, b in zip(arrays, is_batched)])

    return lax.map(one, [a for a, b in zip(arrays, is_batched) if b])


def _join(array, kind):
    if kind == "columns":
        return jnp.moveaxis(array, 0, -2).reshape(*array.shape[1:-1], len(array) * array.shape[-1])
    return array.reshape(len(array) * array.shape[1], *array.shape[2:])


def _split(batch, array, kind):
    if kind == "columns":
        *shape, last = array.shape
        return jnp.moveaxis(array.reshape(*shape, batch, last // batch), -2, 0)
    return array.reshape(batch, array.shape[0] // batch, *array.shape[1:])


def _merge(sizes, rows):
    """The sizes of a batch as those of one call."""
    lengths, starts = sizes.get("lengths"), sizes.get("starts")
    if lengths is not None:
        lengths = signed(lengths)
    else:
        lengths = starts[:, 1:] - starts[:, :-1]
    if starts is None:
        starts = jnp.cumsum(lengths, 1, dtype=lengths.dtype) - lengths
    else:
        starts = starts[:, :-1].astype(lengths.dtype)
    batch = lengths.shape[0]
    starts += rows * jnp.arange(batch, dtype=lengths.dtype)[:, None]
    end = jnp.full((1,), rows * batch, lengths.dtype)
    return {"lengths": lengths.reshape(-1), "starts": jnp.concatenate([starts.reshape(-1), end])}
