# SPDX-License-Identifier: Apache-2.0
"""expert_parallel_moe: a layer whose experts are spread over the devices of a mesh's axis."""

import dataclasses
import functools
import typing

import jax
import jax.numpy as jnp
from jax import lax

from quern.jax import _checks
from quern.jax._call import vary_alike
from quern.jax._recipes import recipe_for, scaling_of
from quern.jax.layer import combine, moe, permute, route
from quern.jax.quantized import Quantized, dequantize, grouped_quantize
from quern.scaling import sent_features

_TOPK = 32  # the most choices of a token


class Spread(typing.NamedTuple):
    """How tokens are sent over a mesh's axis, in blocks of so many rows for each device."""
    axis: typing.Any
    devices: int
    pairs: int
    tokens: int  # equal to pairs where a token is sent for each pair
    recipe: typing.Any  # of codes and scales; None: values
    scaled: int  # features that are quantized as one row there


class Plan(typing.NamedTuple):
    """Which pair goes where.

        slots    int32 [tokens, topk]: the row of each pair in the blocks of pairs, -1 for none
        tokens   int32 [tokens, devices]: the row of each token in the blocks of tokens, where it is
                 sent to a device once; None: it is sent for each of its pairs
        experts  int32 [rows]: the expert of each received pair, -1 for none
        sources  int32 [rows], with tokens: the row of each received pair's token
    """
    slots: typing.Any
    tokens: typing.Any
    experts: typing.Any
    sources: typing.Any


# ------------------------------------------------------------------------------------- exchanges


def _swap(rows, spread):
    """Block r goes to device r, and block r of the result is its."""
    return lax.all_to_all(rows, spread.axis, 0, 0, tiled=True)


def _pads(at, rows):
    """Tokens and choices of no row to add, so that permute and combine have at least so many."""
    m, topk = at.shape
    choices = max(topk, min(-(-rows // max(m, 1)), _TOPK))
    return max(-(-rows // choices) - m, 0), choices - topk


def _pad(a, tokens, choices=0, value=0):
    return a if a is None else jnp.pad(a, ((0, tokens), (0, choices)), constant_values=value)


def _to_blocks(x, at, rows, prob=None):
    tokens, choices = _pads(at, rows)
    return permute(_pad(x, tokens), _pad(at, tokens, choices, -1),
                   _pad(prob, tokens, choices))[:rows]


def _from_blocks(rows, at, prob=None, residual=None):
    m, (tokens, choices) = len(at), _pads(at, len(rows))
    at = _pad(at, tokens, choices, -1)
    return combine(_pad(rows, at.size - len(rows)), at, _pad(prob, tokens, choices),
                   _pad(residual, tokens))[:m]


def _sent(x, plan, spread, of):
    """The tokens of received pairs, x or dy."""
    at = plan.slots if plan.tokens is None else plan.tokens
    blocks = _to_blocks(x, at, spread.devices * spread.tokens)
    if spread.recipe is None:
        got = _swap(blocks, spread)
    else:
        flat = blocks.reshape(-1, spread.scaled)
        sizes = jnp.full(1, len(flat), jnp.int32)
        made = grouped_quantize(flat, spread.recipe, sizes, of=of, copies="rowwise")
        codes, scales = (  # 4 bytes of scales for a row; the arrays have some more memory
            a.at[:count].set(_swap(a[:count].reshape(spread.devices, -1), spread).reshape(-1))
            for a, count in zip(made.arrays("rowwise"), (flat.size, 4 * len(flat))))
        made = dataclasses.replace(made, rowwise=codes, rowwise_sf=scales)
        got = dequantize(made, sizes).reshape(blocks.shape)
    return got if plan.tokens is None else got[plan.sources]


@functools.partial(jax.custom_vjp, nondiff_argnums=(2,))
def _dispatch(x, plan, spread):
    """The tokens of received pairs. Their gradients return one by one."""
    return _sent(x, plan, spread, "x")


def _dispatch_forward(x, plan, spread):
    return _dispatch(x, plan, spread), plan


def _dispatch_backward(spread, plan, drows):
    return _from_blocks(_swap(drows, spread), plan.slots), None


@functools.partial(jax.custom_vjp, nondiff_argnums=(3,))
def _give_back(y, residual, plan, spread):
    """The sums of the results of each token's pairs. Their gradient is sent as tokens are."""
    return _from_blocks(_swap(y, spread), plan.slots, None, residual)


def _give_back_forward(y, residual, plan, spread):
    return _give_back(y, residual, plan, spread), (plan, None if residual is None else ())


def _give_back_backward(spread, kept, dy):
    plan, has_residual = kept
    return _sent(dy, plan, spread, "dy"), None if has_residual is None else dy, None


_dispatch.defvjp(_dispatch_forward, _dispatch_backward)
_give_back.defvjp(_give_back_forward, _give_back_backward)


# ------------------------------------------------------------------------------------- the plan


def _plan(indices, local, spread):
    """A Plan, and the number of this device's pairs that do not fit."""
    total, rows = local * spread.devices, spread.devices * spread.pairs
    to = jnp.where((indices >= 0) & (indices < total), indices // local, -1).astype(jnp.int32)
    sizes, order = route(to, spread.devices)
    number = order - (jnp.cumsum(sizes) - sizes)[jnp.clip(to, 0, spread.devices - 1)]
    fits = (order >= 0) & (number < spread.pairs)
    tokens = homes = None
    if spread.tokens != spread.pairs:
        device = jnp.arange(spread.devices, dtype=jnp.int32)
        has = (to[:, :, None] == device).any(1)
        place = jnp.cumsum(has, 0, dtype=jnp.int32) - 1
        tokens = jnp.where(has & (place < spread.tokens), place + device * spread.tokens, -1)
        at = jnp.take_along_axis(place, jnp.clip(to, 0, spread.devices - 1), 1)
        homes = at + lax.axis_index(spread.axis).astype(jnp.int32) * spread.tokens
        fits &= at < spread.tokens
    slots = jnp.where(fits, number + to * spread.pairs, -1).astype(jnp.int32)
    lost = ((order >= 0) & ~fits | (indices > total)).sum(dtype=jnp.int32)
    experts, sources = (None if a is None else _swap(jnp.full(rows, -1, jnp.int32).at[
        jnp.where(fits, slots, rows)].set(a.astype(jnp.int32), mode="drop"), spread)
        for a in (indices, homes))
    if sources is not None:
        sources = jnp.maximum(sources, 0)
    return Plan(slots, tokens, experts, sources), lost


def expert_parallel_moe(x, indices, probs, w1, w2, *, axis_name, capacity=None,
                        token_capacity=None, prob="h", chunks=1, dispatch="values", residual=None,
                        is_counted=False, recipe=None, **more):
    """moe with some of the experts on each device of a mesh's axis, inside of jax.shard_map.

        x, indices, probs, residual  of this device's tokens, and the experts of all devices
        w1, w2     of moe: as many experts on each device, the first ones on the first
        axis_name  of the mesh's axis
        capacity   pairs of a token and an expert that a device may send to another in one chunk;
                   default None: tokens * topk, always enough
        token_capacity  tokens that a device may send to another in one chunk, at most capacity:
                   each is sent once to a device, for all experts that it chose there. Only with
                   prob="h"; default None: it is sent for each pair
        chunks     the tokens are sent in so many parts, which XLA may overlap with the experts of
                   others. Weights are quantized once
        dispatch   "values", or "quantized": tokens and the gradients of results are sent as codes
                   and scales of the recipe, one of quern.scaling.SENT; only with prob="h"
        is_counted also return how many of this device's pairs add nothing since they do not fit, or
                   their index is above the number of experts: an error on one device would leave
                   the others waiting
        more       of moe but first, experts

    For any number of devices y and the gradients of x and probs have the bits of moe on one of
    them, if the recipe scales each token by itself, and so have each expert's weight gradients,
    without chunks and quantized dispatch.
    """
    x, probs, spread, recipe = _checked(x, indices, probs, w1, axis_name, capacity,
                                        token_capacity, prob, chunks, dispatch, recipe, more)
    flat, local = x.reshape(-1, x.shape[-1]), w1.shape[0]
    if residual is not None:
        residual = _checks.values("residual", residual, None, x.dtype)
        residual = _checks.shaped("residual", residual, x.shape).reshape(flat.shape)
    if chunks > 1:
        more |= _quantized_once(w1, w2, recipe, more)
    flat, indices, probs, residual = vary_alike(
        (flat, _checks.numbers("indices", indices), probs, residual))
    more |= dict(recipe=recipe, first=lax.axis_index(spread.axis) * local,
                 experts=local * spread.devices)
    each = max(-(-len(flat) // chunks), 1)
    cut = [None if a is None else [a[i:i + each] for i in range(0, max(len(flat), 1), each)]
           for a in (flat, indices, probs, residual)]
    parts = [[None if a is None else a[i] for a in cut] for i in range(len(cut[0]))]
    plans = [_plan(part[1], local, spread) for part in parts]
    sent = [_rows(part, plan, spread, prob) for part, (plan, _) in zip(parts, plans)]
    made = [moe(rows, plan.experts[:, None], factor, w1, w2, **more)
            for (rows, factor), (plan, _) in zip(sent, plans)]
    y = jnp.concatenate([
        _give_back(y, part[3], plan, spread) if prob != "y" else
        _from_blocks(_swap(y, spread), plan.slots, part[2], part[3])
        for y, part, (plan, _) in zip(made, parts, plans)]).reshape(x.shape)
    return (y, sum(lost for _, lost in plans)) if is_counted else y


def _rows(part, plan, spread, prob):
    """The tokens of received pairs, and their probabilities if the experts multiply by them."""
    x, _, probs, _ = part
    count = spread.devices * spread.pairs
    if prob == "x":
        return _swap(_to_blocks(x, plan.slots, count, probs), spread), None
    rows = _dispatch(x, plan, spread)
    if prob == "y" or probs is None:
        return rows, None
    blocks = _to_blocks(probs.reshape(-1, 1), plan.slots.reshape(-1, 1), count)
    return rows, _swap(blocks, spread)


def _checked(x, indices, probs, w1, axis_name, capacity, token_capacity, prob, chunks, dispatch,
             recipe, more):
    """x, probs in fp32, a Spread and the recipe."""
    _checks.word("prob", prob, ("x", "h", "y"))
    _checks.word("dispatch", dispatch, ("values", "quantized"))
    for name in ("first", "experts", "group_sizes", "group_offset", "outside"):
        if name in more:
            raise TypeError(f"{name}: expert_parallel_moe finds the rows itself")
    x = _checks.values("x", x, None)
    tokens, hidden = x.reshape(-1, x.shape[-1]).shape
    indices = _checks.numbers("indices", indices)
    if indices.ndim != 2 or len(indices) != tokens:
        raise ValueError(f"x has {tokens} rows and indices the shape {list(indices.shape)}: "
                         f"[{tokens}, topk] is expected")
    chunks = _checks.integer("chunks", chunks, 1)
    pairs = max(-(-tokens // chunks), 1) * indices.shape[1]
    pairs = _checks.integer("capacity", pairs if capacity is None else capacity, 1)
    if token_capacity is not None:
        token_capacity = _checks.integer("token_capacity", token_capacity, 1, pairs)
    devices = lax.axis_size(axis_name)
    if token_capacity is not None and (prob != "h" or devices > _TOPK):
        raise ValueError(f"token_capacity: prob is {prob!r} on {devices} devices: 'h' on at most "
                         f"{_TOPK} is expected")
    recipe = recipe_for("x", x, recipe, w1 if isinstance(w1, Quantized) else None)
    if chunks > 1 and scaling_of(recipe).slots:
        raise ValueError(f"chunks is {chunks}: recipe {recipe} has delayed scaling, whose scales "
                         "are chosen once in a call: 1 is expected")
    if probs is not None:
        probs = _checks.f32("probs", probs, indices.shape)
    sent, scaled = token_capacity or pairs, 0
    if dispatch == "quantized":
        if prob != "h" or more.get("b1") is not None:
            raise ValueError("dispatch='quantized': prob='h' without bias is expected, so that "
                             "nothing else reads the tokens or their gradients")
        name = "capacity" if token_capacity is None else "token_capacity"
        scaled = sent_features(recipe, x.dtype.name, hidden, name, sent)
    recipe_sent = recipe if scaled else None
    return x, probs, Spread(axis_name, devices, pairs, sent, recipe_sent, scaled), recipe


def _quantized_once(w1, w2, recipe, more):
    """Arguments of moe, so that no chunk quantizes the weights."""
    scaling = scaling_of(recipe)
    if isinstance(w1, Quantized) or scaling.w == 1 or not scaling.dy or scaling.is_random[1] or \
            scaling.is_packed or more.get("quantized") is not None:
        return {}
    return {"quantized": tuple(grouped_quantize(lax.stop_gradient(w), recipe, of="w")
                               for w in (w1, w2))}
