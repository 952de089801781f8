# SPDX-License-Identifier: Apache-2.0
"""grouped_mm: the products of a grouped linear layer, with their gradients."""

import functools
import typing

import torch

from quern.torch import _checks, _compile
from quern.torch._autograd import once_differentiable
from quern.torch._ops import DTYPES, WORDS, ops
from quern.torch._recipes import (Scaling, check_gradients, counterpart, have_same_weights,
                                  recipe_of, scaling_of)
from quern.torch.quantized import NONE, Quantized, State, cast


class Options(typing.NamedTuple):
    """A call's arguments that are no tensors."""
    recipe: str
    scaling: Scaling
    y: str  # types of the three results, as lines spell them
    dx: str
    dw: str
    k: int  # features of w
    n: int
    outside: str = ""  # a word of the line
    wgrad: str = ""  # words of its line
    is_input_kept: bool = False  # quantize x for wgrad in the backward pass
    layer: int = 0


class _GroupedMM(torch.autograd.Function):

    @staticmethod
    def forward(ctx, x, w, bias, prob, lengths, ends, out, dgrad_out, main_grad, scale, history,
                w0, w1, w2, w3, w4, w5, options, queue, sink, ranks):
        need_x, need_w, need_bias, need_prob = ctx.needs_input_grad[:4]
        need_w |= main_grad is not None
        y, x_later, w_later = fprop(x, w, bias, prob, lengths, ends, out, scale, history,
                                    (w0, w1, w2, w3, w4, w5), options, need_x, need_w)
        if out is not None:
            ctx.mark_dirty(y)
        ctx.save_for_backward(*x_later, *w_later, lengths, ends, prob, bias if need_prob else None)
        ctx.needs = need_x, need_w, need_bias, need_prob
        ctx.buffers = dgrad_out, main_grad, scale, history
        ctx.options, ctx.queue, ctx.sink = options, queue, sink
        ctx.ranks, ctx.dtype = ranks, x.dtype
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx, dy):
        *saved, lengths, ends, prob, bias = ctx.saved_tensors
        o, (need_x, need_w, need_bias, need_prob) = ctx.options, ctx.needs
        dgrad_out, main_grad, scale, history = ctx.buffers
        scaling, m, g = o.scaling, dy.shape[0], (ends if lengths is None else lengths).shape[0]
        dy = _checks.gradient(dy if scaling.dy > 1 else dy.to(scaling.type))
        row = column = (dy, None, None)
        dx = dw = dbias = dprob = None
        if scaling.dy > 1 and (need_x or need_w):
            copies = "both" if need_x and need_w else "rowwise" if need_x else "columnwise"
            made, dbias = cast(dy, "dy", o.recipe, scaling, copies, lengths, ends,
                               _state(scale, history, 2), need_bias and prob is None)
            row, column = made[:3], made[3:]
        if not need_bias:
            dbias = None
        elif dbias is None or not dbias.numel():
            dbias = _dbias(dy, g, lengths, ends, prob)
        if need_prob:
            dprob = _dprob(dy, bias, lengths, ends)
        if need_x:
            dx = product(f"dgrad {o.recipe} d={o.dx}{o.outside}", g, m, o.k, o.n, row, saved[3:],
                          lengths, ends, dgrad_out)
            summed = ctx.ranks and ctx.ranks.sum(dx)
        if need_w:
            x = saved[:3]
            if o.is_input_kept and scaling.x > 1:
                x = cast(x[0], "x", o.recipe, scaling, "columnwise", lengths, ends,
                         _state(scale, history, 0))[0][3:]
            dw = _wgrad(ctx, o, (g, o.n, o.k, m), column, x, lengths, ends, main_grad)
        if need_x and ctx.ranks:
            ctx.ranks.wait(summed)
            dx = dx.to(ctx.dtype)
        return (dx, dw, dbias, dprob) + (None,) * 17


def _state(scale, history, i):
    """Delayed scaling of x, w and dy."""
    return None if scale is None else State(scale[i], history[i])


def product(line, g, m, n, k, a, b, lengths, ends, out=None, bias=None, prob=None):
    """D of a line; a and b are each three arrays, of which unscaled ones have the first."""
    if out is None:
        return ops.product(line, g, m, n, k, *a, *b, lengths, ends, bias, prob)
    ops.product_(line, g, m, n, k, *a, *b, lengths, ends, bias, prob, out)
    return out


def _wgrad(ctx, o, numbers, dy, x, lengths, ends, main_grad):
    """The gradient of w; None if main_grad or a queue takes it."""
    # packed weights: of the values that w stands for
    recipe = recipe_of(o.scaling.type) if o.scaling.is_packed else o.recipe
    line = f"wgrad {recipe} d={o.dw}{o.wgrad}"
    if ctx.queue is not None:
        d = main_grad
        if d is None:
            d = torch.empty(numbers[:3], dtype=DTYPES[o.dw], device=dy[0].device)
        ctx.queue.put_product(o.layer, line, numbers, dy, x, lengths, ends, d,
                              None if d is main_grad else functools.partial(ctx.sink, d))
        return None
    dw = product(line, *numbers, dy, x, lengths, ends, main_grad)
    return dw if main_grad is None else None


def _half(dy):
    """dy in a type that products take as it is, and the recipe of that."""
    if dy.dtype == torch.float16:
        return dy, "fp16"
    return dy.to(torch.bfloat16), "bf16"


def _dbias(dy, g, lengths, ends, prob):
    dy, recipe = _half(dy)
    line = f"quantize {recipe} of=dy in={WORDS[dy.dtype]} copies=rowwise dbias=1"
    return ops.dbias(line + ("" if prob is None else " prob=1"), g, *dy.shape, dy, lengths, ends,
                     prob)


def _dprob(dy, bias, lengths, ends):
    """dy times its expert's bias, as products of BF16, which has the range of both: of the halves of
    the bias's digits, and of those of dy in FP16."""
    b = torch.stack(_halves(bias), 1)
    parts = [product("fprop bf16 d=f32 outside=zero", bias.shape[0], dy.shape[0], 2, dy.shape[1],
                     (half, None, None), (b, None, None), lengths, ends)
             for half in (_halves(dy) if dy.dtype == torch.float16 else [dy.bfloat16()])]
    return sum(parts).sum(1)


def _halves(t):
    """Two terms of BF16, whose sum has 16 binary digits of t."""
    high = t.bfloat16()
    return high, (t.float() - high.float()).bfloat16()


def _operand(t, of, o, lengths, ends, state, later):
    """The arrays that fprop reads, and those for the backward pass if that needs them."""
    if getattr(o.scaling, of) == 1:
        return (t, None, None), (t, None, None) if later else NONE
    is_packed = of == "w" and o.scaling.is_packed
    copies = "both" if later and not is_packed and not (of == "x" and o.is_input_kept) else \
        "rowwise"
    made, _ = cast(t, of, o.recipe, o.scaling, copies, lengths, ends, state)
    if is_packed:
        return made[:3], made[:3] if later else NONE
    return made[:3], (t, None, None) if later and copies == "rowwise" else made[3:]


def fprop(x, w, bias, prob, lengths, ends, out, scale, history, quantized, o, need_x=False,
          need_w=False):
    """y, and the tensors of x and w that the backward pass reads."""
    a, x_later = _operand(x, "x", o, lengths, ends, _state(scale, history, 0), need_w)
    if quantized[0] is not None or quantized[3] is not None:
        b, w_later = quantized[:3], quantized[3:] if need_x else NONE
        if need_x and o.scaling.is_packed:
            w_later = b
    else:
        b, w_later = _operand(w, "w", o, None, None, _state(scale, history, 1), need_x)
    line = (f"fprop {o.recipe} d={o.y}{o.outside}{' bias=1' if bias is not None else ''}"
            f"{' prob=1' if prob is not None else ''}")
    g = (ends if lengths is None else lengths).shape[0]
    y = product(line, g, x.shape[0], o.n, o.k, a, b, lengths, ends, out, bias, prob)
    return y, x_later, w_later


# --------------------------------------------------------------------------------- users' functions


def grouped_mm(x, w, sizes=None, *, offs=None, recipe="bf16", bias=None, prob=None, lora=None,
               lora_scaling=1.0, out_dtype=None, outside=None, out=None, dgrad_out=None,
               main_grad=None, queue=None, layer=0):
    """Multiply the tokens of each expert by its weights:
        y[i] = x[i] @ w[e].T + bias[e] * prob[i]  for each i of expert e.

        x          [tokens, k] or [..., k]
        w          [experts, n, k], or a Quantized of weights, which has a gradient only with
                   main_grad
        sizes      [experts]  tokens of each expert, int32 or int64, on the device; or
        offs       [experts]  where each expert's tokens end, as in torch._grouped_mm. A list or a
                   CPU tensor is checked and copied to the device; RuntimeError in a CUDA capture
        recipe     how values are cast before they are multiplied: bf16, fp8_block, mxfp8, ...;
                   w8a8_int8 and others are for inference: x and w have no gradients
        bias       [experts, n] of any float type; prob [tokens] multiplies its rows
        lora       (a, b): adapters [experts, rank, k] and [experts, n, rank] of up to 256 ranks, of
                   x's type, next to w in 16 bits or packed: lora_scaling * x[i] @ a[e].T @ b[e].T
                   is added to y. lora_scaling is a number, or float32 [1] on the device
        out_dtype  of y; default that of out, or of x
        outside    "zero": rows after the last expert's are zeros in y and in the gradient of x
        out, dgrad_out  contiguous [tokens, n] and [tokens, k]: y and the gradient of x are written
                   there
        main_grad  [experts, n, k], f32 or a type that the recipe writes: backward adds the
                   gradient of w to it, and w.grad is left as it is
        queue      a WgradQueue that takes the gradient of w, as work of this layer: it reaches
                   main_grad, or else w.grad, when the queue is flushed

    Differentiable in x, w, bias, prob, a and b, once; compiles with fullgraph=True unless sizes are on
    the host or there is a queue. Rows after the last expert's are not read; those of y and of the
    gradient of x are not written, and thus undefined without out, dgrad_out or outside.

    TypeError and ValueError name the argument and the rule; RuntimeError has the library's
    sentence. Nothing is launched then.
    """
    _checks.factor(lora_scaling)
    if lora is not None:
        from quern.torch.lora import adapted_mm
        refuse("lora", out=out, dgrad_out=dgrad_out, main_grad=main_grad, queue=queue)
        return adapted_mm(x, w, lora, lora_scaling, sizes, offs=offs, recipe=recipe, bias=bias,
                          prob=prob, out_dtype=out_dtype, outside=outside)
    if (bias is prob is out_dtype is outside is out is dgrad_out is main_grad is queue is None
            and layer == 0 and not torch.compiler.is_compiling()):
        y = _plain(x, w, sizes, offs, recipe)
        if y is not None:
            return y
    return grouped_linear(x, w, None, sizes, offs=offs, recipe=recipe, bias=bias, prob=prob,
                          out_dtype=out_dtype, outside=outside, out=out, dgrad_out=dgrad_out,
                          main_grad=main_grad, queue=queue, layer=layer)


def _is_transformed():
    """Whether forward-mode derivatives or torch.func's transformations are wanted, which autograd's
    functions or checks refuse."""
    return torch.autograd.forward_ad._current_level >= 0 or \
        torch._C._are_functorch_transforms_active()


def refuse(name, **others):
    for other, value in others.items():
        if value is not None:
            raise ValueError(f"{name} cannot be combined with {other}")


def _plain(x, w, sizes, offs, recipe):
    """y of unscaled values without gradients, for a third of the host's time: the operator makes
    all checks itself. None: anything that it refuses, and what has an own way or sentence."""
    try:
        scaling = scaling_of(recipe)
        if torch.is_grad_enabled() and (x.requires_grad or w.requires_grad) or _is_transformed():
            return None
        device = x.device
        if scaling.w == 1 and scaling.x == 1 and x.dtype == w.dtype == scaling.type and \
                device == w.device == (offs if sizes is None else sizes).device and \
                not torch.is_autocast_enabled(device.type):
            m, g, n, k = x.shape[0], *w.shape
            return ops.product(f"fprop {recipe} d={WORDS[x.dtype]}", g, m, n, k, x, None, None, w,
                               None, None, sizes, offs, None, None)
    except (AttributeError, IndexError, RuntimeError, TypeError, ValueError):
        pass  # the other way finds the sentence
    return None


@_compile.eager_if(lambda x, w, quantized, sizes=None, offs=None, **more:
                   _compile.why_eager(x, sizes, offs, **more))
def grouped_linear(x, w, quantized, sizes=None, *, offs=None, recipe="bf16", bias=None, prob=None,
                   out_dtype=None, outside=None, out=None, dgrad_out=None, main_grad=None,
                   queue=None, layer=0, addresses=None, overwrite=False, is_input_kept=False,
                   state=None, sink=None, ranks=None):
    """grouped_mm for modules, which also have quantized weights next to w, the addresses (int64
    [experts]) of experts' gradients of main_grad's type, delayed scaling's state (scale [3, 2],
    history [3, slots]), overwrite main_grad, keep x itself for the backward pass, take a
    gradient of w that was queued, or sum the gradient of x over ranks, in fp32."""
    if isinstance(w, Quantized):
        w, quantized = None, w
    scaling, leaf = scaling_of(recipe), w
    x, w = autocast(scaling, x, w)
    like = w if quantized is None else quantized
    _check_operands(x, w, quantized, recipe, scaling, state)
    (groups, n, k), rows = like.shape, x.shape[:-1]
    flat = _checks.aligned(x if x.dim() == 2 else x.reshape(-1, k), scaling.x == 1)
    w = w if w is None else _checks.aligned(w, scaling.w == 1)
    lengths, ends = _checks.sizes_of(x, None if torch.compiler.is_compiling() else flat.shape[0],
                                     groups, sizes, offs)
    y_type = out_dtype or (out.dtype if getattr(out, "dtype", None) in WORDS else x.dtype)
    _checks.dtype_of("out_dtype", y_type)
    _checks.queued(queue, layer)
    bias, prob = _check_bias(flat, bias, prob, groups, n)
    out = _checks.results(flat, n, y_type, out, dgrad_out, outside)
    words = _check_main_grad(main_grad, addresses, overwrite, like, x, recipe)
    options = Options(recipe, scaling, WORDS[y_type], "f32" if ranks else WORDS[x.dtype],
                      WORDS[like.dtype if main_grad is None else main_grad.dtype], k, n,
                      "" if outside is None else " outside=zero", words, is_input_kept, layer)
    arrays = (None,) * 6 if quantized is None else quantized[:6]
    scale, history = state or (None, None)
    wanted = torch.is_grad_enabled() and any(
        t is not None and t.requires_grad for t in (x, w, bias, prob)) or _is_transformed()
    if main_grad is not None and torch.is_grad_enabled() and not wanted:
        raise ValueError("main_grad: neither x nor w requires a gradient, so that no backward pass "
                         "adds to it")
    if wanted:
        if x.requires_grad or w is not None and w.requires_grad:
            check_gradients(recipe, scaling)
        if (quantized is not None and x.requires_grad and not scaling.is_packed
                and quantized.columnwise is None):
            raise ValueError("w has no columnwise tensor, which the gradient of x reads")
        target = main_grad if addresses is None else addresses
        if queue is not None and target is None and sink is None:
            sink = sink_of(leaf)
        y = _GroupedMM.apply(flat, w, bias, prob, lengths, ends, out, dgrad_out, target, scale,
                             history, *arrays, options, queue, sink, ranks)
    else:
        y = fprop(flat, w, bias, prob, lengths, ends, out, scale, history, arrays, options)[0]
        _checks.written(out)
    return y if x.dim() == 2 else y.reshape(*rows, n)


def autocast(scaling, x, *others):
    """Under autocast x has its type, and unscaled operands the recipe's. Else as they are."""
    kind = x.device.type if isinstance(x, torch.Tensor) else "meta"
    if kind == "meta" or not torch.is_autocast_enabled(kind):
        return (x, *others)
    target = scaling.type or torch.get_autocast_dtype(kind)
    if x.dtype in WORDS:
        x = x.to(target)
    return x, *[t.to(target) if scaling.w == 1 and isinstance(t, torch.Tensor) and t.dtype in WORDS
                else t for t in others]


def recipe_for(recipe, x):
    """The recipe of the same packed weights for the type of x, under autocast for its type. None:
    there is none."""
    kind = x.device.type
    is_cast = kind != "meta" and torch.is_autocast_enabled(kind)
    return counterpart(recipe, torch.get_autocast_dtype(kind) if is_cast else x.dtype)


def sink_of(*weights):
    """Takes the gradients of leaves when a queue is flushed."""
    if not all(w is not None and w.is_leaf for w in weights):
        raise ValueError("queue: weights must be leaves of autograd, or main_grad be given")

    def take(*gradients):
        for w, dw in zip(weights, gradients):
            add_grad(w, dw)

    return take


def add_grad(w, dw):
    """Add to the gradient of a leaf, as autograd does; a frozen one has none."""
    if not w.requires_grad:
        return
    dw = dw.to(w.dtype)
    w.grad = dw if w.grad is None else w.grad + dw


def check_tokens(x, recipe, scaling):
    """x has a type that the recipe multiplies; the error names a recipe of the same weights for x."""
    if scaling.x != 1:
        _checks.values("x", x)
        return
    dtype = getattr(x, "dtype", None)
    other = counterpart(recipe, dtype) if dtype != scaling.type else None
    if other is not None:
        raise TypeError(f"x is {dtype}: {scaling.type} is expected; recipe {other} has the same "
                        f"weights next to {dtype}")
    _checks.values("x", x, None, scaling.type)


def check_quantized(name, quantized, recipe, x):
    if quantized.of != "w" or not (quantized.recipe == recipe or
                                   have_same_weights(quantized.recipe, recipe)):
        raise ValueError(f"{name} is quantized as of={quantized.of} of recipe {quantized.recipe}: "
                         f"of=w of {recipe} is expected")
    if quantized.rowwise is None:
        raise ValueError(f"{name} has no rowwise tensor, which the forward pass reads")
    _checks.on_device(name, quantized.rowwise, x)


def _check_operands(x, w, quantized, recipe, scaling, state):
    check_tokens(x, recipe, scaling)
    if scaling.slots and state is None:
        raise ValueError(f"recipe {recipe} has delayed scaling, whose state a module keeps: "
                         "use GroupedLinear")
    if quantized is not None:
        check_quantized("w", quantized, recipe, x)
    if w is not None or quantized is None:
        _checks.values("w", w, 3, scaling.type if scaling.w == 1 else None)
        _checks.on_device("w", w, x)
    shape = (w if quantized is None else quantized).shape
    if x.shape[-1] != shape[2]:
        raise ValueError(f"x has the shape {list(x.shape)} and w {list(shape)}: "
                         "their last axes differ")


def _check_bias(x, bias, prob, groups, n):
    """Both in float32, prob as [tokens]."""
    if bias is None and prob is not None:
        raise ValueError("prob: it multiplies the bias, and there is none")
    if bias is not None:
        bias = bias_of("bias", bias, (groups, n), x)
    return bias, prob if prob is None else f32("prob", prob, (x.shape[0],), x)


def f32(name, t, shape, like):
    """Values in fp32; those of rows may have more axes."""
    if len(shape) == 1 and isinstance(t, torch.Tensor):
        t = t.reshape(-1)
    _checks.shaped(name, t, shape, like)
    if t.dtype != torch.float64:
        _checks.dtype_of(name, t.dtype)
    return t.float().contiguous()


def bias_of(name, t, shape, like):
    """The same of a bias, whose values kernels read in pairs."""
    return _checks.aligned(f32(name, t, shape, like), False)


def _check_main_grad(main_grad, addresses, overwrite, w, x, recipe):
    """Words of wgrad's line."""
    if main_grad is None:
        return ""
    dtypes = _written(recipe)
    if addresses is None:
        _checks.buffer("main_grad", main_grad, w.shape, x, dtypes)
    elif main_grad.dtype not in dtypes:
        raise ValueError(f"main_grad is {main_grad.dtype}: {dtypes} is expected")
    return ("" if overwrite else " beta=1") + ("" if addresses is None else " pointers=d")


@torch.compiler.assume_constant_result
def _written(recipe):
    return _find_written(recipe)


@functools.lru_cache(maxsize=None)
def _find_written(recipe):
    import quern

    def is_written(word):
        try:
            return bool(quern.describe(f"wgrad {recipe} d={word} g=1 m=128 n=128 k=128"))
        except quern.Error:
            return False

    return tuple(dtype for word, dtype in DTYPES.items() if word[0] != "i" and is_written(word))
