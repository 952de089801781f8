# SPDX-License-Identifier: Apache-2.0
"""Facts about a recipe, from the library's tables."""

import functools
import typing

from quern import scaling as _scaling
from quern.jax._call import DTYPES


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


@functools.lru_cache(maxsize=None)
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
    """The recipe that is given, that of a Quantized, or the one that multiplies x directly."""
    if recipe is None:
        recipe = recipe_of(x.dtype) if quantized is None else quantized.recipe
    if recipe is None:
        raise NotImplementedError(f"{name} is {x.dtype}: quern multiplies bfloat16 and float16 "
                                  "directly; others need a recipe")
    return recipe


@functools.lru_cache(maxsize=None)
def recipe_of(dtype):
    """The recipe that multiplies values of a type directly; None: there is none."""
    for recipe in ("bf16", "fp16"):
        if scaling_of(recipe).type == dtype:
            return recipe
    return None
