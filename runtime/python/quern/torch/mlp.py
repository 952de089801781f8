# SPDX-License-Identifier: Apache-2.0
"""grouped_mlp: the two layers of each expert and the activation between them, as one operator."""

import functools
import typing

import torch

from quern import GATED, PLAIN
from quern.scaling import limits_of
from quern.torch import _checks, _compile
from quern.torch._autograd import once_differentiable
from quern.torch._ops import DTYPES, WORDS, ops
from quern.torch._recipes import Scaling, check_gradients, read_by, scaling_of
from quern.torch.functions import (_is_transformed, _written, autocast, bias_of, check_quantized,
                                   check_tokens, f32, refuse, sink_of)
from quern.torch.quantized import Quantized, State, cast

FORWARD, BACKWARD, WGRAD = 0, 1, 2


class Route(typing.NamedTuple):
    """A layer's tokens: their experts [tokens, topk], and a residual. addresses: int64 [tokens] of
    the tokens of y and of dx, 0: none; y and dx then have no values."""
    index: torch.Tensor
    residual: torch.Tensor | None
    words: str  # of the line
    addresses: torch.Tensor | None = None


class Options(typing.NamedTuple):
    """A call's arguments that are no tensors."""
    kind: str  # of operators: mlp, or moe from tokens
    recipe: str
    scaling: Scaling
    x: str  # type of x, y and their gradients, as lines spell it
    line: str  # of forward and backward
    wgrad: str  # more words of the line of the weight gradients
    dw: str  # type of the weight gradients, as lines spell it
    groups: int
    wide: int  # rows of w1
    hidden: int
    ffn: int
    limits: tuple  # limit, slope, shift
    layer: int = 0


class _GroupedMLP(torch.autograd.Function):

    @staticmethod
    def forward(ctx, x, w1, w2, b1, b2, prob, residual, index, addresses, lengths, ends, out,
                dgrad_out, main_grad1, main_grad2, scale, history, q0, q1, q2, q3, q4, q5, q6, q7, q8, q9, q10, q11, options, queue,
                sink):
        need = ctx.needs_input_grad
        need_w = need[1] or need[2] or main_grad1 is not None
        given = (q0, q1, q2, q3, q4, q5, q6, q7, q8, q9, q10, q11)
        y, saved, arrays = forward(x, w1, w2, b1, b2, prob, residual, index, addresses, lengths,
                                   ends, out, scale, history, given, options, True)
        if out is not None:
            ctx.mark_dirty(y)
        kept = dict(x=x, w1=w1, w2=w2, b1=b1, b2=b2, prob=prob, lengths=lengths, ends=ends,
                    **_named("w1", arrays[:6]), **_named("w2", arrays[6:]))
        reads = read_by(options.line, BACKWARD) + read_by(options.line, WGRAD)
        ctx.names = [name for name, t in kept.items() if t is not None and name in reads]
        ctx.save_for_backward(saved, *[kept[name] for name in ctx.names])
        ctx.need, ctx.options, ctx.queue = (need[0], need_w, *need[3:6]), options, queue
        ctx.buffers = dgrad_out, main_grad1, main_grad2, scale, history
        ctx.sink, ctx.shapes, ctx.need_residual = sink, _shapes(x, index, options), need[6]
        ctx.addresses = addresses
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx, dy):
        saved, *rest = ctx.saved_tensors
        kept = dict(zip(ctx.names, rest))
        o, (need_x, need_w, need_b1, need_b2, need_prob) = ctx.options, ctx.need
        dgrad_out, main_grad1, main_grad2, scale, history = ctx.buffers
        dy = _checks.gradient(dy.to(DTYPES[o.x]))
        common = dict(ctx.shapes, saved=saved, random=_random(o.scaling, dy), scale=scale,
                      history=history)
        if o.kind == "mlp":
            common.update(lengths=kept.get("lengths"), ends=kept.get("ends"))
        dx, dprob, db1, db2, pending = _backward(o, common, dy, kept, dgrad_out, ctx.addresses)
        if need_prob and "outside=zero" in o.line:
            lengths, ends = common["lengths"], common["ends"]
            end = lengths.sum() if ends is None else ends[-1]
            dprob = dprob.masked_fill(torch.arange(len(dprob), device=dy.device) >= end, 0)
        dw1 = dw2 = None
        if need_w:
            reads = read_by(o.line + o.wgrad, WGRAD)
            operands = dict(common, pending=pending, line=o.line + o.wgrad)
            if o.kind == "mlp":
                operands.update(dy=dy if "dy" in reads else None,
                                x=kept["x"] if "x" in reads else None)
            dw1, dw2 = _wgrad(ctx, o, operands, main_grad1, main_grad2)
        return (dx if need_x else None, dw1, dw2, db1 if need_b1 else None,
                db2 if need_b2 else None, dprob if need_prob else None,
                dy if ctx.need_residual else None) + (None,) * 25


def _shapes(x, index, o):
    """Keys of the line."""
    shapes = dict(g=o.groups, m=x.shape[0], hidden=o.hidden, ffn=o.ffn)
    return shapes if index is None else dict(shapes, topk=index.shape[1])


def _random(scaling, like):
    """Seeds of x, h, w1, w2, dy and dpre."""
    if not any(scaling.is_random):
        return None
    return torch.randint(2**62, (6, 2), device=like.device)


def _named(name, six):
    names = [f"{name}_{copy}{end}" for copy in ("rowwise", "columnwise")
             for end in ("", "_sf", "_global")]
    return dict(zip(names, six))


def _backward(o, common, dy, kept, out, addresses):
    reads = read_by(o.line, BACKWARD)
    given = {name: t for name, t in kept.items() if name in reads}
    limit, slope, shift = o.limits
    names = [*_named("w1", range(6)), *_named("w2", range(6)), "x", "w1", "w2", "b1", "b2", "prob"]
    operands = dict(common, line=o.line, dy=dy, **{name: given.get(name) for name in names},
                    limit=limit, slope=slope, shift=shift)
    if addresses is not None:
        return no_values(dy), *ops.moe_backward_(**operands, dx_addresses=addresses)
    if out is None:
        return getattr(ops, f"{o.kind}_backward")(**operands)
    return out, *ops.mlp_backward_(**operands, dx=out)


def no_values(like):
    """A tensor of the same shape, for autograd, whose values are elsewhere."""
    return like.new_empty(1).expand(like.shape)


def _wgrad(ctx, o, operands, main_grad1, main_grad2):
    """The gradients of w1 and w2; None if main_grad or a queue takes them."""
    if ctx.queue is not None:
        dw1, dw2, done = main_grad1, main_grad2, None
        if dw1 is None:
            like = dict(dtype=DTYPES[o.dw], device=operands["saved"].device)
            dw1 = torch.empty((o.groups, o.wide, o.hidden), **like)
            dw2 = torch.empty((o.groups, o.hidden, o.ffn), **like)
            done = functools.partial(ctx.sink, dw1, dw2)
        ctx.queue.put_mlp(o.kind, o.layer, operands, dw1, dw2, done)
        return None, None
    if main_grad1 is None:
        return getattr(ops, f"{o.kind}_wgrad")(**operands)
    getattr(ops, f"{o.kind}_wgrad_")(**operands, dw1=main_grad1, dw2=main_grad2)
    return None, None


def forward(x, w1, w2, b1, b2, prob, residual, index, addresses, lengths, ends, out, scale, history,
            arrays, o, later=False):
    """y, the tensors kept for the backward pass, and the arrays of the quantized weights."""
    if o.scaling.w > 1:
        copies = "both" if later and not o.scaling.is_packed else "rowwise"
        if arrays[0] is None:
            made = [cast(w, "w", o.recipe, o.scaling, copies,
                         state=None if scale is None else State(scale[i], history[i]))[0]
                    for i, w in ((2, w1), (3, w2))]
            arrays = (*made[0], *made[1])
        w1 = w2 = None
    line = o.line if later else o.line.replace(" recompute=1", "") + " grad=0"
    limit, slope, shift = o.limits
    row = dict(list(_named("w1", arrays[:6]).items())[:3] +
               list(_named("w2", arrays[6:]).items())[:3])
    operands = dict(_shapes(x, index, o), line=line, x=x, w1=w1, w2=w2, **row, b1=b1, b2=b2,
                    prob=prob, scale=scale, history=history, limit=limit, slope=slope, shift=shift,
                    random=_random(o.scaling, x) if later or "random" in read_by(line, FORWARD)
                    else None)
    if o.kind == "moe":
        operands.update(index=index, c=residual)
    else:
        operands.update(lengths=lengths, ends=ends)
    if addresses is not None:
        y, saved = no_values(x), ops.moe_forward_(**operands, y_addresses=addresses)
    elif out is None:
        y, saved = getattr(ops, f"{o.kind}_forward")(**operands)
    else:
        y, saved = out, ops.mlp_forward_(**operands, y=out)
    return y, saved, arrays


def grouped_mlp(x, w1, w2, sizes=None, *, offs=None, recipe="bf16", activation="swiglu", prob=None,
                b1=None, b2=None, lora1=None, lora2=None, lora_scaling=1.0, interleave=0,
                recompute=False, limit=7.0, slope=1.702, shift=1.0, outside=None, out=None,
                dgrad_out=None, main_grad1=None, main_grad2=None, queue=None, layer=0):
    """The MLP of each expert, over its tokens, with e a token's expert:
        pre = x @ w1[e].T + b1[e];  h = activation(pre) * prob;  y = h @ w2[e].T + b2[e] * prob

        x           [tokens, hidden] or [..., hidden]
        w1, w2      [experts, 2 ffn or ffn, hidden] and [experts, hidden, ffn]: tensors, or both a
                    Quantized of weights, which have gradients only with main_grad1 and main_grad2
        sizes, offs, outside, out, dgrad_out, queue, layer  as in grouped_mm
        activation  swiglu, clamped_swiglu (limit, slope, shift), situ, geglu, reglu, or
                    squared_relu, relu, silu, gelu, gelu_tanh, whose w1 has ffn rows
        prob        [tokens]; b1 [experts, 2 ffn or ffn] and b2 [experts, hidden] of any float
                    type, both or none
        lora1, lora2, lora_scaling  (a, b) next to w1 and to w2, both or one, as lora of grouped_mm
        interleave  length of alternating runs of the activation's two operands in w1; 0: halves
        recompute   backward computes pre again, to the same bits, and keeps less memory
        main_grad1, main_grad2  shaped as w1 and w2, both or none: backward adds to them

    Differentiable in x, w1, w2, prob, b1, b2 and adapters, once; compiles as grouped_mm does. Errors
    are those of grouped_mm.
    """
    _checks.factor(lora_scaling)
    if lora1 is not None or lora2 is not None:
        from quern.torch.lora import adapted_mlp
        refuse("lora1 or lora2", out=out, dgrad_out=dgrad_out, main_grad1=main_grad1,
               main_grad2=main_grad2, queue=queue, recompute=recompute or None)
        return adapted_mlp(x, w1, w2, sizes, lora1, lora2, lora_scaling, offs=offs, recipe=recipe,
                           activation=activation, prob=prob, b1=b1, b2=b2,
                           interleave=_checks.integer("interleave", interleave, 0),
                           limits=(limit, slope, shift), outside=outside)
    return mlp_linear(x, w1, w2, None, None, sizes, offs=offs, recipe=recipe, activation=activation,
                      prob=prob, b1=b1, b2=b2, interleave=interleave, recompute=recompute,
                      limits=(limit, slope, shift), outside=outside, out=out, dgrad_out=dgrad_out,
                      main_grad1=main_grad1, main_grad2=main_grad2, queue=queue, layer=layer)


@_compile.eager_if(lambda x, w1, w2, quantized1, quantized2, sizes=None, offs=None, **more:
                   _compile.why_eager(x, sizes, offs, **more))
def mlp_linear(x, w1, w2, quantized1, quantized2, sizes=None, *, offs=None, recipe="bf16",
               activation="swiglu", prob=None, b1=None, b2=None, interleave=0, recompute=False,
               limits=(7.0, 1.702, 1.0), outside=None, out=None, dgrad_out=None, main_grad1=None,
               main_grad2=None, queue=None, layer=0, overwrite=False, state=None,
               sink=None, route=None):
    """grouped_mlp for modules, which also have quantized weights next to w1 and w2, overwrite
    main_grad1 and main_grad2, and keep delayed scaling's state: scale [6, 2], history [6, slots],
    of x, h, w1, w2, dy and dpre. sink takes queued gradients of w1 and w2. With a Route the rows of
    x are tokens, and prob is [tokens, topk]."""
    if isinstance(w1, Quantized) != isinstance(w2, Quantized):
        raise ValueError("w1, w2: both or none a Quantized are expected")
    if isinstance(w1, Quantized):
        w1, w2, quantized1, quantized2 = None, None, w1, w2
    interleave = _checks.integer("interleave", interleave, 0)
    recompute = _checks.flag("recompute", recompute)
    _checks.queued(queue, layer)
    scaling, leaves = scaling_of(recipe), (w1, w2)
    x, w1, w2 = autocast(scaling, x, w1, w2)
    like1, like2 = (w1, w2) if quantized1 is None else (quantized1, quantized2)
    check_operands(x, w1, w2, quantized1, quantized2, recipe, scaling, activation, state)
    (groups, wide, hidden), ffn, rows = like1.shape, like2.shape[2], x.shape[:-1]
    flat = _checks.aligned(x if x.dim() == 2 else x.reshape(-1, hidden), False)
    if w1 is not None:
        w1, w2 = _checks.aligned(w1, False), _checks.aligned(w2, False)
    lengths = ends = None
    if route is None:
        lengths, ends = _checks.sizes_of(
            x, None if torch.compiler.is_compiling() else flat.shape[0], groups, sizes, offs)
    if (b1 is None) != (b2 is None):
        raise ValueError("b1, b2: both or none are expected")
    if b1 is not None:
        b1 = bias_of("b1", b1, (groups, wide), x)
        b2 = bias_of("b2", b2, (groups, hidden), x)
    if prob is not None and route is None:
        prob = f32("prob", prob, (flat.shape[0],), x)
    elif prob is not None:
        prob = f32("probs", prob, tuple(route.index.shape), x)
    out = _checks.results(flat, hidden, x.dtype, out, dgrad_out, outside)
    if (main_grad1 is None) != (main_grad2 is None):
        raise ValueError("main_grad1, main_grad2: both or none are expected")
    dw = x.dtype if w1 is None and scaling.is_packed else like1.dtype
    if main_grad1 is not None:
        _checks.buffer("main_grad1", main_grad1, like1.shape, x, _written(recipe))
        _checks.buffer("main_grad2", main_grad2, like2.shape, x, (main_grad1.dtype,))
        dw = main_grad1.dtype
    kind = "mlp" if route is None else "moe"
    index, residual, addresses = (None, None, None) if route is None else \
        (route.index, route.residual, route.addresses)
    if residual is not None:
        _checks.values("residual", residual, 2, x.dtype)
    line = f"{kind} {recipe} in={WORDS[x.dtype]} dw={WORDS[dw]} activation={activation}"
    line += "".join(f" {key}={value}" for key, value in (
        ("interleave", interleave), ("prob", int(prob is not None and route is None)),
        ("bias", int(b1 is not None)), ("recompute", int(recompute)), ("outside", outside)) if value)
    line += "" if route is None else route.words
    options = Options(kind, recipe, scaling, WORDS[x.dtype], line,
                      " beta=1" if main_grad1 is not None and not overwrite else "", WORDS[dw],
                      groups, wide, hidden, ffn, limits_of(*limits), layer)
    arrays = (None,) * 12 if quantized1 is None else (*quantized1[:6], *quantized2[:6])
    scale, history = state or (None, None)
    wanted = torch.is_grad_enabled() and any(
        t is not None and t.requires_grad
        for t in (x, w1, w2, b1, b2, prob, residual)) or _is_transformed()
    if main_grad1 is not None and torch.is_grad_enabled() and not wanted:
        raise ValueError("main_grad1: nothing requires a gradient, so that no backward pass adds "
                         "to it")
    if wanted:
        check_gradients(recipe, scaling)
        if (scaling.w > 1 and not scaling.is_packed and quantized1 is not None
                and quantized1.columnwise is None):
            raise ValueError("w1 has no columnwise tensor, which the gradient of x reads")
        if queue is not None and main_grad1 is None and sink is None:
            sink = sink_of(*leaves)
        y = _GroupedMLP.apply(flat, w1, w2, b1, b2, prob, residual, index, addresses, lengths, ends,
                              out, dgrad_out, main_grad1, main_grad2, scale, history, *arrays,
                              options, queue, sink)
    else:
        y = forward(flat, w1, w2, b1, b2, prob, residual, index, addresses, lengths, ends, out,
                    scale, history, arrays, options)[0]
        _checks.written(out)
    return y if x.dim() == 2 else y.reshape(*rows, hidden)


def check_operands(x, w1, w2, quantized1, quantized2, recipe, scaling, activation, state):
    _checks.word("activation", activation, GATED + PLAIN)
    if scaling.slots and state is None:
        raise ValueError(f"recipe {recipe} has delayed scaling, whose state a module keeps: "
                         "use GroupedMLP")
    check_tokens(x, recipe, scaling)
    for name, w, quantized in (("w1", w1, quantized1), ("w2", w2, quantized2)):
        if quantized is not None:
            check_quantized(name, quantized, recipe, x)
        if w is not None or quantized is None:
            _checks.values(name, w, 3, scaling.type if scaling.w == 1 else None)
            _checks.on_device(name, w, x)
    (g, wide, hidden), shape = ((w1, w2) if quantized1 is None else
                                (quantized1, quantized2))[0].shape, \
        (w2 if quantized2 is None else quantized2).shape
    ffn = wide // 2 if activation in GATED else wide
    if hidden != x.shape[-1]:
        raise ValueError(f"x has the shape {list(x.shape)} and w1 {[g, wide, hidden]}: "
                         "their last axes differ")
    if activation in GATED and wide % 2 or tuple(shape) != (g, hidden, ffn):
        raise ValueError(f"w2 has the shape {list(shape)}: {[g, hidden, ffn]} is expected, since "
                         f"w1 has the shape {[g, wide, hidden]} and {activation} "
                         f"{'halves' if activation in GATED else 'keeps'} its features")
