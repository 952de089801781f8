# SPDX-License-Identifier: Apache-2.0
"""Facts about a recipe and a line, from the library's tables."""

import functools
import typing

import torch

import quern
from quern.torch._ops import DTYPES

OF = ("x", "w", "dy")


class Scaling(typing.NamedTuple):
    """How many arrays activations, weights and gradients are (1: values, 2: and scale factors,
    3: and those of the second level, 0: the recipe has no gradients), and whether their rounding
    is random."""
    x: int
    w: int
    dy: int
    is_random: tuple
    type: typing.Any  # of values that are not scaled
    slots: int  # delayed scaling: amax values that each history keeps; else 0
    is_packed: bool  # dgrad, too, reads the rowwise tensor of w, which has no gradient


@torch.compiler.assume_constant_result
def scaling_of(recipe):
    return _find_scaling(recipe)


@functools.lru_cache(maxsize=None)
def _find_scaling(recipe):
    def arrays(operand, table):
        return (operand in table) + (operand + ".sf" in table) + (operand + ".global" in table)

    if not isinstance(recipe, str):
        raise TypeError(f"recipe is {type(recipe).__name__}: a name such as 'bf16' is expected")
    fprop = quern.describe(f"fprop {recipe} g=1 m=128 n=128 k=128")
    try:
        dgrad = quern.describe(f"dgrad {recipe} g=1 m=128 n=128 k=256")
    except quern.Error:  # a recipe for serving
        dgrad = {}
    counts = arrays("a", fprop), arrays("b", fprop), arrays("a", dgrad)
    casts = [quern.describe(f"quantize {recipe} of={of} g=1 m=128 k=128") if count > 1 else {}
             for of, count in zip(OF, counts)]
    operands = fprop["a"], fprop["b"], dgrad.get("a")
    plain = [DTYPES[o.type] for o in operands if o and o.type in DTYPES]
    slots = [cast["history"].shape[0].base for cast in casts if "history" in cast]
    is_packed = counts[1] > 1 and "b" in dgrad and dgrad["b"].shape[1].base == 256  # fprop's n
    return Scaling(*counts, tuple("random" in cast for cast in casts), plain[0] if plain else None,
                   slots[0] if slots else 0, is_packed)


@torch.compiler.assume_constant_result
def read_by(line, phase):
    """The names of the operands that a phase of an MLP reads."""
    return _find_read(line, phase)


@functools.lru_cache(maxsize=None)
def _find_read(line, phase):
    numbers = " g=1 m=128 hidden=128 ffn=128" + " topk=1" * line.startswith("moe")
    return tuple(operand.name.replace(".", "_") for operand in
                 quern.describe(line + numbers).values() if operand.read >> phase & 1)
