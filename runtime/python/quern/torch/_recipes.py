# SPDX-License-Identifier: Apache-2.0
"""Facts about a recipe and a line, from the library's tables."""

import functools
import re

import torch

import quern
from quern import scaling as _scaling
from quern.scaling import Scaling
from quern.torch._ops import DTYPES, WORDS


@torch.compiler.assume_constant_result
def scaling_of(recipe):
    return _find_scaling(recipe)


@_scaling.of_recipe
def _find_scaling(recipe):
    scaling = _scaling.scaling_of(recipe)
    return scaling._replace(type=DTYPES.get(scaling.type))


def check_gradients(recipe, scaling):
    if not scaling.dy:
        raise ValueError(f"recipe {recipe} has no dy: it is for inference, under torch.no_grad()")


def recipe_of(dtype):
    """The recipe that multiplies values of a type directly."""
    return "fp16" if dtype == torch.float16 else "bf16"


@torch.compiler.assume_constant_result
def counterpart(recipe, dtype):
    """The recipe of the same packed weights for tokens of a type; None: there is none."""
    return _scaling.counterpart(recipe, WORDS.get(dtype))


@torch.compiler.assume_constant_result
def have_same_weights(one, other):
    """Whether weights that were packed as one recipe says are those of another one, too."""
    return _scaling.have_same_weights(one, other)


@torch.compiler.assume_constant_result
def read_by(line, phase):
    """The names of the operands that a phase of an MLP reads."""
    return _find_read(line, phase)


@functools.lru_cache(maxsize=None)
def _find_read(line, phase):
    line = re.sub(" interleave=[^ ]*", "", line)  # it need not divide this ffn
    numbers = " g=1 m=128 hidden=128 ffn=128" + " topk=1" * line.startswith("moe")
    return tuple(operand.name.replace(".", "_") for operand in
                 quern.describe(line + numbers).values() if operand.read >> phase & 1)
