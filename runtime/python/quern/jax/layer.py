# SPDX-License-Identifier: Apache-2.0
"""A mixture-of-experts layer from unpermuted tokens, and its parts: docs/layers.md."""

import functools
import inspect

import jax
import jax.numpy as jnp
from jax import lax
from jax.ad_checkpoint import checkpoint_name

from quern.jax import _checks, products
from quern.jax._batch import MAX_GROUPS, MAX_PAIRS, Window, local, local_of_batch
from quern.jax._call import WORDS, call, vary_alike
from quern.jax.mlp import Route, grouped_mlp, mlp
from quern.jax.quantized import Quantized

RESIDUAL = "quern_route"  # name of route's results, for policies of jax.checkpoint


# ------------------------------------------------------------------------------------------- route


@functools.lru_cache(maxsize=None)
def _route(experts, first, total):
    """sizes [experts] and inverse [m, topk] of indices [m, topk]. A batch is one route of more
    experts, whose rows of each batch then begin at 0."""
    @jax.custom_batching.custom_vmap
    def function(indices):
        m, topk = indices.shape
        word = "i32" if indices.dtype == jnp.int32 else "i64"
        line = f"route index={word} first={first} experts={total} g={experts} m={m} topk={topk}"
        made = call(line, m, {"index": indices}, ("lengths", "inverse"))
        return made["lengths"], made["inverse"]

    @function.def_vmap
    def rule(batch, is_batched, indices):
        _, m, topk = indices.shape
        if batch * experts > MAX_GROUPS or batch * m * topk > MAX_PAIRS or batch == 0:
            return lax.map(function, indices), (True, True)
        indices = local_of_batch(indices, Window(experts, first, total))
        sizes, inverse = _route(batch * experts, 0, batch * experts)(indices.reshape(-1, topk))
        sizes, inverse = sizes.reshape(batch, experts), inverse.reshape(batch, m, topk)
        ends = jnp.cumsum(sizes.sum(1, dtype=sizes.dtype), dtype=sizes.dtype)
        starts = jnp.concatenate([jnp.zeros_like(ends[:1]), ends[:-1]])[:, None, None]
        return (sizes, jnp.where(inverse < 0, -1, inverse - starts)), (True, True)

    return function


def _window(indices, experts, first, name, total):
    """Checked indices, and the window of the line. Arrays leave it for the indices,
    which then are those of the experts here."""
    indices = _checks.integers("indices", indices)
    if indices.ndim != 2:
        raise ValueError(f"indices has {indices.ndim} axes: [tokens, topk] is expected")
    experts = _checks.integer("experts", experts, 1)
    if not isinstance(first, jax.Array):
        first = _checks.integer("first", first, 0)
    if total is None:
        total = first + experts
    elif not isinstance(total, jax.Array):
        total = _checks.integer(name, total, 1)
    if not isinstance(first, jax.Array) and not isinstance(total, jax.Array):
        return indices, Window(experts, first, total)
    indices = _checks.signed(indices)
    numbers = [_checks.numbers(key, value, ()).astype(indices.dtype)
               for key, value in (("first", first), (name, total))]
    indices, first, total = vary_alike((indices, *numbers))
    return local(indices, first, experts, total), Window(experts, 0, experts)


def route(indices, experts, *, first=0, total=None):
    """Sort pairs of a token and one of its choices by expert, then token, then choice.

        indices  [tokens, topk] integers: the expert of each pair
        experts  the number of experts here: those from `first` on, of `total` (first + experts);
                 first and total may be arrays, as lax.axis_index makes them

    Returns sizes [experts], which grouped_mlp and ragged_dot read, and inverse [tokens, topk], the
    row of each pair. A pair has no row, -1, if its expert is another one, below 0, or `total`
    itself: a dropped pair. A larger index is an error, which the CPU raises.
    """
    indices, window = _window(indices, experts, first, "total", total)
    sizes, inverse = _route(*window)(indices)
    return checkpoint_name(sizes, RESIDUAL), checkpoint_name(inverse, RESIDUAL)


# -------------------------------------------------------------------------------- tokens and rows


@functools.lru_cache(maxsize=None)
def _move(work, names, results):
    """A line as a function of the operands `names`, of which the first is inverse. All have tokens
    or rows as their first axis, so that a batch is one run of more tokens."""
    @jax.custom_batching.custom_vmap
    def function(*arrays):
        given = dict(zip(names, arrays))
        (m, topk), values = given["inverse"].shape, given["input"]
        line = f"{work} in={WORDS[values.dtype.name]} m={m} topk={topk} k={values.shape[1]}"
        made = call(line, m, given, results)
        return tuple(made[name] for name in results)

    @function.def_vmap
    def rule(batch, is_batched, *arrays):
        inverse, *arrays = [a if b else jnp.broadcast_to(a, (batch, *a.shape))
                            for a, b in zip(arrays, is_batched)]
        rows = inverse[0].size
        if batch * rows > MAX_PAIRS or batch == 0:
            made = lax.map(lambda one: function(*one), (inverse, *arrays))
            return made, (True,) * len(results)
        number = jnp.arange(batch, dtype=inverse.dtype)[:, None, None]
        inverse = jnp.where((inverse < 0) | (inverse >= rows), -1, inverse + rows * number)
        made = function(*(a.reshape(-1, *a.shape[2:]) for a in (inverse, *arrays)))
        return tuple(a.reshape(batch, a.shape[0] // batch, *a.shape[1:]) for a in made), \
            (True,) * len(results)

    return function


def _run(work, results, **given):
    given = {name: a for name, a in given.items() if a is not None}
    work += " prob=1" * ("prob" in given) + " dprob=1" * ("rows" in given) + \
        " residual=1" * ("c" in given)
    return work, tuple(given), results, tuple(given.values())


def _call(work, results, **given):
    *key, arrays = _run(work, results, **given)
    return _move(*key)(*arrays)


def _call_once(work, results, **given):
    *key, arrays = _run(work, results, **given)
    return products.once("probabilities", _move(*key), *arrays)


@jax.custom_vjp
def _permute(x, inverse, prob):
    return _call("permute", ("output",), inverse=inverse, input=x, prob=prob)[0]


def _permute_forward(x, inverse, prob):
    return _permute(x, inverse, prob), (None if prob is None else x, inverse, prob)


def _permute_backward(kept, drows):
    x, inverse, prob = kept
    dprob = None if prob is None else _call_once("permute", ("dprob",), inverse=inverse, input=x,
                                                 rows=drows, prob=prob)[0]
    return _combine(drows, inverse, prob, None), None, dprob


@jax.custom_vjp
def _combine(rows, inverse, prob, residual):
    return _call("combine", ("output",), inverse=inverse, input=rows, prob=prob, c=residual)[0]


def _combine_forward(rows, inverse, prob, residual):
    has_residual = None if residual is None else ()
    return _combine(rows, inverse, prob, residual), \
        (None if prob is None else rows, inverse, prob, has_residual)


def _combine_backward(kept, dy):
    rows, inverse, prob, has_residual = kept
    if prob is None:
        drows, dprob = _permute(dy, inverse, None), None
    else:
        drows, dprob = _call_once("permute", ("output", "dprob"), inverse=inverse, input=dy,
                                  rows=rows, prob=prob)
    return drows, None, dprob, None if has_residual is None else dy


_permute.defvjp(_permute_forward, _permute_backward)
_combine.defvjp(_combine_forward, _combine_backward)


def _check(name, values, inverse, prob, rows):
    values = _checks.values(name, values, 2)
    inverse = _checks.array("inverse", inverse)
    if inverse.dtype != jnp.int32 or inverse.ndim != 2:
        raise TypeError("inverse: an array [tokens, topk] of int32 is expected, as route makes it")
    m, topk = inverse.shape
    if values.shape[0] != (m * topk if rows else m):
        raise ValueError(f"{name} has the shape {list(values.shape)} and inverse {[m, topk]}: "
                         f"{m * topk if rows else m} rows are expected")
    return values, inverse, None if prob is None else _checks.f32("prob", prob, (m, topk))


def permute(x, inverse, prob=None):
    """Copy each token's values to its rows, which route found: [tokens * topk, features], times
    prob [tokens, topk]. Rows after the last expert's are undefined. Differentiable in x and prob,
    without prob to any order."""
    return _permute(*vary_alike(_check("x", x, inverse, prob, False)))


def combine(rows, inverse, prob=None, residual=None):
    """Add each token's rows, times prob [tokens, topk], in the order of its choices, then the
    residual [tokens, features]: in fp32, rounded once. Differentiable in rows, prob and residual,
    without prob to any order."""
    rows, inverse, prob = _check("rows", rows, inverse, prob, True)
    if residual is not None:
        residual = _checks.values("residual", residual, 2, rows.dtype)
        _checks.shaped("residual", residual, (inverse.shape[0], rows.shape[1]))
    return _combine(*vary_alike((rows, inverse, prob, residual)))


# --------------------------------------------------------------------------------------- the layer


def _adapted(x, indices, window, probs, w1, w2, prob, residual, more):
    """moe with adapters: its parts, one after the other."""
    sizes, inverse = route(indices, window.groups, first=window.first, total=window.total)
    rows = permute(x, inverse, probs if prob == "x" else None)
    if probs is not None and prob == "h":  # in fp32, as a feature of tokens
        more["prob"] = permute(probs.reshape(-1, 1), inverse.reshape(-1, 1)).reshape(-1)
    y = grouped_mlp(rows, w1, w2, sizes, outside=None, **more)
    return combine(y, inverse, probs if prob == "y" else None, residual)


# Names that moe may pass on, if it neither has nor refuses them.
_KNOWN = frozenset(inspect.signature(grouped_mlp).parameters)


def moe(x, indices, probs, w1, w2, *, prob="h", first=0, experts=None, residual=None, **more):
    """A layer's experts, from tokens to tokens: the sum of the MLPs that each token chose.

        x         [tokens, hidden] or [.., hidden]
        indices   [tokens, topk] integers; see route, with `first` and total=`experts`
        probs     [tokens, topk] of any float type, or None: 1
        w1, w2    of grouped_mlp, for the experts that are here
        prob      where probabilities multiply: "x" the tokens, "h" the activation, "y" the results
        residual  as x: added to the sum
        more      recipe, activation, b1, b2, lora1, lora2, lora_scaling, interleave, recompute,
                  layout, limit, slope, shift, key, quantized and state of grouped_mlp

    Differentiable in x, probs, w1, w2, b1, b2, adapters and residual, once. The host learns no
    size.
    """
    _checks.word("prob", prob, ("x", "h", "y"))
    for name in ("group_sizes", "group_offset", "outside"):
        if name in more:
            raise TypeError(f"{name}: moe sorts the rows itself")
    for name in more:
        if name not in _KNOWN:
            raise TypeError(f"moe() got an unexpected keyword argument {name!r}")
    x = _checks.values("x", x, None)
    flat = x.reshape(-1, x.shape[-1])
    w1 = w1 if isinstance(w1, Quantized) else _checks.values("w1", w1, 3)
    indices, window = _window(indices, w1.shape[0], first, "experts", experts)
    if indices.shape[0] != flat.shape[0]:
        raise ValueError(f"x has {flat.shape[0]} rows and indices the shape {list(indices.shape)}: "
                         f"{indices.shape[0]} rows are expected")
    if probs is not None:
        probs = _checks.f32("probs", probs, indices.shape)
    if residual is not None:
        residual = _checks.values("residual", residual, None, x.dtype)
        residual = _checks.shaped("residual", residual, x.shape).reshape(flat.shape)
    if more.get("lora1") is not None or more.get("lora2") is not None:
        return _adapted(flat, indices, window, probs, w1, w2, prob, residual, more).reshape(x.shape)
    where = "none" if probs is None else prob
    return mlp(flat, w1, w2, None, Route(indices, residual, where, window), prob=probs,
               outside=None, **more).reshape(x.shape)
