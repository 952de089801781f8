# SPDX-License-Identifier: Apache-2.0
"""Facts about a recipe, from the library's tables; quern.torch and quern.jax have the types."""

import functools
import math
import typing

import quern
from quern import _checks

OF = ("x", "w", "dy")
_PLAIN = ("bf16", "f16", "f32")
SENT = ("fp8_row", "fp8_block", "mxfp8")  # recipes whose tokens may be sent as codes and scales
SCALED = 128  # features of a token that are quantized together there, in whole blocks of scales


class Scaling(typing.NamedTuple):
    """How many arrays activations, weights and gradients are (1: values, 2: and scale factors,
    3: and those of the second level; dy 0: the recipe has no gradients)."""
    x: int
    w: int
    dy: int
    is_random: tuple  # whether the rounding of each of them is
    type: typing.Any  # of values that are not scaled; here as lines spell it, or None
    slots: int  # delayed scaling: largest magnitudes that a history keeps; else 0
    is_packed: bool  # dgrad, too, reads the rowwise tensor of w, whose gradient is of its values


def limits_of(limit, slope, shift):
    """The numbers of clamped_swiglu as floats; a limit of infinity is none."""
    number = _checks.number
    limits = number("limit", limit), number("slope", slope), number("shift", shift)
    if limits[0] < 0:
        raise ValueError(f"limit is {limit}: 0 or more is expected")
    return limits


def describe(op, recipe, k=256):
    """The operands of a product; of a recipe without that op none."""
    try:
        return quern.describe(f"{op} {recipe} g=1 m=128 n=128 k={k}")
    except quern.Error:
        return {}


def of_recipe(find):
    """Keep the results of a function of a recipe."""
    kept = functools.lru_cache(maxsize=None)(find)

    @functools.wraps(find)
    def called(recipe):
        if not isinstance(recipe, str):  # which may have no hash
            _checks.recipe(recipe)
        return kept(recipe)

    return called


@of_recipe
def scaling_of(recipe):
    def arrays(operand, table):
        return (operand in table) + (operand + ".sf" in table) + (operand + ".global" in table)

    _checks.recipe(recipe)
    fprop = quern.describe(f"fprop {recipe} g=1 m=128 n=128 k=128")
    dgrad = describe("dgrad", recipe)
    counts = arrays("a", fprop), arrays("b", fprop), arrays("a", dgrad)
    casts = [quern.describe(f"quantize {recipe} of={of} g=1 m=128 k=128") if count > 1 else {}
             for of, count in zip(OF, counts)]
    operands = fprop["a"], fprop["b"], dgrad.get("a")
    plain = [o.type for o in operands if o and o.type in _PLAIN]
    slots = [cast["history"].shape[0].base for cast in casts if "history" in cast]
    is_packed = counts[1] > 1 and "b" in dgrad and dgrad["b"].shape[1].base == 256  # fprop's n
    return Scaling(*counts, tuple("random" in cast for cast in casts), plain[0] if plain else None,
                   slots[0] if slots else 0, is_packed)


def _packed(recipe):
    """The type of tokens next to packed weights, and the types and sizes of these; None: the recipe
    quantizes tokens, packs no weights, or is unknown."""
    try:
        scaling = scaling_of(recipe)
    except quern.Error:
        return None
    if not scaling.is_packed or scaling.x != 1:
        return None
    table = quern.describe(f"fprop {recipe} g=1 m=128 n=384 k=256")
    return scaling.type, [(o.name, o.type, [e.base for e in o.shape]) for o in table.values()
                          if o.name.split(".")[0] == "b"]


@functools.lru_cache(maxsize=None)
def counterpart(recipe, word):
    """The recipe of the same packed weights for tokens of a type, as lines spell it: this one, or
    the one with "_fp16" added to its name, or taken from it. None: there is none."""
    mine = _packed(recipe)
    if mine is None or mine[0] == word:
        return recipe if mine else None
    end = "_fp16"
    other = recipe.removesuffix(end) if recipe.endswith(end) else recipe + end
    return other if _packed(other) == (word, mine[1]) else None


@functools.lru_cache(maxsize=None)
def have_same_weights(one, other):
    """Whether weights that were packed as one recipe says are those of another one, too."""
    if one == other:
        return True
    mine = _packed(one)
    return mine is not None and any(
        counterpart(one, word) == other for word in _PLAIN if word != mine[0])


def sent_features(recipe, dtype, hidden, name, capacity):
    """How many features are quantized as one row of tokens that are sent as codes and scales, in
    blocks of `capacity` tokens, which the argument `name` says. ValueError unless the tokens that
    are dequantized and quantized again have the same codes and scales, and a block's scales end
    with it."""
    if recipe not in SENT:
        raise ValueError(f"dispatch='quantized': recipe is {recipe}: one of {', '.join(SENT)} is "
                         "expected, which quantize dequantized values as before")
    # The scale of fp8_row is the largest value's, which only bfloat16's rounding gives again.
    is_row = recipe == "fp8_row"
    types = ("bfloat16",) if is_row else ("bfloat16", "float32")
    if dtype not in types:
        raise ValueError(f"dispatch='quantized': tokens are {dtype}, which {recipe} would not "
                         f"quantize again as before: {' or '.join(types)} is expected")
    multiple = 16 if is_row else SCALED
    if hidden % multiple:
        raise ValueError(f"dispatch='quantized': hidden is {hidden}: a multiple of {multiple} is "
                         "expected")
    step = 1 if is_row else SCALED**2 // math.gcd(SCALED**2, hidden)
    if capacity % step:
        raise ValueError(f"dispatch='quantized': {name} is {capacity}: a multiple of {step} is "
                         f"expected for hidden = {hidden}")
    return hidden if is_row else SCALED
