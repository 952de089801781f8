# SPDX-License-Identifier: Apache-2.0
"""One call's exchanges between the ranks, forward and backward:

    x -> send -> receive -> the experts -> give_back -> add_up -> y

Each is an autograd function, so that operations between the start of an exchange and the wait for
it have their backward pass between those of the gradients. send and give_back return no rows, but a
tensor without elements that keeps their order; rows are in the Trip.
"""

import torch

from quern.torch._autograd import once_differentiable
from quern.torch._ops import WORDS, ops
from quern.torch.layer import move
from quern.torch.quantized import NONE, cast

class Trip:
    """The plan and the buffers of a call, which collectives exchange.

        slots    int32 [tokens, topk]: the row of each pair in the blocks of pairs, -1 for none;
                 all_slots has those of tokens that do not fit, too
        tokens   int32 [tokens, ..]: the rows of each token in the blocks of tokens, where a token
                 is sent to a rank once; None: it is sent for each of its pairs
        homes    int32 [tokens, topk], with tokens: the row of each pair's token in the blocks that
                 the pair's rank receives
        sources  int64 [rows], with tokens: the row of each received pair's token
        index    int32 [rows, 1]: the expert of each received row, from 0 for the first one of this
                 rank; its num_experts: none
        addresses  int64 [rows]: where the results of received rows, and their gradients, are
                 written as they are made; None: send_rows sends them
    """

    addresses = None

    def __init__(self, layer, slots, starts):
        self.layer, self.starts, self.slots, self.all_slots = layer, starts, slots, slots
        self.tokens = self.homes = self.sources = self.index = None
        self.chunk, self.is_apart = 0, False  # is_apart: something runs while rows are sent
        self.rows, self.head, self.works = None, None, ()

    # Each send starts an exchange, and each take waits for the oldest one.

    def send(self, head, x, probs):
        """The head, and x times probs."""
        self.send_head(head)
        self.send_tokens(x, probs, "x")

    def send_head(self, head):
        self.head = self._start(head, self.layer.ranks.ranks)

    def take_head(self):
        self._wait(1)
        head, self.head = self.head, None
        return head

    def send_tokens(self, t, probs, of, results=None):
        """Tokens, x or dy, times probs: values, or codes and scales. Returns dprobs of results that
        were given back."""
        layer, dprobs = self.layer, None
        if results is None:
            blocks = self.to_blocks(t, probs)
        else:
            blocks, dprobs = move(ops.combine_backward, "permute", t, self.slots, probs, results)
        if layer.dispatch == "values":
            self.rows = self._start(blocks, layer.sent_rows)
        else:
            self.rows = [self._start(t, len(t)) for t in self.quantized(blocks, of)]
        return dprobs

    def take_tokens(self, of):
        """The tokens of pairs, as values."""
        self._wait()
        rows = self._take()
        rows = rows if self.layer.dispatch == "values" else self.dequantized(*rows, of)
        return rows if self.sources is None else rows[self.sources]

    def send_rows(self, rows, dprobs=None):
        """Results of received rows, or the gradients of rows and of their probabilities."""
        count, room = self.layer.rows, self.slots.numel()
        self.rows = [None if t is None else self._start(t, count, room)
                     for t in (rows.contiguous(), dprobs)]

    def take_rows(self, is_kept=False):
        """The rows of slots, and dprobs or None. is_kept: they are read after the next exchange,
        too."""
        self._wait()
        return self._take()

    def _start(self, t, rows, room=0):
        """Start to exchange rows; _wait() makes them valid."""
        received, work = self.layer.ranks.swap(t, rows, room)
        self.works += (work,)
        return received

    def _wait(self, count=None):
        """For the oldest exchanges, or all."""
        works, self.works = self.works[:count], self.works[len(self.works[:count]):]
        self.layer.ranks.wait(*works)

    def _take(self):
        """The rows that were received, which the trip no longer keeps."""
        rows, self.rows = self.rows, None
        return rows

    def to_blocks(self, t, probs=None):
        """Tokens in the blocks that are sent."""
        return move(ops.permute, "permute", t,
                    self.slots if self.tokens is None else self.tokens, probs)

    def quantized(self, blocks, of):
        """Codes and scales of the blocks of tokens. `scaled` features of the layer are a row there,
        so that in any storage the scales of a rank's tokens follow each other."""
        layer = self.layer
        rows = blocks if len(blocks) == layer.sent_rows else blocks[:layer.sent_rows]
        codes, scales = cast(rows.view(-1, layer.scaled), of, layer.recipe, layer._scaling,
                             "rowwise", layer._quantized_rows)[0][:2]
        return codes, scales.view(-1)

    def dequantized(self, codes, scales, of):
        layer, count = self.layer, self.layer.scaled
        line = f"dequantize {layer.recipe} of={of} out={WORDS[layer.token_dtype()]} "
        if layer.recipe == "fp8_block":
            scales = scales.view(1, -1)
        return ops.dequantize(line + "copies=rowwise", 1, len(codes) // count, count, codes, scales,
                              *NONE, None, layer._quantized_rows, None).view(layer.sent_rows, -1)


class _Send(torch.autograd.Function):

    @staticmethod
    def forward(ctx, x, probs, trip):
        layer = trip.layer
        ctx.trip, ctx.is_there = trip, layer.prob == "h"
        if layer.prob == "x":
            ctx.save_for_backward(x, probs)
        trip.send(layer.head_of(trip, probs), x, probs if layer.prob == "x" else None)
        return x.new_empty(0)

    @staticmethod
    @once_differentiable
    def backward(ctx, _):
        trip, need = ctx.trip, ctx.needs_input_grad
        x, probs = ctx.saved_tensors or (None, None)
        if trip.layer.overlap_wgrad:
            trip.layer.run_wgrad()
        drows, dprobs = trip.take_rows()
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
        probs = trip.layer.read_head(trip, trip.take_head())
        return trip.take_tokens("x"), probs

    @staticmethod
    @once_differentiable
    def backward(ctx, drows, dprobs):
        ctx.trip.send_rows(drows,
                           dprobs.contiguous() if ctx.trip.layer.prob == "h" else None)
        return ctx.order, None


class _GiveBack(torch.autograd.Function):

    @staticmethod
    def forward(ctx, y, trip):
        ctx.trip = trip
        trip.send_rows(y)
        return y.new_empty(0)

    @staticmethod
    @once_differentiable
    def backward(ctx, _):
        return ctx.trip.take_tokens("dy"), None


class _AddUp(torch.autograd.Function):

    @staticmethod
    def forward(ctx, order, probs, residual, trip):
        ctx.trip, ctx.order = trip, order
        rows, _ = trip.take_rows(is_kept=probs is not None)
        if probs is not None:
            ctx.save_for_backward(rows, probs)
        return move(ops.combine, "combine", rows, trip.slots, probs, residual=residual)

    @staticmethod
    @once_differentiable
    def backward(ctx, dy):
        rows, probs = ctx.saved_tensors or (None, None)
        dprobs = ctx.trip.send_tokens(dy.contiguous(), probs, "dy", rows)
        return ctx.order, dprobs, dy if ctx.needs_input_grad[2] else None, None


def send(x, probs, trip):
    """Start to send the tokens of x and the probabilities."""
    if torch.is_grad_enabled() and not x.requires_grad:
        x = x.detach().requires_grad_()  # other ranks may need theirs
    return _Send.apply(x, probs, trip)


receive, give_back, add_up = _Receive.apply, _GiveBack.apply, _AddUp.apply
