# SPDX-License-Identifier: Apache-2.0
"""Quantized tensors as pytrees: made from values, and back."""

import dataclasses
import functools
import typing

import jax
import jax.numpy as jnp

from quern.jax import _checks, products
from quern.jax._batch import batched
from quern.jax._call import WORDS, call
from quern.jax._recipes import scaling_of
from quern.jax.scaling import ScalingState, check_state, vary_with
from quern.scaling import OF, have_same_weights

COPIES = ("rowwise", "columnwise", "both")
_ARRAYS = ("rowwise", "rowwise_sf", "rowwise_global", "columnwise", "columnwise_sf",
           "columnwise_global")


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Quantized:
    """Bytes, scale factors and those of the second level, flat uint8 arrays, None where there are
    none. Weights [g, k, n] are quantized as they are: ragged_dot reads their columnwise tensor, its
    gradient the rowwise one. shape and dtype are those of the values."""
    rowwise: typing.Any
    rowwise_sf: typing.Any
    rowwise_global: typing.Any
    columnwise: typing.Any
    columnwise_sf: typing.Any
    columnwise_global: typing.Any
    shape: tuple = dataclasses.field(metadata=dict(static=True))
    recipe: str = dataclasses.field(metadata=dict(static=True))
    of: str = dataclasses.field(metadata=dict(static=True))
    dtype: typing.Any = dataclasses.field(metadata=dict(static=True))

    def arrays(self, copy):
        """Those of a copy that there are."""
        all_ = self.rowwise, self.rowwise_sf, self.rowwise_global, self.columnwise, \
            self.columnwise_sf, self.columnwise_global
        return [a for a in (all_[:3] if copy == "rowwise" else all_[3:]) if a is not None]


def check_quantized(name, quantized, recipe, of):
    if not isinstance(quantized, Quantized):
        raise TypeError(f"{name} is {type(quantized).__name__}: a Quantized is expected")
    if quantized.of != of or not (quantized.recipe == recipe or
                                  of == "w" and have_same_weights(quantized.recipe, recipe)):
        raise ValueError(f"{name} is quantized as of={quantized.of} of recipe {quantized.recipe}: "
                         f"of={of} of {recipe} is expected")


def arrays_of(name, quantized, copies):
    """The arrays of the tensors that a product and its gradient read; the latter may have none."""
    arrays = tuple(map(quantized.arrays, copies))
    if not arrays[0]:
        raise ValueError(f"{name} has no {copies[0]} tensor, which the product reads")
    return arrays


def seeds(key, recipe, scaling, tensors=3):
    """Bits for each tensor that is rounded at random; None: none is."""
    if not any(scaling.is_random):
        return None
    if key is None:
        raise ValueError(f"key: recipe {recipe} rounds at random, so that a key of jax.random is "
                         "expected")
    try:
        return jax.random.bits(key, (tensors * 4,), jnp.uint32) >> 2
    except (TypeError, ValueError) as error:
        raise TypeError(f"key is {type(key).__name__}: a key of jax.random is expected") from error


class _Cast(typing.NamedTuple):
    """The part of a Spec that products.quantize reads, and the rest of its arguments."""
    recipe: str
    scaling: typing.Any
    of: str
    copies: str
    dbias: bool
    is_seeded: bool
    has_state: bool


@functools.lru_cache(maxsize=None)
def _cast(c, sizes):
    names = products.names_of(c.copies, getattr(c.scaling, c.of))
    results = names + ["dbias"] * c.dbias + ["history"] * c.has_state

    def run(sizes, values, *more):
        more = list(more)
        state = ScalingState(*more[-2:]) if c.has_state else None
        seed = more[0][:4] if c.is_seeded else None
        made = products.quantize(values, c.of, c, c.copies, sizes, seed, c.dbias, state)
        return tuple(made[name] for name in results)

    kinds = ["groups" if c.of == "w" else "rows"] + ["flat"] * c.is_seeded
    made = ["flat" if c.of == "w" else "bytes"] * len(names)
    return batched(run, sizes, kinds + ["state"] * 2 * c.has_state,
                   made + ["groups"] * c.dbias + ["state"] * c.has_state)


def grouped_quantize(x, recipe, group_sizes=None, *, of="x", copies="both", dbias=False, key=None,
                     state=None):
    """Quantize activations [m, k] or weights [g, k, n] as a recipe says: a Quantized, with dbias
    also f32 [g, k], the sum of each group's rows, with state also the next state.

        group_sizes  [g] rows of each group; weights take none
        of           "x" activations, "dy" gradients of the output, "w" weights
        copies       "rowwise", "columnwise" or "both"
        key          jax.random's, of recipes that round this tensor at random
        state        of scaling_state(recipe), for recipes with delayed scaling

    It has no derivative.
    """
    scaling = scaling_of(recipe)
    _checks.word("of", of, OF)
    _checks.word("copies", copies, COPIES)
    x = _checks.values("x", x, 3 if of == "w" else 2)
    if getattr(scaling, of) < 2:
        raise ValueError(f"recipe {recipe} does not scale {of}: there is nothing to quantize")
    state = check_state(recipe, state, None)
    bits = None
    if scaling.is_random[OF.index(of)]:
        bits = seeds(key, recipe, scaling, 1)
    c = _Cast(recipe, scaling, of, copies, bool(dbias), bits is not None, state is not None)
    sizes = {}
    if of == "w":
        if group_sizes is not None or dbias:
            raise ValueError("group_sizes, dbias: weights take none")
    else:
        if group_sizes is None:
            raise ValueError("group_sizes: the rows of each group are expected")
        sizes = {"lengths": _checks.counts("group_sizes", group_sizes)}
    x, sizes, state = vary_with(state, x, sizes)
    more = ([] if bits is None else [bits]) + list(state or [])
    made = products.once(f"recipe {recipe}", _cast(c, tuple(sizes)), *sizes.values(), x, *more)
    names = products.names_of(copies, getattr(scaling, of))
    found = {name.replace(".", "_"): a for name, a in zip(names, made)}
    quantized = Quantized(*map(found.get, _ARRAYS), x.shape, recipe, of, x.dtype)
    found = [quantized, *made[len(names):len(names) + c.dbias]]
    if state is not None:
        found.append(state._replace(history=made[-1]))
    return tuple(found) if len(found) > 1 else quantized


def dequantize(quantized, group_sizes=None, *, copies="rowwise", dtype=None):
    """The values of a Quantized: of its rowwise or of its columnwise tensor, as copies says.

        group_sizes  as they were given to grouped_quantize; rows outside are undefined
        dtype        of the result; default that of the values
    """
    if not isinstance(quantized, Quantized):
        raise TypeError(f"quantized is {type(quantized).__name__}: a Quantized is expected")
    _checks.word("copies", copies, COPIES[:2])
    dtype = _checks.dtype("dtype", quantized.dtype if dtype is None else dtype)
    arrays = quantized.arrays(copies)
    if not arrays:
        raise ValueError(f"copies is {copies!r}: quantized has no such tensor")
    shape, of = quantized.shape, quantized.of
    sizes, g, rows = {}, shape[0], 0
    if of != "w":
        if group_sizes is None:
            raise ValueError("group_sizes: the rows of each group are expected")
        sizes = {"lengths": _checks.counts("group_sizes", group_sizes)}
        g, rows = sizes["lengths"].shape[0], shape[0]
    elif group_sizes is not None:
        raise ValueError("group_sizes: weights take none")
    line = f"dequantize {quantized.recipe} of={of} out={WORDS[dtype.name]} copies={copies} " \
        f"g={g} m={shape[-2]} k={shape[-1]}"
    operands = {copies + end: array for end, array in zip(products.ENDS, arrays)}
    return call(line, rows, dict(sizes, **operands), ("output",))["output"]
