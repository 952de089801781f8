# SPDX-License-Identifier: Apache-2.0
"""A mixture-of-experts layer from unpermuted tokens, and its parts: docs/layers.md."""

import inspect
import math

import torch

from quern.torch import _checks
from quern.torch._autograd import once_differentiable
from quern.torch._ops import WORDS, ops
from quern.torch._recipes import scaling_of
from quern.torch.functions import autocast, f32
from quern.torch.mlp import Route, grouped_mlp, mlp_linear
from quern.torch.quantized import Quantized


def move(operator, work, values, inverse, prob=None, rows=None, residual=None, **more):
    """An operator's permute or combine line, of contiguous tensors that were checked; more: the
    output of permute_."""
    m, topk = inverse.shape
    line = f"{work} in={WORDS[values.dtype]}" + " prob=1" * (prob is not None)
    line += " dprob=1" * (rows is not None) + " residual=1" * (residual is not None)
    if rows is not None:
        more["rows"] = rows
    elif work == "combine":
        more["c"] = residual
    return operator(line=line, m=m, topk=topk, k=values.shape[1], input=values, inverse=inverse,
                    prob=prob, **more)


class _Permute(torch.autograd.Function):

    @staticmethod
    def forward(ctx, x, inverse, prob):
        ctx.save_for_backward(inverse, *(() if prob is None else (x, prob)))
        return move(ops.permute, "permute", x, inverse, prob)

    @staticmethod
    @once_differentiable
    def backward(ctx, drows):
        inverse, x, prob = (*ctx.saved_tensors, None, None)[:3]
        drows, dx, dprob = _checks.gradient(drows), None, None
        if ctx.needs_input_grad[0]:
            dx = move(ops.combine, "combine", drows, inverse, prob)
        if ctx.needs_input_grad[2]:
            dprob = move(ops.permute_dprob, "permute", x, inverse, prob, drows)
        return dx, None, dprob


class _Combine(torch.autograd.Function):

    @staticmethod
    def forward(ctx, rows, inverse, prob, residual):
        ctx.save_for_backward(inverse, *(() if prob is None else (rows, prob)))
        return move(ops.combine, "combine", rows, inverse, prob, residual=residual)

    @staticmethod
    @once_differentiable
    def backward(ctx, dy):
        inverse, rows, prob = (*ctx.saved_tensors, None, None)[:3]
        d, dprob = _checks.gradient(dy), None
        if prob is None:
            drows = move(ops.permute, "permute", d, inverse)
        else:
            drows, dprob = move(ops.combine_backward, "permute", d, inverse, prob, rows)
        need = ctx.needs_input_grad
        return (drows if need[0] else None, None, dprob if need[2] else None,
                dy if need[3] else None)


def check_indices(indices):
    if not isinstance(indices, torch.Tensor) or indices.dtype not in (torch.int32, torch.int64):
        raise TypeError("indices: a tensor of int32 or int64 is expected")
    if indices.dim() != 2:
        raise ValueError(f"indices has {indices.dim()} axes: [tokens, topk] is expected")
    _checks.tensor("indices", indices)


def route(indices, experts, *, first=0, total=None):
    """Sort pairs of a token and one of its choices by expert, then token, then choice.

        indices  [tokens, topk] int32 or int64: the expert of each pair
        experts  the number of experts here: those from `first` on, of `total` (first + experts)

    Returns sizes [experts], which grouped_mm and grouped_mlp read, and inverse [tokens, topk], the
    row of each pair. A pair has no row, -1, if its expert is another one, below 0, or `total`
    itself: a dropped pair. A larger index is an error, which quern.torch.check reports on a GPU.
    """
    check_indices(indices)
    experts = _checks.integer("experts", experts, 1)
    first, total = _window(first, "total", total)
    return ops.route(*route_line(indices, experts, first, total), indices.contiguous())


def _window(first, name, total):
    """The first expert that is here, and how many there are in all, or None."""
    return _checks.integer("first", first, 0), \
        None if total is None else _checks.integer(name, total, 1)


def route_line(indices, experts, first=0, total=None):
    """A route's line, and the values of its keys."""
    line = f"route index={'i64' if indices.dtype == torch.int64 else 'i32'} first={first}"
    line += "" if total is None else f" experts={total}"
    return line, experts, *indices.shape


def _check(name, values, inverse, prob, rows):
    _checks.values(name, values, 2)
    if (not isinstance(inverse, torch.Tensor) or inverse.dtype != torch.int32
            or inverse.dim() != 2):
        raise TypeError("inverse: a tensor [tokens, topk] of int32 is expected, as route makes it")
    _checks.tensor("inverse", inverse)
    m, topk = inverse.shape
    if values.shape[0] != (m * topk if rows else m):
        raise ValueError(f"{name} has the shape {list(values.shape)} and inverse {[m, topk]}: "
                         f"{m * topk if rows else m} rows are expected")
    _checks.on_device("inverse", inverse, values)
    return None if prob is None else f32("prob", prob, (m, topk), values)


def permute(x, inverse, prob=None):
    """Copy each token's values to its rows, which route found: [tokens * topk, features], times
    prob [tokens, topk]. Rows after the last expert's are undefined. Differentiable in x and prob,
    once."""
    prob = _check("x", x, inverse, prob, False)
    return _Permute.apply(x.contiguous(), inverse.contiguous(), prob)


def combine(rows, inverse, prob=None, residual=None):
    """Add each token's rows, times prob [tokens, topk], in the order of its choices, then the
    residual [tokens, features]: in fp32, rounded once. Differentiable in rows, prob and residual,
    once."""
    prob = _check("rows", rows, inverse, prob, True)
    if residual is not None:
        _checks.values("residual", residual, 2, rows.dtype)
        _checks.shaped("residual", residual, (inverse.shape[0], rows.shape[1]), rows)
        residual = residual.contiguous()
    return _Combine.apply(rows.contiguous(), inverse.contiguous(), prob, residual)


def move_each(values, inverse):
    """Values of pairs [tokens, topk] in the order of rows, in fp32: permute of one feature."""
    return permute(values.float().reshape(-1, 1), inverse.reshape(-1, 1)).reshape(-1)


# Names that moe may pass on, if it neither has nor refuses them.
_KNOWN = frozenset(inspect.signature(grouped_mlp).parameters)


def moe(x, indices, probs, w1, w2, *, prob="h", first=0, experts=None, residual=None, **more):
    """A layer's experts, from tokens to tokens: the sum over a token's choices of its experts' MLPs.

        x         [tokens, hidden] or [..., hidden]
        indices   [tokens, topk] int32 or int64; see route, with `first` and total=`experts`
        probs     [tokens, topk] of any float type, or None: 1
        w1, w2    of grouped_mlp, for the experts that are here
        prob      where probabilities multiply: "x" the tokens, "h" the activation, "y" the results
        residual  as x, or [tokens, hidden]: added to the sum
        more      recipe, activation, b1, b2, lora1, lora2, lora_scaling, interleave, recompute, limit,
                  slope, shift, main_grad1, main_grad2, queue and layer of grouped_mlp

    Differentiable in x, probs, w1, w2, b1, b2, adapters and residual, once. The host learns no size.
    """
    _checks.word("prob", prob, ("x", "h", "y"))
    for name in ("sizes", "offs", "out", "dgrad_out", "outside"):
        if name in more:
            raise TypeError(f"{name}: moe sorts the rows itself")
    for name in more:
        if name not in _KNOWN:
            raise TypeError(f"moe() got an unexpected keyword argument {name!r}")
    first, experts = _window(first, "experts", experts)
    _checks.factor(more.get("lora_scaling", 1.0))
    check_indices(indices)
    _checks.values("x", x)
    tokens = math.prod(x.shape[:-1])  # numel() would make a symbolic size a constant
    if indices.shape[0] != tokens:
        raise ValueError(f"x has {tokens} rows and indices the shape {list(indices.shape)}: "
                         f"{indices.shape[0]} rows are expected")
    _checks.on_device("indices", indices, x)
    if residual is not None:
        _checks.values("residual", residual)
        _checks.shaped("residual", residual,
                       x.shape if residual.dim() > 2 else (tokens, x.shape[-1]), x)
        residual, = autocast(scaling_of(more.get("recipe", "bf16")),
                             residual.reshape(-1, x.shape[-1]))
    if more.get("lora1") is not None or more.get("lora2") is not None:
        return _adapted(x, indices, probs, w1, w2, prob, first, experts, residual, more)
    for name in ("lora1", "lora2", "lora_scaling"):
        more.pop(name, None)
    words = f" prob={'none' if probs is None else prob} first={first}"
    words += " index=i64" * (indices.dtype == torch.int64)
    words += "" if experts is None else f" experts={experts}"
    if residual is not None:
        words += " residual=1"
        residual = residual.contiguous()
    limits = tuple(more.pop(name, usual)
                   for name, usual in (("limit", 7.0), ("slope", 1.702), ("shift", 1.0)))
    return mlp_linear(x, w1, w2, None, None, prob=probs, limits=limits,
                      route=Route(indices.contiguous(), residual, words), **more)


def _adapted(x, indices, probs, w1, w2, prob, first, experts, residual, more):
    """moe with adapters: its parts, one after the other."""
    hidden = x.shape[-1]
    if not isinstance(w1, Quantized):
        _checks.values("w1", w1, 3)
    sizes, inverse = route(indices, w1.shape[0], first=first, total=experts)
    rows = permute(x.reshape(-1, hidden), inverse, probs if prob == "x" else None)
    if probs is not None and prob == "h":
        more["prob"] = move_each(probs, inverse)
    rows = grouped_mlp(rows, w1, w2, sizes, **more)
    y = combine(rows, inverse, probs if prob == "y" else None, residual)
    return y.reshape(x.shape)
