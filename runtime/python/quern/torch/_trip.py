# SPDX-License-Identifier: Apache-2.0
"""One call's exchanges between the ranks, forward and backward:

    x -> send -> receive -> the experts -> give_back -> add_up -> y

Each is an autograd function, so that operations between the start of an exchange and the wait for
it have their backward pass between those of the gradients. send and give_back return no rows, but a
tensor without elements that keeps their order; rows are in the Trip.
"""

import torch

from quern.torch._ops import WORDS, ops
from quern.torch.layer import move
from quern.torch.quantized import NONE, cast

SCALED = 128  # features that are quantized together, in whole blocks of scales


class Trip:
    """The plan and the buffers of a call.

        slots    int32 [tokens, topk]: the row of each pair in the blocks of pairs, -1 for none;
                 all_slots has those of tokens that do not fit, too
        tokens   int32 [tokens, ..]: the rows of each token in the blocks of tokens, where a token
                 is sent to a rank once; None: it is sent for each of its pairs
        homes    int32 [tokens, topk], with tokens: the row of each pair's token in the blocks that
                 the pair's rank receives
        sources  int64 [rows], with tokens: the row of each received pair's token
    """

    def __init__(self, layer, slots, starts):
        self.layer, self.starts, self.slots, self.all_slots = layer, starts, slots, slots
        self.tokens = self.homes = self.sources = self.index = None
        self.rows, self.head, self.works = None, None, ()

    def start(self, t, rows, room=0):
        """Start to exchange rows; wait() makes them valid."""
        received, work = self.layer.ranks.swap(t, rows, room)
        self.works += (work,)
        return received

    def wait(self, count=None):
        """For the oldest exchanges, or all."""
        works, self.works = self.works[:count], self.works[len(self.works[:count]):]
        self.layer.ranks.wait(*works)

    def take(self):
        """The rows that were received, which the trip no longer keeps."""
        rows, self.rows = self.rows, None
        return rows

    def to_blocks(self, t, probs=None):
        """Tokens in the blocks that are sent."""
        return move(ops.permute, "permute", t,
                    self.slots if self.tokens is None else self.tokens, probs)

    def start_tokens(self, blocks, of):
        """Start to exchange tokens, x or dy: values, or codes and scales. SCALED features are a row
        there, so that in any storage the scales of a rank's tokens follow each other."""
        layer = self.layer
        if layer.dispatch == "values":
            self.rows = self.start(blocks, layer.sent_rows)
            return
        rows = blocks if len(blocks) == layer.sent_rows else blocks[:layer.sent_rows]
        codes, scales = cast(rows.view(-1, SCALED), of, layer.recipe, layer._scaling, "rowwise",
                             layer._quantized_rows)[0][:2]
        scales = scales.view(-1)
        self.rows = self.start(codes, len(codes)), self.start(scales, len(scales))

    def take_tokens(self, of):
        """The tokens of pairs, or of blocks, as values."""
        layer, rows = self.layer, self.take()
        if layer.dispatch == "quantized":
            codes, scales = rows
            line = f"dequantize {layer.recipe} of={of} out={WORDS[layer.token_dtype()]} "
            rows = ops.dequantize(
                line + "copies=rowwise", 1, len(codes) // SCALED, SCALED, codes,
                scales.view(1, -1) if scales.dtype == torch.float32 else scales, *NONE, None,
                layer._quantized_rows, None).view(layer.sent_rows, -1)
        return rows if self.sources is None else rows[self.sources]


class _Send(torch.autograd.Function):

    @staticmethod
    def forward(ctx, x, probs, trip):
        layer = trip.layer
        ctx.trip, ctx.is_there = trip, layer.prob == "h"
        if layer.prob == "x":
            ctx.save_for_backward(x, probs)
        trip.head = trip.start(layer.head_of(trip, probs), layer.ranks.ranks)
        blocks = trip.to_blocks(x, probs if layer.prob == "x" else None)
        trip.start_tokens(blocks, "x")
        return x.new_empty(0)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, _):
        trip, need = ctx.trip, ctx.needs_input_grad
        x, probs = ctx.saved_tensors or (None, None)
        if trip.layer.overlap_wgrad:
            trip.layer.run_wgrad()
        trip.wait()
        drows, dprobs = trip.take()
        dx = move(ops.combine, "combine", drows, trip.slots, probs) if need[0] else None
        if not need[1]:
            dprobs = None
        elif ctx.is_there:
            dprobs = move(ops.combine, "combine", dprobs.view(-1, 1), trip.slots.view(-1, 1))
            dprobs = dprobs.view(trip.slots.shape)
        elif probs is not None:
            dprobs = move(ops.permute_dprob, "permute", x, trip.slots, probs, drows)
        return dx, dprobs, None


class _Receive(torch.autograd.Function):
    """The rows of the experts' pairs, and their probabilities if prob is "h"."""

    @staticmethod
    def forward(ctx, order, trip):
        ctx.trip, ctx.order = trip, order
        trip.wait(1)
        probs = trip.layer.read_head(trip)
        trip.wait()
        return trip.take_tokens("x"), probs

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, drows, dprobs):
        trip, count, room = ctx.trip, ctx.trip.layer.rows, ctx.trip.slots.numel()
        trip.rows = trip.start(drows.contiguous(), count, room), \
            trip.start(dprobs.contiguous(), count, room) if trip.layer.prob == "h" else None
        return ctx.order, None


class _GiveBack(torch.autograd.Function):

    @staticmethod
    def forward(ctx, y, trip):
        ctx.trip = trip
        trip.rows = trip.start(y, trip.layer.rows, trip.slots.numel())
        return y.new_empty(0)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, _):
        ctx.trip.wait()
        return ctx.trip.take_tokens("dy"), None


class _AddUp(torch.autograd.Function):

    @staticmethod
    def forward(ctx, order, probs, residual, trip):
        ctx.trip, ctx.order = trip, order
        trip.wait()
        rows = trip.take()
        if probs is not None:
            ctx.save_for_backward(rows, probs)
        return move(ops.combine, "combine", rows, trip.slots, probs, residual=residual)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, dy):
        trip, dprobs, d = ctx.trip, None, dy.contiguous()
        if ctx.saved_tensors:
            rows, probs = ctx.saved_tensors
            drows, dprobs = move(ops.combine_backward, "permute", d, trip.slots, probs, rows)
        else:
            drows = trip.to_blocks(d)
        trip.start_tokens(drows, "dy")
        return ctx.order, dprobs, dy if ctx.needs_input_grad[2] else None, None


def send(x, probs, trip):
    """Start to send the tokens of x and the probabilities."""
    if torch.is_grad_enabled() and not x.requires_grad:
        x = x.detach().requires_grad_()  # other ranks may need theirs
    return _Send.apply(x, probs, trip)


receive, give_back, add_up = _Receive.apply, _GiveBack.apply, _AddUp.apply
