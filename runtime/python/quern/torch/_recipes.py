# SPDX-License-Identifier: Apache-2.0
"""Facts about a recipe and a line, from the library's tables."""

import functools
import re

import torch

import quern
from quern.scaling import Scaling
from quern.scaling import scaling_of as _scaling_of
from quern.torch._ops import DTYPES


@torch.compiler.assume_constant_result
def scaling_of(recipe):
    return _find_scaling(recipe)


@functools.lru_cache(maxsize=None)
def _find_scaling(recipe):
    scaling = _scaling_of(recipe)
    return scaling._replace(type=DTYPES.get(scaling.type))


def recipe_of(dtype):
    """The recipe that multiplies values of a type directly."""
    return "fp16" if dtype == torch.float16 else "bf16"


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
