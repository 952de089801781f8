# SPDX-License-Identifier: Apache-2.0
"""Quantized tensors: made from values, and back."""

import typing

import torch

from quern.scaling import OF
from quern.torch import _checks
from quern.torch._ops import WORDS, ops
from quern.torch._recipes import scaling_of

NONE = (None, None, None)


class Quantized(typing.NamedTuple):
    """Bytes, scale factors and those of the second level, None where there are none. fprop reads
    rowwise tensors, dgrad dy rowwise and w columnwise, wgrad columnwise ones.

    shape, recipe, of and dtype are those of the values that were quantized.
    """
    rowwise: typing.Optional[torch.Tensor]
    rowwise_sf: typing.Optional[torch.Tensor]
    rowwise_global: typing.Optional[torch.Tensor]
    columnwise: typing.Optional[torch.Tensor]
    columnwise_sf: typing.Optional[torch.Tensor]
    columnwise_global: typing.Optional[torch.Tensor]
    shape: tuple
    recipe: str
    of: str
    dtype: torch.dtype


class State(typing.NamedTuple):
    """Delayed scaling of one tensor: scale [2], its factor and inverse, and history [slots]."""
    scale: torch.Tensor
    history: torch.Tensor


def random_of(scaling, of, device):
    if not scaling.is_random[OF.index(of)]:
        return None
    return torch.randint(2**62, (2,), device=device)


def there(scaling, of, copies):
    """Which of the six arrays a recipe has."""
    count = getattr(scaling, of)
    return [copies != "columnwise" and i < count for i in range(3)] + \
           [copies != "rowwise" and i < count for i in range(3)]


def line_of(t, of, recipe, copies):
    return f"quantize {recipe} of={of} in={WORDS[t.dtype]} copies={copies}"


def cast(t, of, recipe, scaling, copies, lengths=None, ends=None, state=None, dbias=False):
    """The six arrays of a contiguous tensor, and the sums of its rows if they are wanted."""
    if of == "w":
        groups, lengths, ends = t.shape[0], None, None
    else:
        groups = (ends if lengths is None else lengths).shape[0]
    scale, history = state or (None, None)
    *made, sums = ops.quantize(
        line_of(t, of, recipe, copies) + (" dbias=1" if dbias else ""), groups, t.shape[-2],
        t.shape[-1], t, lengths, ends, random_of(scaling, of, t.device), scale, history, None)
    return [a if has else None for a, has in zip(made, there(scaling, of, copies))], sums


def refresh(quantized, t, scaling, noop=None, state=None):
    """Quantize weights again, into the same memory; noop int32 [1]: not if it isn't 0."""
    copies = "rowwise" if quantized.columnwise is None else \
        "columnwise" if quantized.rowwise is None else "both"
    scale, history = state or (None, None)
    ops.quantize_(line_of(t, "w", quantized.recipe, copies), *t.shape, t, None, None,
                  random_of(scaling, "w", t.device), scale, history, noop, *quantized[:6])


def _check(like, rows, of, sizes, offs):
    _checks.word("of", of, OF)
    if of != "w":
        return _checks.sizes_of(like, rows, None, sizes, offs)
    if sizes is not None or offs is not None:
        raise ValueError("sizes, offs: weights take none")
    return None, None


def quantize(values, sizes=None, *, offs=None, recipe, of="x", copies="both", state=None):
    """Quantize activations [tokens, k] or weights [experts, n, k] as a recipe says: a Quantized.

        sizes   [experts] tokens of each expert, or offs, where they end; weights take none
        of      "x" activations, "dy" gradients of the output, "w" weights
        copies  "rowwise", "columnwise" or "both"
        state   delayed scaling: (scale f32 [2], history f32 [slots]), both updated
    """
    scaling = scaling_of(recipe)
    _checks.values("values", values, 3 if of == "w" else 2)
    lengths, ends = _check(values, values.shape[-2], of, sizes, offs)
    _checks.word("copies", copies, ("rowwise", "columnwise", "both"))
    if getattr(scaling, of) == 1:
        raise ValueError(f"recipe {recipe} does not scale {of}: there is nothing to quantize")
    if scaling.slots and state is None:
        raise ValueError(f"recipe {recipe} has delayed scaling: state=(scale, history) is expected")
    if state is not None:
        if not scaling.slots:
            raise ValueError(f"state: recipe {recipe} has no delayed scaling")
        if not isinstance(state, (list, tuple)) or len(state) != 2:
            raise TypeError("state: a pair of tensors (scale, history) is expected")
        for name, t, length in zip(("scale", "history"), state, (2, scaling.slots)):
            _checks.buffer(f"state.{name}", t, (length,), values, (torch.float32,), False)
    made, _ = cast(values.contiguous(), of, recipe, scaling, copies, lengths, ends, state)
    return Quantized(*made, tuple(values.shape), recipe, of, values.dtype)


def dequantize(quantized, sizes=None, *, offs=None, copies="rowwise", dtype=None):
    """The values of a Quantized: of its rowwise or of its columnwise tensor, as copies says.

        sizes, offs  as they were given to quantize
        dtype        of the result; default that of the values
    """
    if not isinstance(quantized, Quantized):
        raise TypeError(f"quantized is {type(quantized).__name__}: a Quantized is expected")
    _checks.word("copies", copies, ("rowwise", "columnwise"))
    row, column = quantized[:3], quantized[3:6]
    given = (*row, *NONE) if copies == "rowwise" else (*NONE, *column)
    like = row[0] if copies == "rowwise" else column[0]
    if like is None:
        raise ValueError(f"copies is {copies!r}: quantized has no such tensor")
    shape, of = quantized.shape, quantized.of
    lengths, ends = _check(like, shape[-2], of, sizes, offs)
    dtype = dtype or quantized.dtype
    _checks.dtype_of("dtype", dtype)
    groups = shape[0] if of == "w" else (lengths if offs is None else ends).shape[0]
    line = f"dequantize {quantized.recipe} of={of} out={WORDS[dtype]} copies={copies}"
    return ops.dequantize(line, groups, shape[-2], shape[-1], *given, lengths, ends)
