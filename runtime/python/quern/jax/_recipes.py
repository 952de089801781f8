# SPDX-License-Identifier: Apache-2.0
"""Facts about a recipe, from the library's tables."""

import functools
import typing

import quern
from quern.jax._call import DTYPES

OF = ("x", "w", "dy")


class Scaling(typing.NamedTuple):
    """How many arrays activations, weights and gradients are (1: values, 2: and scale factors,
    3: and those of the second level; dy 0: the recipe has no gradients)."""
    x: int
    w: int
    dy: int
    is_random: tuple  # whether the rounding of each of them is
    type: typing.Any  # of values that are not scaled
    slots: int  # delayed scaling: largest magnitudes that a history keeps; else 0
    is_wgrad_symmetric: bool  # x and dy are quantized alike: wgrad takes them in any order
    is_packed: bool  # dgrad, too, reads the rowwise tensor of w, whose gradient is of its values

    @property
    def is_plain(self):
        return self[:3] == (1, 1, 1)


@functools.lru_cache(maxsize=None)
def scaling_of(recipe):
    def arrays(operand, table):
        return 1 + (operand + ".sf" in table) + (operand + ".global" in table)

    def like(name):
        return [(o.type, [tuple(getattr(e, f) for f, _ in e._fields_) for e in o.shape])
                for o in wgrad.values() if o.name == name or o.name.startswith(name + ".")]

    if not isinstance(recipe, str):
        raise TypeError(f"recipe is {type(recipe).__name__}: a name such as 'bf16' is expected")
    def described(op):
        try:
            return quern.describe(f"{op} {recipe} g=1 m=128 n=128 k=256")
        except quern.Error:  # a recipe for serving, or with packed weights
            return {}

    fprop = quern.describe(f"fprop {recipe} g=1 m=128 n=128 k=128")
    dgrad, wgrad = described("dgrad"), described("wgrad")
    counts = arrays("a", fprop), arrays("b", fprop), arrays("a", dgrad) if dgrad else 0
    casts = [quern.describe(f"quantize {recipe} of={of} g=1 m=128 k=128") if count > 1 else {}
             for of, count in zip(OF, counts)]
    operands = [fprop["a"], fprop["b"]] + ([dgrad["a"]] if dgrad else [])
    plain = [DTYPES[o.type] for o in operands if o.type in DTYPES]
    slots = [cast["history"].shape[0].base for cast in casts if "history" in cast]
    is_packed = counts[1] > 1 and "b" in dgrad and dgrad["b"].shape[1].base == 256  # fprop's n
    return Scaling(*counts, tuple("random" in cast for cast in casts), plain[0] if plain else None,
                   slots[0] if slots else 0, like("a") == like("b"), is_packed)


@functools.lru_cache(maxsize=None)
def recipe_of(dtype):
    """The recipe that multiplies values of a type directly; None: there is none."""
    for recipe in ("bf16", "fp16"):
        if scaling_of(recipe).type == dtype:
            return recipe
    return None
