# SPDX-License-Identifier: Apache-2.0
"""Quantized tensors as pytrees: made from values, and back."""

import dataclasses
import functools
import typing

import jax
import jax.numpy as jnp

from quern.jax import _checks, products
from quern.jax._batch import batched
from quern.jax._call import WORDS, call, vary_alike
from quern.jax._recipes import OF, scaling_of

COPIES = ("rowwise", "columnwise", "both")
_ARRAYS = ("rowwise", "rowwise_sf", "rowwise_global", "columnwise", "columnwise_sf",
           "columnwise_global")


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Quantized:
    """Bytes, scale factors and those of the second level, flat uint8 arrays, None where there are
    none. Weights [g, k, n] are quantized as they are: ragged_dot reads their columnwise tensor, its
    gradient the rowwise one. shape and dtype are those of the values; rows is 0 for weights."""
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
    if quantized.of != of or quantized.recipe != recipe:
        raise ValueError(f"{name} is quantized as of={quantized.of} of recipe {quantized.recipe}: "
                         f"of={of} of {recipe} is expected")


def check_state(recipe, scaling):
    if scaling.is_delayed:
        raise NotImplementedError(f"recipe {recipe}: delayed scaling keeps a state, which "
                                  "quern.jax does not have")


def seeds(key, recipe, scaling, tensors=3):
    """Bits for each tensor that is rounded at random; None: none is."""
    if not any(scaling.is_random):
        return None
    if key is None:
        raise ValueError(f"key: recipe {recipe} rounds at random, so that a key of jax.random is "
                         "expected")
    return jax.random.bits(key, (tensors * 4,), jnp.uint32) >> 2


class _Cast(typing.NamedTuple):
    """The part of a Spec that products.quantize reads, and the rest of its arguments."""
    recipe: str
    scaling: typing.Any
    of: str
    copies: str
    dbias: bool
    is_seeded: bool


@functools.lru_cache(maxsize=None)
def _cast(c, sizes):
    def run(batch, sizes, values, *seed):
        made = products.quantize(values, c.of, c, c.copies, sizes, batch, *seed or (None,), c.dbias)
        names = products.names_of(c.copies, getattr(c.scaling, c.of))
        return tuple(made[name] for name in names + ["dbias"] * c.dbias)

    count = len(products.names_of(c.copies, getattr(c.scaling, c.of)))
    return batched(run, sizes, ["rows"] + ["flat"] * c.is_seeded,
                   ["flat"] * count + ["groups"] * c.dbias)


def grouped_quantize(x, recipe, group_sizes=None, *, of="x", copies="both", dbias=False, key=None):
    """Quantize activations [m, k] or weights [g, k, n] as a recipe says: a Quantized, with dbias
    also f32 [g, k], the sum of each group's rows.

        group_sizes  [g] rows of each group; weights take none
        of           "x" activations, "dy" gradients of the output, "w" weights
        copies       "rowwise", "columnwise" or "both"
        key          jax.random's, of recipes that round this tensor at random

    It has no derivative.
    """
    scaling = scaling_of(recipe)
    _checks.word("of", of, OF)
    _checks.word("copies", copies, COPIES)
    x = _checks.values("x", x, 3 if of == "w" else 2)
    if getattr(scaling, of) < 2:
        raise ValueError(f"recipe {recipe} does not scale {of}: there is nothing to quantize")
    check_state(recipe, scaling)
    bits = None
    if scaling.is_random[OF.index(of)]:
        bits = seeds(key, recipe, scaling, 1)
    c = _Cast(recipe, scaling, of, copies, bool(dbias), bits is not None)
    more = [] if bits is None else [bits]
    if of == "w":
        if group_sizes is not None or dbias:
            raise ValueError("group_sizes, dbias: weights take none")
        made = products.once(f"recipe {recipe}", _cast_weights(c), x, *more)
    else:
        if group_sizes is None:
            raise ValueError("group_sizes: the rows of each group are expected")
        sizes = {"lengths": _checks.numbers("group_sizes", group_sizes)}
        if sizes["lengths"].ndim != 1:
            raise ValueError(f"group_sizes has {sizes['lengths'].ndim} axes: 1 is expected")
        x, sizes = vary_alike((x, sizes))
        made = products.once(f"recipe {recipe}", _cast(c, tuple(sizes)), *sizes.values(), x, *more)
    names = products.names_of(copies, getattr(scaling, of))
    found = {name.replace(".", "_"): a for name, a in zip(names, made)}
    quantized = Quantized(*map(found.get, _ARRAYS), x.shape, recipe, of, x.dtype)
    return (quantized, made[-1]) if dbias else quantized


@functools.lru_cache(maxsize=None)
def _cast_weights(c):
    """A batch of weights is quantized as more groups."""
    @jax.custom_batching.custom_vmap
    def function(w, *seed):
        made = products.quantize(w, "w", c, c.copies, {}, 1, *seed or (None,))
        return tuple(made[name] for name in products.names_of(c.copies, c.scaling.w))

    @function.def_vmap
    def rule(batch, is_batched, w, *seed):
        w = w if is_batched[0] else jnp.broadcast_to(w, (batch, *w.shape))
        seed = [s[0] if b else s for s, b in zip(seed, is_batched[1:])]
        made = function(w.reshape(-1, *w.shape[2:]), *seed)
        return tuple(m.reshape(batch, -1) for m in made), (True,) * len(made)

    return function


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
        sizes = {"lengths": _checks.numbers("group_sizes", group_sizes)}
        g, rows = sizes["lengths"].shape[0], shape[0]
    elif group_sizes is not None:
        raise ValueError("group_sizes: weights take none")
    line = f"dequantize {quantized.recipe} of={of} out={WORDS[dtype.name]} copies={copies} " \
        f"g={g} m={shape[-2]} k={shape[-1]}"
    operands = {copies + end: array for end, array in zip(products.ENDS, arrays)}
    return call(line, rows, dict(sizes, **operands), ("output",))["output"]
