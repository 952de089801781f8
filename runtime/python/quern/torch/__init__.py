# SPDX-License-Identifier: Apache-2.0
"""quern for PyTorch: grouped products of experts, with gradients.

    import quern.torch
    y = quern.torch.grouped_mm(x, w, sizes, recipe="fp8_block")

    x      [tokens, k]   the tokens of all experts, one expert after the other
    w      [experts, n, k]
    sizes  [experts]     tokens of each expert, int32 or int64, on the device of x
    y      [tokens, n]

The operators are torch.ops.quern.product, product_, quantize and dequantize (runtime/torch). Here
are their fake kernels, and what users call. docs/pytorch.md says what exists.
"""

import ctypes
import functools
import typing

import torch

import quern
from quern import why  # noqa: F401  (offered here too)

__all__ = ["Quantized", "dequantize", "grouped_mm", "quantize", "why"]

_WORDS = {torch.bfloat16: "bf16", torch.float16: "f16", torch.float32: "f32"}
_VALUES = "bfloat16, float16 or float32"
_DTYPES = {word: dtype for dtype, word in _WORDS.items()} | {"i32": torch.int32, "i64": torch.int64}


def _load():
    library = ctypes.CDLL(quern.find("libquern_torch.so"))
    library.quern_torch_load.restype = ctypes.c_char_p
    error = library.quern_torch_load()
    if error:
        raise ImportError(f"quern.torch: {error.decode()}")


_load()
_ops = torch.ops.quern

# --------------------------------------------------------------------------------- fake kernels


def _ragged(line):
    """The key of a line that counts the rows of all groups; None: no key does."""
    words = line.split()
    if "of=w" in words or "ragged=none" in words:
        return None
    given = [word[7:] for word in words if word.startswith("ragged=")]
    return given[0] if given else "k" if words[0] == "wgrad" else "m"


def _fake(name):
    """A fake kernel, whose results have the shapes of the line's operands."""
    schema = getattr(_ops, name).default._schema
    names = [argument.name for argument in schema.arguments]
    keys = [a.name for a in schema.arguments if str(a.type) == "int"]
    results = [result.name for result in schema.returns]

    def fake(*args, **more):
        given = dict(zip(names, args), **more)
        ragged = _ragged(given["line"])
        rows = given[ragged] if ragged else 0
        numbers = [f"{key}={128 if key == ragged else int(given[key])}" for key in keys]
        table = quern.describe(" ".join([given["line"], *numbers]))
        operands = {operand.name.replace(".", "_"): operand for operand in table.values()}
        like = next(value for value in given.values() if isinstance(value, torch.Tensor))
        made = [_empty(like, operands.get(result), rows) for result in results]
        return made[0] if len(made) == 1 else tuple(made) or None

    torch.library.register_fake(f"quern::{name}", fake)


def _empty(like, operand, rows):
    """As the operator allocates it: narrow types are bytes, what a line lacks is empty."""
    if operand is None:
        return like.new_empty(0, dtype=torch.uint8)
    if operand.type in _DTYPES:
        return like.new_empty([extent.at(rows) for extent in operand.shape],
                              dtype=_DTYPES[operand.type])
    return like.new_empty(operand.bytes.at(rows), dtype=torch.uint8)


for _name in ("product", "product_", "quantize", "dequantize"):
    _fake(_name)

# -------------------------------------------------------------------------------------- recipes


class _Scaling(typing.NamedTuple):
    """Of activations, weights and gradients: how many arrays each is (1: values, 2: and scale
    factors, 3: and those of the second level), and whether their rounding is random."""
    x: int
    w: int
    dy: int
    is_random: tuple
    type: typing.Any  # of values that are not scaled


@torch.compiler.assume_constant_result
def _scaling(recipe):
    return _find_scaling(recipe)


@functools.lru_cache(maxsize=None)
def _find_scaling(recipe):
    def arrays(operand, table):
        return 1 + (operand + ".sf" in table) + (operand + ".global" in table)

    fprop = quern.describe(f"fprop {recipe} g=1 m=128 n=128 k=128")
    dgrad = quern.describe(f"dgrad {recipe} g=1 m=128 n=128 k=128")
    counts = arrays("a", fprop), arrays("b", fprop), arrays("a", dgrad)
    casts = [quern.describe(f"quantize {recipe} of={of} g=1 m=128 k=128") if count > 1 else {}
             for of, count in zip(("x", "w", "dy"), counts)]
    if any("history" in cast for cast in casts):
        raise ValueError(f"recipe {recipe}: quern.torch has no delayed scaling yet")
    operands = fprop["a"], fprop["b"], dgrad["a"]
    plain = [_DTYPES[o.type] for o in operands if o.type in _DTYPES]
    return _Scaling(*counts, tuple("random" in cast for cast in casts), plain[0] if plain else None)


class Quantized(typing.NamedTuple):
    """Bytes, scale factors and those of the second level, None where there are none. fprop reads
    rowwise tensors, dgrad dy rowwise and w columnwise, wgrad columnwise ones."""
    rowwise: typing.Optional[torch.Tensor]
    rowwise_sf: typing.Optional[torch.Tensor]
    rowwise_global: typing.Optional[torch.Tensor]
    columnwise: typing.Optional[torch.Tensor]
    columnwise_sf: typing.Optional[torch.Tensor]
    columnwise_global: typing.Optional[torch.Tensor]


def _quantize(values, of, recipe, scaling, copies, lengths, ends):
    arrays, is_random = getattr(scaling, of), scaling.is_random[("x", "w", "dy").index(of)]
    sizes = lengths if lengths is not None else ends
    groups = values.shape[0] if of == "w" else sizes.shape[0]
    line = f"quantize {recipe} of={of} in={_WORDS[values.dtype]} copies={copies}"
    random = torch.randint(2**62, (2,), device=values.device) if is_random else None
    made = _ops.quantize(line, groups, values.shape[-2], values.shape[-1], values,
                         None if of == "w" else lengths, None if of == "w" else ends, random)
    exists = [copies != "columnwise" and i < arrays for i in range(3)]
    exists += [copies != "rowwise" and i < arrays for i in range(3)]
    return Quantized(*[t if there else None for t, there in zip(made, exists)])


# --------------------------------------------------------------------------------------- checks


def _check_sizes(like, groups, sizes, offs):
    """The lengths and the ends: one of them is None."""
    if (sizes is None) == (offs is None):
        raise ValueError("sizes, offs: exactly one of them is expected")
    name, given = ("sizes", sizes) if offs is None else ("offs", offs)
    if not isinstance(given, torch.Tensor):
        raise TypeError(f"{name} is {type(given).__name__}: a tensor is expected")
    if given.dtype not in (torch.int32, torch.int64):
        raise TypeError(f"{name} is {given.dtype}: torch.int32 or torch.int64 is expected")
    if given.device != like.device:
        raise ValueError(f"{name} is on {given.device} and the values on {like.device}")
    if given.dim() != 1 or groups not in (None, given.shape[0]):
        raise ValueError(f"{name} has the shape {list(given.shape)}: "
                         f"[{'experts' if groups is None else groups}] is expected")
    return sizes, offs


def _check_values(name, t, ndim, dtype=None):
    if not isinstance(t, torch.Tensor):
        raise TypeError(f"{name} is {type(t).__name__}: a tensor is expected")
    if t.dtype not in _WORDS or dtype not in (None, t.dtype):
        raise TypeError(f"{name} is {t.dtype}: {dtype or _VALUES} is expected")
    if t.dim() != ndim:
        raise ValueError(f"{name} has {t.dim()} axes: {ndim} are expected")


# -------------------------------------------------------------------------------------- products


class _GroupedMM(torch.autograd.Function):

    @staticmethod
    def forward(ctx, x, w, lengths, ends, recipe, scaling, out_dtype):
        need_x, need_w = ctx.needs_input_grad[:2]
        y, x_later, w_later = _fprop(x, w, lengths, ends, recipe, scaling, out_dtype, need_x,
                                     need_w)
        ctx.save_for_backward(*x_later, *w_later, lengths, ends)
        ctx.recipe, ctx.scaling, ctx.dtypes = recipe, scaling, (x.dtype, w.dtype)
        ctx.sizes = (w.shape[0], x.shape[0], w.shape[1], w.shape[2])
        return y

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, dy):
        *saved, lengths, ends = ctx.saved_tensors
        (g, m, n, k), recipe, scaling = ctx.sizes, ctx.recipe, ctx.scaling
        need_x, need_w = ctx.needs_input_grad[:2]
        dx = dw = None
        dy = dy.contiguous() if scaling.dy > 1 else dy.to(scaling.type).contiguous()
        copies = "both" if need_x and need_w else "rowwise" if need_x else "columnwise"
        row = column = (dy, None, None)
        if scaling.dy > 1 and (need_x or need_w):
            made = _quantize(dy, "dy", recipe, scaling, copies, lengths, ends)
            row, column = made[:3], made[3:]
        if need_x:
            dx = _ops.product(f"dgrad {recipe} d={_WORDS[ctx.dtypes[0]]}", g, m, k, n, *row,
                              *saved[3:], lengths, ends)
        if need_w:
            dw = _ops.product(f"wgrad {recipe} d={_WORDS[ctx.dtypes[1]]}", g, n, k, m, *column,
                              *saved[:3], lengths, ends)
        return dx, dw, None, None, None, None, None


def _operand(values, of, recipe, scaling, lengths, ends, later):
    """The arrays that fprop reads, and those for the backward pass if that needs them."""
    none = (None, None, None)
    if getattr(scaling, of) == 1:
        return (values, None, None), (values, None, None) if later else none
    made = _quantize(values, of, recipe, scaling, "both" if later else "rowwise", lengths, ends)
    return made[:3], made[3:]


def _fprop(x, w, lengths, ends, recipe, scaling, out_dtype, need_x=False, need_w=False):
    """y, and what the backward pass reads of x and of w."""
    (g, n, k), m = w.shape, x.shape[0]
    a, x_later = _operand(x, "x", recipe, scaling, lengths, ends, need_w)
    b, w_later = _operand(w, "w", recipe, scaling, lengths, ends, need_x)
    y = _ops.product(f"fprop {recipe} d={_WORDS[out_dtype]}", g, m, n, k, *a, *b, lengths, ends)
    return y, x_later, w_later


def grouped_mm(x, w, sizes=None, *, offs=None, recipe="bf16", out_dtype=None):
    """Multiply the tokens of each expert by its weights:  y[i] = x[i] @ w[e].T  for i of expert e.

        x          [tokens, k] or [..., k]
        w          [experts, n, k]
        sizes      [experts]  tokens of each expert, int32 or int64, on the device; or
        offs       [experts]  where each expert's tokens end, as in torch._grouped_mm
        recipe     how values are cast before they are multiplied: bf16, fp8_block, mxfp8, ...
        out_dtype  of y; default that of x

    Differentiable in x and w, compiles with fullgraph=True. Rows after the last expert's are not
    read; those of y and of the gradient of x are not written and thus undefined.
    """
    scaling = _scaling(recipe)
    _check_values("x", x, max(x.dim(), 2) if isinstance(x, torch.Tensor) else 2,
                  scaling.type if scaling.x == 1 else None)
    _check_values("w", w, 3, scaling.type if scaling.w == 1 else None)
    if x.shape[-1] != w.shape[2]:
        raise ValueError(f"x has the shape {list(x.shape)} and w {list(w.shape)}: "
                         "their last axes differ")
    if x.device != w.device:
        raise ValueError(f"x is on {x.device} and w on {w.device}")
    out_dtype = out_dtype or x.dtype
    if out_dtype not in _WORDS:
        raise TypeError(f"out_dtype is {out_dtype}: {_VALUES} is expected")
    lengths, ends = _check_sizes(x, w.shape[0], sizes, offs)
    flat = x if x.dim() == 2 else x.reshape(-1, x.shape[-1])
    if torch.is_grad_enabled() and (x.requires_grad or w.requires_grad):
        y = _GroupedMM.apply(flat, w, lengths, ends, recipe, scaling, out_dtype)
    else:
        y = _fprop(flat, w, lengths, ends, recipe, scaling, out_dtype)[0]
    return y if x.dim() == 2 else y.reshape(*x.shape[:-1], w.shape[1])


# ---------------------------------------------------------------------------------- quantization


def _check_cast(like, of, sizes, offs):
    if of not in ("x", "w", "dy"):
        raise ValueError(f"of is {of!r}: 'x', 'w' or 'dy' is expected")
    if of != "w":
        _check_sizes(like, None, sizes, offs)
    elif sizes is not None or offs is not None:
        raise ValueError("sizes, offs: weights take none")


def quantize(values, sizes=None, *, offs=None, recipe, of="x", copies="both"):
    """Quantize activations [tokens, k] or weights [experts, n, k] as a recipe says.

        of      "x" activations, "dy" gradients of the output, "w" weights, which take no sizes
        copies  "rowwise", "columnwise" or "both"
    """
    _check_values("values", values, 3 if of == "w" else 2)
    _check_cast(values, of, sizes, offs)
    return _quantize(values, of, recipe, _scaling(recipe), copies, sizes, offs)


def dequantize(quantized, shape, sizes=None, *, offs=None, recipe, of="x", copies="rowwise",
               dtype=torch.bfloat16):
    """The values of a quantized tensor: of the rowwise or of the columnwise one, as copies says."""
    row, column = quantized[:3], quantized[3:]
    given = (*row, None, None, None) if copies == "rowwise" else (None, None, None, *column)
    _check_cast(given[0 if copies == "rowwise" else 3], of, sizes, offs)
    if dtype not in _WORDS:
        raise TypeError(f"dtype is {dtype}: {_VALUES} is expected")
    groups = shape[0] if of == "w" else (sizes if offs is None else offs).shape[0]
    line = f"dequantize {recipe} of={of} out={_WORDS[dtype]} copies={copies}"
    return _ops.dequantize(line, groups, shape[-2], shape[-1], *given, sizes, offs)


from .switches import Switch, TrainingConfig, install, replace_grouped_mm  # noqa: E402, F401
