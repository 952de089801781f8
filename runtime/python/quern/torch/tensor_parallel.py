# SPDX-License-Identifier: Apache-2.0
"""grouped_mm with each expert's weights spread over the ranks of a process group."""

import torch

from quern.torch import _compile
from quern.torch._exchange import Ranks
from quern.torch._recipes import scaling_of
from quern.torch.functions import autocast, grouped_linear


class _Sum(torch.autograd.Function):
    """The sum over ranks, in the memory of t; every rank has the whole gradient."""

    @staticmethod
    def forward(ctx, t, ranks):
        ctx.mark_dirty(t)
        ranks.wait(ranks.sum(t))
        return t

    @staticmethod
    def backward(ctx, dt):
        return dt, None


def _check(name, more, refused):
    for word in refused:
        if more.get(word) is not None:
            raise TypeError(f"{word}: {name} has no such argument")


@_compile.eager_if(lambda *_, **__: "torch.distributed sums the gradient")
def column_parallel_mm(x, w, sizes=None, *, group=None, **more):
    """This rank's columns of grouped_mm: w has some of each expert's rows, so that y does of its
    columns. x [tokens, k] is that of all ranks, and so is its gradient: the sum over the ranks, in
    fp32 and rounded once, which is sent while the gradient of w is computed.

        w      [experts, n here, k]; group: default all ranks
        more   of grouped_mm but dgrad_out, lora and lora_scaling; bias [experts, n here]

    Either all ranks run the backward pass, and x requires a gradient on all, or none.
    """
    _check("column_parallel_mm", more, ("dgrad_out", "lora", "lora_scaling"))
    return grouped_linear(x, w, None, sizes, ranks=Ranks(group), **more)


@_compile.eager_if(lambda *_, **__: "torch.distributed sums the result")
def row_parallel_mm(x, w, sizes=None, *, group=None, out_dtype=None, **more):
    """grouped_mm of features that are spread over the ranks: the sum over the ranks, in fp32 and
    rounded once, which all ranks have.

        x      [tokens, k here]: some of the features, such as the columns of column_parallel_mm
        w      [experts, n, k here]; group: default all ranks
        more   of grouped_mm but bias, prob, out, lora and lora_scaling

    All ranks call it. Gradients need no sum: those of y are the same on all ranks.
    """
    _check("row_parallel_mm", more, ("bias", "prob", "out", "lora", "lora_scaling"))
    ranks = Ranks(group)
    x, w = autocast(scaling_of(more.get("recipe", "bf16")), x, w)
    y = grouped_linear(x, w, None, sizes, out_dtype=torch.float32, **more)
    return _Sum.apply(y, ranks).to(out_dtype or x.dtype)
