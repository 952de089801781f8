# SPDX-License-Identifier: Apache-2.0
"""ragged_dot_general: products of any axes, as those of two or three that ragged_dot has."""

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from quern.jax import _checks
from quern.jax.functions import linear, ragged_wgrad

BASIC = lax.RaggedDotDimensionNumbers((((1,), (1,)), ((), ())), (0,), (0,))


def ragged_dot_general(lhs, rhs, group_sizes, ragged_dot_dimension_numbers=BASIC, precision=None,
                       preferred_element_type=None, group_offset=None, out_sharding=None, *,
                       activation=None, manual_axis_type=None, recipe=None, outside="zero",
                       key=None):
    """jax.lax.ragged_dot_general, with the further arguments of ragged_dot. Batch axes become more
    groups of one launch. activation and manual_axis_type are Tokamax's, and must be None. If the
    ragged axis is a batch axis this is jax.lax's own."""
    for name, value in (("activation", activation), ("manual_axis_type", manual_axis_type),
                        ("out_sharding", out_sharding)):
        if value is not None:
            raise NotImplementedError(f"{name} is {value}: None is expected")
    if not isinstance(ragged_dot_dimension_numbers, lax.RaggedDotDimensionNumbers):
        raise TypeError(f"ragged_dot_dimension_numbers is "
                        f"{type(ragged_dot_dimension_numbers).__name__}: "
                        "jax.lax.RaggedDotDimensionNumbers is expected")
    _checks.precision(precision)
    for name, value in (("lhs", lhs), ("rhs", rhs)):
        if hasattr(value, "qvalue") or hasattr(value, "tiled_axes"):  # qwix's and Tokamax's arrays
            raise NotImplementedError(f"{name} is {type(value).__name__}: an array is expected")
    lhs, rhs = _checks.values("lhs", lhs, None), _checks.values("rhs", rhs, None)
    sizes = _checks.integers("group_sizes", group_sizes)
    numbers = ragged_dot_dimension_numbers
    shape = _shape_of(lhs, rhs, sizes, numbers, group_offset)
    (lhs_sum, rhs_sum), (lhs_batch, rhs_batch) = numbers.dot_dimension_numbers
    ragged = numbers.lhs_ragged_dimensions[0]
    more = dict(recipe=recipe, out_dtype=preferred_element_type, group_offset=group_offset, key=key)
    if ragged in lhs_batch:
        if recipe is not None or group_offset is not None:
            raise NotImplementedError("recipe, group_offset: None is expected if the ragged axis "
                                      "is a batch axis")
        return lax.ragged_dot_general(lhs, rhs, _checks.signed(sizes), numbers,
                                      preferred_element_type=preferred_element_type)
    lhs_free = [i for i in range(lhs.ndim) if i not in (*lhs_batch, *lhs_sum)]
    if ragged in lhs_free:
        return _rows(lhs, rhs, sizes, numbers, lhs_free, shape, dict(more, outside=outside))
    return _sums(lhs, rhs, sizes, numbers, lhs_free, shape, more)


def _shape_of(lhs, rhs, sizes, numbers, offset):
    """The result's, by jax's rules and with its errors. With an offset rhs has some groups only."""
    if offset is not None and sizes.ndim and len(numbers.rhs_group_dimensions) == 1:
        axis = numbers.rhs_group_dimensions[0]
        if 0 <= axis < rhs.ndim and rhs.shape[axis] <= sizes.shape[-1]:
            sizes = sizes[..., :rhs.shape[axis]]
    return jax.eval_shape(lambda *a: lax.ragged_dot_general(*a, numbers), lhs, rhs, sizes).shape


def _merge(array, *axes):
    """The array with one axis for each list of axes."""
    array = jnp.transpose(array, [i for group in axes for i in group])
    shape, lengths = iter(array.shape), []
    for group in axes:
        lengths.append(int(np.prod([next(shape) for _ in group], dtype=np.int64)))
    return array.reshape(lengths)


def _mapped(function, count):
    for _ in range(count):
        function = jax.vmap(function)
    return function


def _rows(lhs, rhs, sizes, numbers, free, shape, more):
    """The ragged axis is kept: [b.., m.., k..], [g, b.., k.., n..]."""
    (lhs_sum, rhs_sum), (lhs_batch, rhs_batch) = numbers.dot_dimension_numbers
    ragged, group = numbers.lhs_ragged_dimensions[0], numbers.rhs_group_dimensions[0]
    outer, inner = free[:free.index(ragged)], free[free.index(ragged) + 1:]
    rhs_free = [i for i in range(rhs.ndim) if i not in (group, *rhs_batch, *rhs_sum)]
    layout = "nk" if rhs_free and max(rhs_free) < min(rhs_sum, default=0) else "kn"
    matrix = (rhs_sum, rhs_free) if layout == "kn" else (rhs_free, rhs_sum)
    w = _merge(rhs, *[[i] for i in rhs_batch], [group], *matrix)
    if sizes.ndim == 1:  # the same for all axes before the ragged one, which then go inside of it
        batch, inner = list(lhs_batch), outer + inner
        sizes = jnp.broadcast_to(sizes, [lhs.shape[i] for i in batch] + [sizes.shape[0]])
    else:
        batch = list(lhs_batch) + outer
        w = w.reshape(*w.shape[:len(lhs_batch)], *[1] * len(outer), *w.shape[len(lhs_batch):])
        w = jnp.broadcast_to(w, [lhs.shape[i] for i in batch] + list(w.shape[-3:]))
    rows = [ragged, *inner]
    x = _merge(lhs, *[[i] for i in batch], rows, lhs_sum)
    sizes = _times(sizes, [lhs.shape[i] for i in inner])
    y = _mapped(lambda x, w, s: linear(x, w, s, ("lhs", "rhs", "group_sizes"), layout=layout,
                                       **more), len(batch))(x, w, sizes)
    y = y.reshape([lhs.shape[i] for i in batch + rows] + [rhs.shape[i] for i in rhs_free])
    wanted = list(lhs_batch) + free
    order = [(batch + rows).index(i) for i in wanted]
    return jnp.transpose(y, order + list(range(len(order), y.ndim))).reshape(shape)


def _times(sizes, axes):
    """Sizes of an axis as those of it and more axes inside of it."""
    count = int(np.prod(axes, dtype=np.int64))
    return sizes if count == 1 else _checks.signed(sizes) * count


def _sums(lhs, rhs, sizes, numbers, free, shape, more):
    """The ragged axis is summed: [b.., m.., k..], [b.., k.., n..] to [g, b.., m.., n..]."""
    (lhs_sum, rhs_sum), (lhs_batch, rhs_batch) = numbers.dot_dimension_numbers
    at = list(lhs_sum).index(numbers.lhs_ragged_dimensions[0])
    rhs_free = [i for i in range(rhs.ndim) if i not in (*rhs_batch, *rhs_sum)]
    outer = list(range(at)) if sizes.ndim > 1 else []
    inner = [i for i in range(len(lhs_sum)) if i not in (at, *outer)]
    count = len(lhs_batch) + len(outer)

    def matrices(array, batch, summed, free):
        axes = list(batch) + [summed[i] for i in outer]
        return _merge(array, *[[i] for i in axes], [summed[i] for i in (at, *inner)], free)

    x, dy = matrices(lhs, lhs_batch, lhs_sum, free), matrices(rhs, rhs_batch, rhs_sum, rhs_free)
    sizes = jnp.broadcast_to(sizes, x.shape[:count] + sizes.shape[-1:])
    sizes = _times(sizes, [lhs.shape[lhs_sum[i]] for i in inner])
    if more["group_offset"] is not None:
        raise NotImplementedError("group_offset: None is expected if the ragged axis is summed")
    y = _mapped(lambda x, dy, s: ragged_wgrad(x, dy, s, ("lhs", "rhs", "group_sizes"), **more),
                count)(x, dy, sizes)
    y = y.sum(tuple(range(len(lhs_batch), count)))  # b.., g, m, n
    return jnp.moveaxis(y, len(lhs_batch), 0).reshape(shape)
