# SPDX-License-Identifier: Apache-2.0
"""A configuration that torch.compile cannot trace runs in eager mode, after one warning."""

import functools
import warnings

import torch

_said = set()


@torch.compiler.assume_constant_result
def warn_once(sentence, stacklevel=3):
    """Warn, the first time that this sentence occurs in the process. Returns None."""
    if sentence not in _said:
        _said.add(sentence)
        warnings.warn(sentence, stacklevel=stacklevel)


@torch.compiler.disable
def in_eager(reason, function, *args, **more):
    """Call a function outside the compiled graph, which breaks there."""
    warn_once(f"quern.torch runs in eager mode here: {reason}")
    return function(*args, **more)


def eager_if(why):
    """Call a function in eager mode while torch.compile traces it, if why(*its arguments) has a
    reason; None: it is traced."""
    def decorate(function):
        @functools.wraps(function)
        def called(*args, **more):
            if torch.compiler.is_compiling():
                reason = why(*args, **more)
                if reason is not None:
                    return in_eager(reason, function, *args, **more)
            return function(*args, **more)

        return called

    return decorate


def why_eager(like, sizes, offs, *, queue=None, addresses=None, **_):
    """Why a call cannot be traced; None: it can."""
    given = offs if sizes is None else sizes
    if queue is not None:
        return "a queue of weight gradients is filled while the host runs"
    if isinstance(given, (list, tuple)):
        return "the sizes are a list; a tensor on the device can be compiled"
    if (isinstance(given, torch.Tensor) and given.device.type == "cpu"
            and like.device.type != "cpu"):
        return "the sizes are in host memory; a tensor on the device can be compiled"
    if addresses is not None:
        return "the experts' gradients are separate, and their addresses are no part of a graph"
    return None
