# SPDX-License-Identifier: Apache-2.0
"""Backward passes that have no derivatives of their own."""

import functools

import torch


class _Refused(torch.autograd.Function):
    """The first `count` tensors, as functions of all."""

    @staticmethod
    def forward(ctx, count, *tensors):
        return tuple(t.view_as(t) for t in tensors[:count])

    @staticmethod
    def backward(ctx, *_):
        raise RuntimeError("quern: a second derivative is asked for, and there is none: gradients "
                           "of quern's functions have no gradients")


def once_differentiable(backward):
    """A backward pass whose results refuse a second one. torch's decorator of this name
    detaches them from the tensors that they depend on, so that torch.autograd.grad by those finds
    a part of the derivative, and no error."""
    @functools.wraps(backward)
    def run(ctx, *dy):
        with torch.no_grad():
            made = backward(ctx, *dy)
        if not torch.is_grad_enabled():
            return made
        given = [t for t in (*dy, *ctx.saved_tensors) if t is not None and t.requires_grad]
        is_tuple = isinstance(made, tuple)
        made = made if is_tuple else (made,)
        tensors = [t for t in made if t is not None]
        refusing = iter(_Refused.apply(len(tensors), *tensors, *given) if given else tensors)
        made = tuple(None if t is None else next(refusing) for t in made)
        return made if is_tuple else made[0]
    return run
