# SPDX-License-Identifier: Apache-2.0
"""Checks of users' arguments while jax traces: each error names the argument and the rule."""

import operator

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from quern._checks import flag, integer, number, word  # noqa: F401
from quern.jax._call import WORDS

VALUES = "bfloat16, float16 or float32"
PRECISIONS = (None, "default", "DEFAULT", lax.Precision.DEFAULT,
              (lax.Precision.DEFAULT,) * 2, lax.DotAlgorithmPreset.BF16_BF16_F32)


def array(name, value):
    """An array of jax's, also from numpy's, or an object with __jax_array__; its sizes are
    integers."""
    try:
        if value is None:
            raise TypeError
        value = jnp.asarray(value)
    except TypeError as error:
        raise TypeError(f"{name} is {type(value).__name__}: an array is expected") from error
    if not all(isinstance(size, int) for size in value.shape):
        raise NotImplementedError(
            f"{name} has the shape [{', '.join(map(str, value.shape))}]: integers are expected, "
            "for which calls are planned. Export a program for each, instead of symbolic sizes")
    return value


def values(name, value, ndim, dtype=None):
    """An array of values with so many axes, of any type that quern reads or of this one."""
    value = array(name, value)
    if value.dtype.name not in WORDS or dtype not in (None, value.dtype):
        raise TypeError(f"{name} is {value.dtype}: {dtype or VALUES} is expected")
    if ndim is not None and value.ndim != ndim:
        raise ValueError(f"{name} has {value.ndim} axes: {ndim} are expected")
    return unsharded(name, value)


def unsharded(name, value):
    """XLA would gather a sharded array outside of shard_map."""
    sharding = getattr(jax.typeof(value), "sharding", None)
    if sharding is not None and any(axis is not None for axis in sharding.spec):
        raise ValueError(f"{name} is sharded as {sharding.spec}: call quern.jax inside of "
                         "jax.shard_map")
    return value


def shaped(name, value, shape):
    value = array(name, value)
    if value.shape != tuple(shape):
        raise ValueError(f"{name} has the shape {list(value.shape)}: {list(shape)} is expected")
    return value


def integers(name, value, shape=None):
    """Integers that call() is given as they are: int32, uint32, or int64 where jax has that."""
    if not isinstance(value, jax.Array):
        value = _of_host(name, value)
    value = array(name, value)
    if not jnp.issubdtype(value.dtype, jnp.integer):
        raise TypeError(f"{name} is {value.dtype}: integers are expected")
    if shape is not None:
        shaped(name, value, shape)
    if value.dtype == jnp.uint64:
        return jnp.minimum(value, jnp.iinfo(jnp.int64).max).astype(jnp.int64)
    return value if value.dtype in (jnp.int32, jnp.uint32, jnp.int64) else value.astype(jnp.int32)


def numbers(name, value, shape=None):
    """Integers to compute with."""
    return signed(integers(name, value, shape))


def signed(value):
    """uint32 as int64 where jax has that, else as int32 of at most its largest value."""
    if value.dtype != jnp.uint32:
        return value
    kind = jax.dtypes.canonicalize_dtype(jnp.int64)
    return (value if kind == jnp.int64 else jnp.minimum(value, jnp.iinfo(kind).max)).astype(kind)


def counts(name, value):
    """The sizes of any number of groups."""
    value = integers(name, value)
    if value.ndim != 1:
        raise ValueError(f"{name} has {value.ndim} axes: 1 is expected")
    return value


def _of_host(name, value):
    """Without jax_enable_x64 jax takes the lowest 32 bits of the host's integers, and bools in
    lists as integers."""
    limit = jnp.iinfo(jax.dtypes.canonicalize_dtype(jnp.int64))
    is_list = isinstance(value, (list, tuple))
    if is_list:
        try:
            given = np.asarray(value, object)
        except (TypeError, ValueError) as error:
            raise TypeError(f"{name} is a list with traced values, or rows of different lengths: "
                            "an array is expected") from error
        for n in given.flat:
            integer(f"a value of {name}", n)
    else:
        given = np.asarray(value)
    if (is_list or given.dtype.kind in "iu") and given.size and \
            not limit.min <= int(given.min()) <= int(given.max()) <= limit.max:
        raise ValueError(f"{name} has integers beyond {limit.dtype}")
    return given.astype(limit.dtype) if is_list else value


def f32(name, value, shape):
    value = shaped(name, value, shape)
    if value.dtype.name not in (*WORDS, "float64"):
        raise TypeError(f"{name} is {value.dtype}: {VALUES} is expected")
    return value.astype(jnp.float32)


def dtype(name, value):
    try:
        found = jnp.dtype(value)
    except TypeError:
        found = None
    if found is None or found.name not in WORDS:
        raise TypeError(f"{name} is {found or repr(value)}: {VALUES} is expected")
    return found


def dims(value):
    """Axes of two operands, as tuples of integers."""
    try:
        lhs, rhs = (tuple(map(operator.index, axes)) for axes in value)
    except (TypeError, ValueError):
        raise TypeError(f"contracting_dims is {value!r}: axes of both operands, such as "
                        "((1,), (1,)), are expected") from None
    return lhs, rhs


def precision(value):
    if value not in PRECISIONS:
        raise NotImplementedError(f"precision is {value}: None or DEFAULT is expected, since "
                                  "recipe= says how values are multiplied")
