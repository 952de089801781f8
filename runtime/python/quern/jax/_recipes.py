# SPDX-License-Identifier: Apache-2.0
"""Facts about a recipe, from the library's tables."""

import functools
import typing

from quern import scaling as _scaling
from quern.jax._call import DTYPES, WORDS


class Scaling(typing.NamedTuple):
    """quern.scaling.Scaling, and one fact more."""
    x: int
    w: int
    dy: int
    is_random: tuple
    type: typing.Any
    slots: int
    is_packed: bool
    is_wgrad_symmetric: bool  # x and dy are quantized alike: wgrad takes them in any order

    @property
    def is_plain(self):
        return self[:3] == (1, 1, 1)


@_scaling.of_recipe
def scaling_of(recipe):
    def like(name):
        return [(o.type, [tuple(getattr(e, f) for f, _ in e._fields_) for e in o.shape])
                for o in wgrad.values() if o.name == name or o.name.startswith(name + ".")]

    found = _scaling.scaling_of(recipe)
    wgrad = _scaling.describe("wgrad", recipe)
    return Scaling(*found._replace(type=DTYPES.get(found.type)), like("a") == like("b"))


def check_gradients(recipe, scaling):
    if not scaling.dy:
        raise ValueError(f"recipe {recipe} has no dy: it is for inference")


def recipe_for(name, x, recipe, quantized=None):
    """The recipe that is given, that of a Quantized for x's type, or the one that multiplies x
    directly."""
    if recipe is None:
        recipe = recipe_of(x.dtype) if quantized is None else \
            counterpart(quantized.recipe, x.dtype) or quantized.recipe
    if recipe is None:
        raise NotImplementedError(f"{name} is {x.dtype}: quern multiplies bfloat16 and float16 "
                                  "directly; others need a recipe")
    return recipe


def counterpart(recipe, dtype):
    """The recipe of the same packed weights for tokens of a type; None: there is none."""
    return _scaling.counterpart(recipe, WORDS.get(dtype.name))


def check_tokens(name, x, recipe, scaling):
    """x has a type that the recipe multiplies; the error names a recipe of the same weights for x."""
    if scaling.x != 1 or x.dtype == scaling.type:
        return
    other = counterpart(recipe, x.dtype)
    raise TypeError(f"{name} is {x.dtype}: {scaling.type} is expected" +
                    (f"; recipe {other} has the same weights next to {x.dtype}" if other else ""))


@functools.lru_cache(maxsize=None)
def recipe_of(dtype):
    """The recipe that multiplies values of a type directly; None: there is none."""
    for recipe in ("bf16", "fp16"):
        if scaling_of(recipe).type == dtype:
            return recipe
    return None
