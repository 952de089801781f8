# SPDX-License-Identifier: Apache-2.0
"""One line that gives others' code quern's products."""

import functools

import jax.numpy as jnp
from jax import lax

from quern._switch import Switch
from quern.jax import _checks
from quern.jax._call import WORDS
from quern.jax._recipes import counterpart, recipe_of, scaling_of
from quern.jax.functions import ragged_dot

_functions = []  # jax's own, then those that replace it; the last one is on


def _serving(lhs, rhs, out, recipe):
    """The recipe by which quern has products of these types, or None."""
    x, w = _checks.array("lhs", lhs).dtype, _checks.array("rhs", rhs).dtype
    recipe = recipe_of(x) if recipe is None else counterpart(recipe, x) or recipe
    if recipe is None or out is not None and jnp.dtype(out).name not in WORDS:
        return None
    scaling = scaling_of(recipe)
    is_served = all(kind == scaling.type if count == 1 else kind.name in WORDS
                    for kind, count in ((x, scaling.x), (w, scaling.w)))
    return recipe if is_served else None


def replace_ragged_dot(recipe=None, **more):
    """From now on jax.lax.ragged_dot, as MaxText calls it, is quern's with these arguments. jax's
    own serves types that the recipe does not take, such as int8, float8 and mixed ones, and
    precisions other than the default. Returns a Switch: undo() restores the function before it."""
    if not _functions:
        _functions.append(lax.ragged_dot)
    own = _functions[0]

    @functools.wraps(own)
    def replaced(lhs, rhs, group_sizes, precision=None, preferred_element_type=None, *args,
                 **kwargs):
        given = lhs, rhs, group_sizes, precision, preferred_element_type, *args
        serving = _serving(lhs, rhs, preferred_element_type, recipe)
        if serving is not None:
            try:
                return ragged_dot(*given, **more, **kwargs, recipe=serving)
            except NotImplementedError:
                pass
        return own(*given, **kwargs)

    def undo():
        _functions.remove(replaced)
        lax.ragged_dot = _functions[-1]
        if len(_functions) == 1:
            _functions.clear()

    lax.ragged_dot = replaced
    _functions.append(replaced)
    return Switch(undo)
