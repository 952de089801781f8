# SPDX-License-Identifier: Apache-2.0
"""The state of delayed scaling, which goes into a call, and comes out of it as a gradient."""

import typing

import jax
import jax.numpy as jnp

from quern.jax import _checks
from quern.jax._call import axes_of, call, vary_alike
from quern.jax._recipes import scaling_of
from quern.scaling import OF

KINDS = {3: (0, 1, 2), 6: (0, 0, 1, 1, 2, 2)}  # which of x, w, dy each tensor is


class ScalingState(typing.NamedTuple):
    """Delayed scaling of one tensor: scale f32 [2], its factor and the inverse, and history
    f32 [slots], largest magnitudes of earlier steps, in slot 0 those of this one. A linear
    layer has three, [3, ..]: x, w and dy; an MLP six, [6, ..]: x, h, w1, w2, dy and dpre."""
    scale: typing.Any
    history: typing.Any


def scaling_state(recipe, tensors=None):
    """The state at first: of one tensor, of 3 for ragged_dot and grouped_dense, or of 6 for
    grouped_mlp and moe."""
    slots = scaling_of(recipe).slots
    if not slots:
        raise ValueError(f"recipe {recipe} has no delayed scaling, and no state")
    if tensors not in (None, *KINDS):
        raise ValueError(f"tensors is {tensors}: None, 3 or 6 is expected")
    shape = () if tensors is None else (tensors,)
    return ScalingState(jnp.ones((*shape, 2), jnp.float32),
                        jnp.zeros((*shape, slots), jnp.float32))


def rescale(state, recipe, *, of=None):
    """The state of the next step: each scale follows from its history, which then goes on by a
    slot. Once for each step, before its first call. of: "x", "w" or "dy", of the state of one
    tensor."""
    state = _pair(state)
    slots = scaling_of(recipe).slots
    if not slots:
        raise ValueError(f"recipe {recipe} has no delayed scaling, and no state")
    count = None if _checks.array("state.scale", state.scale).ndim == 1 else state.scale.shape[0]
    if count is None:
        _checks.word("of", of, OF)
        return _rescale(recipe, of, check_state(recipe, state, None))
    if count not in KINDS or of is not None:
        raise ValueError(f"state is of {count} tensors, and of is {of!r}: 3 or 6 tensors and None "
                         "are expected, or one tensor")
    state = check_state(recipe, state, count)
    made = [_rescale(recipe, OF[kind], ScalingState(state.scale[i], state.history[i]))
            for i, kind in enumerate(KINDS[count])]
    return jax.tree.map(lambda *a: jnp.stack(a), *made)


def _rescale(recipe, of, state):
    made = call(f"rescale {recipe} of={of}", 0, state._asdict(), ("scale", "history"))
    return ScalingState(made["scale"], made["history"])


def _pair(state):
    if not isinstance(state, (list, tuple)) or len(state) != 2:
        raise TypeError("state: a ScalingState, (scale, history), is expected")
    return ScalingState(*state)


def check_state(recipe, state, tensors):
    """The state that a recipe needs for so many tensors; None: it needs none."""
    slots = scaling_of(recipe).slots
    if not slots:
        if state is not None:
            raise ValueError(f"state: recipe {recipe} has no delayed scaling")
        return None
    if state is None:
        of = "" if tensors is None else f", {tensors}"
        raise ValueError(f"state: recipe {recipe} has delayed scaling: quern.jax.scaling_state("
                         f"{recipe!r}{of}), or the state of a step before, is expected")
    state = _pair(state)
    shape = () if tensors is None else (tensors,)
    scale = _checks.shaped("state.scale", state[0], (*shape, 2))
    history = _checks.shaped("state.history", state[1], (*shape, slots))
    for name, a in (("scale", scale), ("history", history)):
        if a.dtype != jnp.float32:
            raise TypeError(f"state.{name} is {a.dtype}: float32 is expected")
    return ScalingState(scale, history)


def vary_with(state, *arrays):
    """Pytrees of arrays and the state, varying over the same axes of shard_map. Those of the state
    are not extended: its gradient would be a sum over them."""
    missing = axes_of(*jax.tree.leaves(arrays)) - axes_of(*state or ())
    if state is not None and missing:
        raise ValueError(f"state does not vary over {', '.join(sorted(map(str, missing)))}, as "
                         "other operands do: each device needs a state of its own")
    return vary_alike((*arrays, state))


def no_state(recipe):
    if scaling_of(recipe).slots:
        raise NotImplementedError(f"recipe {recipe} has delayed scaling, whose state ragged_dot, "
                                  "grouped_dense, grouped_mlp, moe and grouped_quantize take")


def put(history, made):
    """The history with the slots of some tensors, {index: slots or None}."""
    for i, slots in made.items():
        if slots is not None:
            history = history.at[i].set(slots)
    return history
