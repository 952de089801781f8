# SPDX-License-Identifier: Apache-2.0
"""grouped_mm and grouped_mlp with low-rank adapters next to weights in 16 bits or packed ones."""

import operator

import torch

from quern import GATED
from quern.scaling import limits_of
from quern.torch import _checks, _compile
from quern.torch import functions as f
from quern.torch._autograd import once_differentiable
from quern.torch._ops import WORDS, ops
from quern.torch._recipes import recipe_of, scaling_of
from quern.torch.mlp import check_operands
from quern.torch.quantized import Quantized


class _AdaptedMM(torch.autograd.Function):
    """t = scaling * x aᵀ and y = x wᵀ + t bᵀ in two launches; t is kept for the gradient of b."""

    @staticmethod
    def forward(ctx, x, a, b, w, bias, prob, scale, lengths, ends, w0, w1, w2, options):
        need = ctx.needs_input_grad[:6]
        quantized = (w0, w1, w2, None, None, None)
        weights, later = (quantized[:3],) * 2 if w is None else f._operand(
            w, "w", options, None, None, None, need[0])
        y, t = _product("fprop", options.y, x, options.n, options.k, weights, a, b, scale, lengths,
                        ends, options, bias, prob)
        ctx.save_for_backward(x if need[1] or need[3] else None, a, b, t if need[2] else None,
                              *(later if need[0] else f.NONE), scale, lengths, ends, prob,
                              bias if need[5] else None)
        ctx.need, ctx.options = need, options
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx, dy):
        x, a, b, t, w0, w1, w2, scale, lengths, ends, prob, bias = ctx.saved_tensors
        need_x, need_a, need_b, need_w, need_bias, need_prob = ctx.need
        o, dx, dt = ctx.options, None, None
        dy = _checks.gradient(dy.to(o.scaling.type))
        m, g, rank = dy.shape[0], a.shape[0], a.shape[1]
        recipe = recipe_of(o.scaling.type) if o.scaling.is_packed else o.recipe

        def wgrad(rows, columns, left, right):
            return f.product(f"wgrad {recipe} d={WORDS[a.dtype]}", g, rows, columns, m,
                             (left, None, None), (right, None, None), lengths, ends)

        if need_x:
            dx, dt = _product("dgrad", o.dx, dy, o.k, o.n, (w0, w1, w2), a, b, scale, lengths, ends,
                              o)
        elif need_a:
            d = a.dtype if scale is None else torch.float32
            dt = f.product(f"dgrad {recipe} d={WORDS[d]}", g, m, rank, o.n, (dy, None, None),
                           (b, None, None), lengths, ends)
            dt = dt if scale is None else (dt * scale).to(a.dtype)
        return (dx, wgrad(rank, o.k, dt, x) if need_a else None,
                wgrad(o.n, rank, dy, t) if need_b else None,
                wgrad(o.n, o.k, dy, x) if need_w else None,
                f._dbias(dy, g, lengths, ends, prob) if need_bias else None,
                f._dprob(dy, bias, lengths, ends) if need_prob else None) + (None,) * 7


def _product(op, d, tokens, n, k, w, a, b, scale, lengths, ends, o, bias=None, prob=None):
    """D, and lora_t."""
    line = (f"{op} {o.recipe} d={d} lora={operator.index(a.shape[1])}{o.outside}"
            f"{'' if bias is None else ' bias=1'}{'' if prob is None else ' prob=1'}")
    return ops.product_lora(line, a.shape[0], tokens.shape[0], n, k, tokens, None, None, *w,
                            lengths, ends, bias, prob, a, b, scale)


def _check(x, a, b, shape, scaling, recipe, name="lora"):
    if scaling.x != 1 or not (scaling.w == 1 or scaling.is_packed):
        raise ValueError(f"{name}: recipe {recipe} quantizes x, or w next to a columnwise tensor; "
                         "weights in 16 bits or packed ones are expected")
    groups, n, k = shape
    rank = a.shape[1] if isinstance(a, torch.Tensor) and a.dim() == 3 else 0
    for i, t, expected in ((0, a, (groups, rank, k)), (1, b, (groups, n, rank))):
        _checks.values(f"{name}[{i}]", t, 3, scaling.type)
        _checks.shaped(f"{name}[{i}]", t, expected, x)
    if not 1 <= rank <= 256:
        raise ValueError(f"{name}: the rank is {rank}: 1 to 256 is expected")


def _pair(name, pair, x):
    """The two adapters; under autocast they have the type of x."""
    if not isinstance(pair, (list, tuple)) or len(pair) != 2:
        raise TypeError(f"{name}: a pair of tensors (a, b) is expected")
    for i, t in enumerate(pair):
        _checks.values(f"{name}[{i}]", t, 3)
    if not isinstance(x, torch.Tensor) or not torch.is_autocast_enabled(x.device.type):
        return pair
    return [t.to(x.dtype) for t in pair]


def _scale_of(scaling, like):
    """fp32 [1] on the device, or None for 1."""
    if isinstance(scaling, torch.Tensor):
        if scaling.dtype != torch.float32:
            raise TypeError(f"lora_scaling is {scaling.dtype}: torch.float32 is expected")
        _checks.shaped("lora_scaling", scaling, (1,), like)
        if scaling.requires_grad and torch.is_grad_enabled():
            raise ValueError("lora_scaling requires a gradient: it has none")
        return scaling
    return None if scaling == 1 else torch.full(
        (1,), float(scaling), dtype=torch.float32, device=like.device)


@_compile.eager_if(lambda x, w, lora, lora_scaling, sizes, offs, **_:
                   _compile.why_eager(x, sizes, offs))
def adapted_mm(x, w, lora, lora_scaling, sizes, *, offs, recipe, bias, prob, out_dtype, outside):
    """grouped_mm with adapters."""
    w, quantized = (None, w) if isinstance(w, Quantized) else (w, None)
    scaling = scaling_of(recipe)
    x, w = f.autocast(scaling, x, w)
    a, b = _pair("lora", lora, x)
    f._check_operands(x, w, quantized, recipe, scaling, None)
    like = w if quantized is None else quantized
    (groups, n, k), rows = like.shape, x.shape[:-1]
    _check(x, a, b, like.shape, scaling, recipe)
    flat = _checks.aligned(x if x.dim() == 2 else x.reshape(-1, k), False)
    a, b = _checks.aligned(a, False), _checks.aligned(b, False)
    w = w if w is None else _checks.aligned(w, scaling.w == 1)
    lengths, ends = _checks.sizes_of(x, None if torch.compiler.is_compiling() else flat.shape[0],
                                     groups, sizes, offs)
    y_type = out_dtype or x.dtype
    _checks.dtype_of("out_dtype", y_type)
    bias, prob = f._check_bias(flat, bias, prob, groups, n)
    _checks.results(flat, n, y_type, None, None, outside)
    options = f.Options(recipe, scaling, WORDS[y_type], WORDS[x.dtype], WORDS[x.dtype], k, n,
                        "" if outside is None else " outside=zero")
    scale = _scale_of(lora_scaling, flat)
    weights = (None,) * 3 if quantized is None else quantized[:3]
    y = _AdaptedMM.apply(flat, a, b, w, bias, prob, scale, lengths, ends, *weights, options)
    return y if x.dim() == 2 else y.reshape(*rows, n)


# ---------------------------------------------------------------------------------- experts


class _Activate(torch.autograd.Function):
    """h = activation(pre) * prob, rounded to the type of pre, which is kept."""

    @staticmethod
    def forward(ctx, pre, prob, lengths, ends, words, gated, limits, outside):
        ctx.save_for_backward(pre, prob, lengths, ends)
        ctx.rest = words, limits, outside
        wide = pre.shape[1] // 2 if gated else pre.shape[1]
        h = ops.activate(_cast_line("x", pre, prob, words), *_groups(pre, lengths, ends), wide,
                         pre, lengths, ends, prob, *limits)
        return _rows_of(h, pre, wide)

    @staticmethod
    @once_differentiable
    def backward(ctx, dh):
        pre, prob, lengths, ends = ctx.saved_tensors
        words, limits, outside = ctx.rest
        line = _cast_line("dy", pre, prob, words) + ("" if prob is None else " dprob=1")
        dpre, dprob = ops.activate_backward(
            line, *_groups(pre, lengths, ends), pre.shape[1], _checks.gradient(dh), lengths,
            ends, pre, prob, *limits)
        if prob is not None and outside is not None:
            end = lengths.sum() if ends is None else ends[-1]
            dprob = dprob.masked_fill(torch.arange(len(dprob), device=dh.device) >= end, 0)
        dpre = _rows_of(dpre, pre, pre.shape[1])
        return (dpre, dprob if ctx.needs_input_grad[1] else None) + (None,) * 6


def _cast_line(of, pre, prob, words):
    recipe = recipe_of(pre.dtype)
    return (f"quantize {recipe} of={of} in={WORDS[pre.dtype]} copies=rowwise {words}"
            f"{'' if prob is None else ' prob=1'}")


def _rows_of(made, pre, columns):
    """[m, columns] of an operator's result, which is bytes where rows are padded to 16 of them."""
    if made.dim() == 2:
        return made
    step = 16 // pre.dtype.itemsize
    return made.view(pre.dtype).view(pre.shape[0], (columns + step - 1) // step * step)[:, :columns]


def _groups(pre, lengths, ends):
    return (ends if lengths is None else lengths).shape[0], pre.shape[0]


@_compile.eager_if(lambda x, w1, w2, sizes, lora1, lora2, lora_scaling, offs, **_:
                   _compile.why_eager(x, sizes, offs))
def adapted_mlp(x, w1, w2, sizes, lora1, lora2, lora_scaling, *, offs, recipe, activation, prob,
                b1, b2, interleave, limits, outside):
    """grouped_mlp with adapters next to w1, w2 or both: a product, the activation, a product."""
    scaling = scaling_of(recipe)
    x, w1, w2 = f.autocast(scaling, x, w1, w2)
    quantized = [w if isinstance(w, Quantized) else None for w in (w1, w2)]
    values = [None if q is not None else w for w, q in zip((w1, w2), quantized)]
    check_operands(x, *values, *quantized, recipe, scaling, activation, None)
    for name, pair, w in (("lora1", lora1, w1), ("lora2", lora2, w2)):
        if pair is not None:
            _check(x, *_pair(name, pair, x), w.shape, scaling, recipe, name)
    (groups, wide, hidden), rows = w1.shape, x.shape[:-1]
    flat = x if x.dim() == 2 else x.reshape(-1, hidden)
    lengths, ends = _checks.sizes_of(x, None if torch.compiler.is_compiling() else flat.shape[0],
                                     groups, sizes, offs)
    if (b1 is None) != (b2 is None):
        raise ValueError("b1, b2: both or none are expected")
    if prob is not None:
        prob = f.f32("prob", prob, (flat.shape[0],), x)
    more = dict(offs=ends, recipe=recipe, lora_scaling=lora_scaling, outside=outside)
    pre = f.grouped_mm(flat, w1, lengths, bias=b1, lora=lora1, **more)
    words = f"activation={activation}" + (f" interleave={interleave}" if interleave else "")
    h = _Activate.apply(pre, prob, lengths, ends, words, activation in GATED,
                        limits_of(*limits), outside)
    y = f.grouped_mm(h, w2, lengths, bias=b2, prob=None if b2 is None else prob, lora=lora2, **more)
    return y if x.dim() == 2 else y.reshape(*rows, hidden)
