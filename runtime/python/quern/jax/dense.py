# SPDX-License-Identifier: Apache-2.0
"""grouped_gemm and grouped_dense, with the arguments of TransformerEngine."""

import dataclasses
import typing

import jax
import jax.numpy as jnp
import numpy as np

from quern.jax import _checks, products
from quern.jax._call import WORDS, call, vary_alike
from quern.jax._recipes import recipe_for, scaling_of
from quern.jax.functions import linear, ragged_wgrad, sizes_of
from quern.jax.quantized import Quantized, arrays_of
from quern.jax.scaling import no_state


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class GroupedTensor:
    """Values, or a Quantized, that are split among the groups along the first or the last axis, as
    first_dims or last_dims [g] say; without both there is a matrix for each group, along axis 0."""
    data: typing.Any
    first_dims: typing.Any = None
    last_dims: typing.Any = None


class _Side(typing.NamedTuple):
    matrix: typing.Any  # of two axes, or three with that of the groups
    kind: products.Matrix
    sizes: typing.Any
    free: tuple  # lengths of the axes that are kept


def _side(name, tensor, dims):
    data = _checks.values(name, tensor.data, None)
    if tensor.first_dims is not None and tensor.last_dims is not None:
        raise ValueError(f"{name} has first_dims and last_dims: one of them is expected")
    sizes = tensor.first_dims if tensor.last_dims is None else tensor.last_dims
    group = int(sizes is None)
    axes, summed = list(range(group, data.ndim)), [int(i) for i in dims]
    count = len(summed)
    if not summed or summed != list(range(summed[0], summed[0] + count)) or \
            summed not in (axes[:count], axes[-count:]) or count == len(axes):
        raise ValueError(f"contracting_dims of {name} are {tuple(summed)}: adjacent axes are "
                         f"expected that come before or after all others of {tuple(axes)}")
    at_end = summed == axes[-count:]
    free = data.shape[group:data.ndim - count] if at_end else data.shape[group + count:]
    total = [int(np.prod([data.shape[i] for i in summed], dtype=np.int64)),
             int(np.prod(free, dtype=np.int64))]
    matrix = data.reshape(*data.shape[:group], *(total[::-1] if at_end else total))
    ragged = "groups" if group else "rows" if tensor.last_dims is None else "columns"
    if sizes is not None:
        sizes = _checks.counts(f"{name}.{'first' if ragged == 'rows' else 'last'}_dims", sizes)
    return _Side(matrix, products.Matrix(ragged, int(at_end)), sizes, tuple(free))


def grouped_gemm(lhs, rhs, contracting_dims=((1,), (2,)), bias=None, precision=None,
                 preferred_element_type=None, group_offset=None, *, recipe=None, outside="zero",
                 key=None):
    """The product of each group's matrices, an array: lhs's axes that are kept, then rhs's.

        lhs, rhs          GroupedTensor, or arrays with a matrix for each group along axis 0
        contracting_dims  axes that are summed: adjacent, before or after all others

    The axis that is split follows from the operands'. If that is summed in both, or in neither,
    the result has the groups as its first axis. Sizes of a tensor with more axes count rows or
    columns of its matrix, whose axes are those that are kept and those that are summed.

        bias              [g, n], where lhs is split and rhs is not
        group_offset      where rhs or lhs has a matrix for each of some groups: the first of them
        recipe, outside, key  as in ragged_dot; recipes with scales take lhs [m, k] with first_dims
                          and a matrix for each group, or two tensors [m, ..] that are summed. Two
                          Quantized are multiplied as they are: x and w summed over (1,), (1,), dy
                          and w over (1,), (2,), x and dy over (0,), (0,)
    """
    _checks.precision(precision)
    lhs, rhs = (t if isinstance(t, GroupedTensor) else GroupedTensor(t) for t in (lhs, rhs))
    contracting_dims = _checks.dims(contracting_dims)
    if isinstance(lhs.data, Quantized) or isinstance(rhs.data, Quantized):
        for name, given in (("bias", bias), ("group_offset", group_offset), ("recipe", recipe)):
            if given is not None:
                raise NotImplementedError(f"{name}: None is expected with quantized operands")
        return _of_quantized(lhs, rhs, contracting_dims, preferred_element_type, outside)
    a, b = _side("lhs", lhs, contracting_dims[0]), _side("rhs", rhs, contracting_dims[1])
    recipe = recipe_for("lhs", a.matrix, recipe)
    p = products.Product(recipe, "", a.kind, b.kind)
    if p.ragged is None:
        raise ValueError("rhs: its axis that is split does not fit lhs's: both are summed, or one "
                         "of lhs and rhs has a matrix for each group")
    sums = [side.matrix.shape[side.kind.sum_axis - 2] for side in (a, b)]
    if sums[0] != sums[1]:
        raise ValueError(f"contracting_dims: lhs sums {sums[0]} values and rhs {sums[1]}")
    if a.sizes is not None and b.sizes is not None and a.sizes.shape != b.sizes.shape:
        raise ValueError(f"rhs has {b.sizes.shape[0]} sizes and lhs {a.sizes.shape[0]}")
    if bias is not None and p.ragged != "m":
        raise ValueError("bias: lhs must be split along an axis that is kept, and rhs have a "
                         "matrix for each group")
    if scaling_of(recipe).is_plain:
        y = _plain(p, a, b, bias, preferred_element_type, group_offset, outside)
    else:
        more = dict(recipe=recipe, out_dtype=preferred_element_type, group_offset=group_offset,
                    key=key)
        y = _scaled(p, a, b, bias, dict(more, outside=outside), more)
    shape = a.free + b.free
    return y.reshape(shape if p.ragged in ("m", "n") else y.shape[:1] + shape)


def _plain(p, a, b, bias, out_dtype, offset, outside):
    for name, side in (("lhs", a), ("rhs", b)):
        _checks.values(name, side.matrix, None, scaling_of(p.recipe).type)
    out = _checks.dtype("preferred_element_type",
                        a.matrix.dtype if out_dtype is None else out_dtype)
    _checks.word("outside", outside, (None, "zero"))
    groups = [side.matrix.shape[0] for side in (a, b) if side.kind.ragged == "groups"]
    name, sizes = ("lhs", a.sizes) if a.sizes is not None else ("rhs", b.sizes)
    if p.ragged == "none":
        if groups[0] != groups[1]:
            raise ValueError(f"rhs has {groups[1]} matrices and lhs {groups[0]}")
        sizes = {}
    else:
        count = groups[0] if groups else sizes.shape[-1]
        sizes = sizes_of(f"{name}.first_dims or last_dims", sizes, count, offset)
        if bias is not None:
            bias = _checks.f32("bias", bias, (count, b.matrix.shape[2 - b.kind.sum_axis]))
    x, w, bias, sizes = vary_alike((a.matrix, b.matrix, bias, sizes))
    word = "" if outside is None else " outside=zero"
    return products.multiply(p._replace(d=WORDS[out.name], outside=word), x, w, bias, sizes)


def _scaled(p, a, b, bias, more, wgrad):
    names = "lhs", "rhs", "lhs.first_dims"
    no_state(p.recipe)
    if p.ragged == "m" and a.kind == products.X:
        return linear(a.matrix, b.matrix, a.sizes, names, bias=bias,
                      layout="nk" if b.kind.sum_axis else "kn", **more)
    if p.ragged == "k" and a.kind == b.kind == products.X_T:
        return ragged_wgrad(a.matrix, b.matrix, a.sizes, names, **wgrad)
    raise ValueError(f"recipe {p.recipe}: lhs [m, k] with first_dims and rhs with a matrix for "
                     "each group are expected, or both [m, ..] with first_dims, summed over m")


_LINES = {("x", "w", ((1,), (1,))): ("fprop", "rowwise", "columnwise"),
          ("dy", "w", ((1,), (2,))): ("dgrad", "rowwise", "rowwise"),
          ("x", "dy", ((0,), (0,))): ("wgrad", "columnwise", "columnwise")}


def _of_quantized(lhs, rhs, dims, out_dtype, outside):
    a, b = lhs.data, rhs.data
    for name, t in (("lhs", a), ("rhs", b)):
        if not isinstance(t, Quantized):
            raise ValueError(f"{name} is {type(t).__name__}: a Quantized is expected, as the other "
                             "operand is")
    if a.recipe != b.recipe:
        raise ValueError(f"rhs is quantized by recipe {b.recipe}, and lhs by {a.recipe}")
    if (a.of, b.of, dims) not in _LINES:
        raise ValueError(f"contracting_dims are {dims}, of lhs as of={a.of} and rhs as of={b.of}: "
                         f"one of {', '.join(map(str, _LINES))} is expected")
    op, *copies = _LINES[a.of, b.of, dims]
    arrays = [arrays_of(name, t, [copy])[0] for name, t, copy in zip(("lhs", "rhs"), (a, b), copies)]
    if lhs.first_dims is None:
        raise ValueError("lhs.first_dims: the rows of each group are expected")
    sizes = {"lengths": _checks.counts("lhs.first_dims", lhs.first_dims)}
    out = _checks.dtype("preferred_element_type", a.dtype if out_dtype is None else out_dtype)
    _checks.word("outside", outside, (None, "zero"))
    rows, width = a.shape
    if op == "wgrad":
        if b.shape[0] != rows:
            raise ValueError(f"rhs has {b.shape[0]} rows and lhs {rows}: as many are expected")
        if rhs.first_dims is not None:
            _checks.numbers("rhs.first_dims", rhs.first_dims, sizes["lengths"].shape)
        numbers, is_swapped = (width, b.shape[1], rows), scaling_of(a.recipe).is_wgrad_symmetric
        if not is_swapped:
            arrays, numbers = arrays[::-1], (b.shape[1], width, rows)
    else:
        numbers = rows, b.shape[2] if op == "fprop" else b.shape[1], width
        if width != b.shape[1 if op == "fprop" else 2]:
            raise ValueError(f"lhs has the shape {list(a.shape)} and rhs {list(b.shape)}: the axes "
                             "that are summed differ")
        _checks.shaped("lhs.first_dims", sizes["lengths"], b.shape[:1])
    line = f"{op} {a.recipe} d={WORDS[out.name]}" \
        f"{' outside=zero' if outside and op != 'wgrad' else ''} " \
        "g={} m={} n={} k={}".format(sizes["lengths"].shape[0], *numbers)

    def run(*given):
        operands = {name + end: array for name, three, count in (
            ("a", given[1:], len(arrays[0])), ("b", given[1 + len(arrays[0]):], len(arrays[1])))
            for end, array in zip(products.ENDS, three[:count])}
        return call(line, rows, dict(lengths=given[0], **operands), ("d",))["d"]

    given = vary_alike([sizes["lengths"], *arrays[0], *arrays[1]])
    y = products.once(f"recipe {a.recipe}", run, *given)
    return jnp.swapaxes(y, 1, 2) if op == "wgrad" and not is_swapped else y


def grouped_dense(x, kernel, group_sizes, contracting_dims=((1,), (1,)), bias=None, *,
                  preferred_element_type=None, group_offset=None, recipe=None, outside="zero",
                  key=None, quantized=None, state=None, lora=None, lora_scaling=1.0):
    """A grouped linear layer: [.., k], [g, k, n] to [.., n], plus bias [g, n] of each row's group.

        contracting_dims  of the kernel (1,), or (2,) if it is [g, n, k]; of x its last axis
        group_sizes, recipe, group_offset, outside, key, quantized, state, lora, lora_scaling  as in
                          ragged_dot, the adapters' axes in the kernel's order

    Differentiable in x, kernel, bias and adapters.
    """
    x = _checks.values("x", x, None)
    dims = _checks.dims(contracting_dims)
    if dims[0] != (x.ndim - 1,) or dims[1] not in ((1,), (2,)):
        raise ValueError(f"contracting_dims are {dims}: (({x.ndim - 1},), (1,)) or "
                         f"(({x.ndim - 1},), (2,)) is expected")
    y = linear(x.reshape(-1, x.shape[-1]), kernel, group_sizes, ("x", "kernel", "group_sizes"),
               recipe=recipe, out_dtype=preferred_element_type, group_offset=group_offset,
               bias=bias, outside=outside, key=key, quantized=quantized, state=state,
               layout="kn" if dims[1] == (1,) else "nk", lora=lora, lora_scaling=lora_scaling)
    return y.reshape(*x.shape[:-1], y.shape[-1])
