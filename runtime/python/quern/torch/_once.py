# SPDX-License-Identifier: Apache-2.0
"""Tokens that are sent to a rank once, for all pairs that they have there; results and gradients
of pairs return one by one, so that sums are made at home and in their order.

    x -> to_blocks -> Flight -> copied -> the experts -> returned -> Flight -> added -> y

    slots    int32 [tokens, topk]: the row of each pair in the blocks of pairs, -1 for none
    firsts   int32 [tokens, topk]: the row of the token in the blocks of tokens, at the first of its
             pairs with a rank; -1 at the others
    sources  int64 [rows]: where each received row of pairs has its token
"""

import torch

from quern.torch.layer import combine, permute, route


class _ToBlocks(torch.autograd.Function):

    @staticmethod
    def forward(ctx, x, slots, firsts):
        ctx.save_for_backward(slots)
        return permute(x, firsts)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, drows):
        return combine(drows.contiguous(), *ctx.saved_tensors), None, None


class _Copied(torch.autograd.Function):

    @staticmethod
    def forward(ctx, rows, sources):
        return rows.index_select(0, sources)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, drows):
        return drows, None


class _Returned(torch.autograd.Function):

    @staticmethod
    def forward(ctx, rows, sources):
        ctx.save_for_backward(sources)
        return rows.view_as(rows)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, drows):
        return drows.index_select(0, *ctx.saved_tensors), None


class _Added(torch.autograd.Function):

    @staticmethod
    def forward(ctx, rows, slots, firsts, residual):
        ctx.save_for_backward(firsts)
        return combine(rows, slots, None, residual)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, dy):
        return permute(dy.contiguous(), *ctx.saved_tensors), None, None, \
            dy if ctx.needs_input_grad[3] else None


to_blocks, copied, returned, added = (f.apply for f in (_ToBlocks, _Copied, _Returned, _Added))


def places(to, ranks, capacity):
    """to: the rank of each pair, int32 [tokens, topk], -1 for none. Returns firsts, the position
    of each pair's token in its block, whether it fits there, and the tokens for each rank."""
    is_alike = to[:, :, None] == to[:, None, :]
    first = is_alike.int().argmax(2)  # the first pair with the same rank
    is_first = (to >= 0) & (first == torch.arange(to.shape[1], device=to.device))
    sizes, row = route(to.where(is_first, -1), ranks)
    starts = (sizes.cumsum(0) - sizes)[to.clamp(min=0)]
    place = (row - starts).gather(1, first)
    fits = (to >= 0) & (place < capacity)
    firsts = (to * capacity + place).where(is_first & fits, -1).to(torch.int32)
    return firsts, place, fits, sizes
