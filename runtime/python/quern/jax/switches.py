# SPDX-License-Identifier: Apache-2.0
"""One line that gives others' code quern's products."""

import functools

from jax import lax

from quern.jax.functions import ragged_dot


def replace_ragged_dot(recipe=None, **more):
    """From now on jax.lax.ragged_dot, as MaxText calls it, is quern's with these arguments; jax's
    own serves calls that quern does not: other types, precisions, shardings. Returns a function
    that restores jax's."""
    own = lax.ragged_dot

    @functools.wraps(own)
    def replaced(*args, **kwargs):
        try:
            return ragged_dot(*args, **more, **kwargs, recipe=recipe)
        except NotImplementedError:
            return own(*args, **kwargs)

    def restore():
        lax.ragged_dot = own

    lax.ragged_dot = replaced
    return restore
