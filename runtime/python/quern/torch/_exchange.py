# SPDX-License-Identifier: Apache-2.0
"""Collectives of a process group: rows and their probabilities from rank to rank, forward and
backward, and sums."""

import torch
import torch.distributed as dist


class Ranks:
    """A process group, whose ranks all call the same methods in the same order."""

    def __init__(self, group):
        if not dist.is_available() or not dist.is_initialized():
            raise RuntimeError("torch.distributed has no process group: call "
                               "torch.distributed.init_process_group first")
        self.group = group
        self.ranks, self.rank = dist.get_world_size(group), dist.get_rank(group)

    def wait(self, *works):
        """The current stream, or the CPU, waits for collectives that were started."""
        with self._told():
            for work in works:
                work.wait()

    def sum(self, t):
        """Start to sum t over the ranks, in its memory; returns a work for wait."""
        with self._told():
            return dist.all_reduce(t, group=self.group, async_op=True)

    def gather(self, t):
        """[ranks, ...] of t from each rank."""
        every = [torch.empty_like(t) for _ in range(self.ranks)]
        with self._told():
            dist.all_gather(every, t, group=self.group)
        return torch.stack(every)

    def _told(self):
        return _Told(self)


class Exchange(Ranks):
    """Rows in blocks, one for each rank: block r goes to rank r, and block r of the result is its.
    A block of tokens has `capacity` rows, so that the host needs no count."""

    def __init__(self, group, capacity):
        super().__init__(group)
        self.rows = self.ranks * capacity

    def send(self, t, rows, room=0):
        """Start to exchange the first rows of t, as many for each rank: (received, work). received
        has `room` rows, if that is more; those after the first ones are undefined."""
        received = t.new_empty(max(rows, room), *t.shape[1:])
        with self._told():
            work = dist.all_to_all_single(_bytes(received[:rows]), _bytes(t[:rows]),
                                          group=self.group, async_op=True)
        return received, work


class _Told:
    """Adds a sentence to the errors of collectives."""

    def __init__(self, ranks):
        self.ranks = ranks

    def __enter__(self):
        pass

    def __exit__(self, kind, error, _):
        if kind is not None and issubclass(kind, RuntimeError):
            rank, ranks = self.ranks.rank, self.ranks.ranks
            raise RuntimeError(
                f"rank {rank} of {ranks}: another rank of the group ended, or did not answer "
                f"within the group's timeout; the group cannot be used any more: {error}"
            ) from error


def _bytes(t):
    """The memory of a tensor; collectives do not know every type."""
    return t.contiguous().reshape(-1).view(torch.uint8)


class Flight:
    """One exchange of rows and of probs [rows], or None, and later of their gradients:

        flight = Flight(exchange, room)
        sent = flight.start(rows, probs)
        ...                                  # runs while the rows are sent
        rows, probs = flight.finish(*sent)   # of `room` rows

    In the backward pass finish starts to send the gradients and start waits for them, and
    operations between the two have their backward pass in between, too. meanwhile is called before
    that wait. All ranks send all gradients, even where none is needed. there and back: how many
    rows are sent, and of their gradients; default all blocks of pairs. Tensors have room for both.
    """

    def __init__(self, exchange, room, meanwhile=None, there=0, back=0):
        self.exchange, self.room, self.meanwhile = exchange, room, meanwhile
        self.there, self.back = there or exchange.rows, back or exchange.rows
        self.works = ()

    def start(self, rows, probs=None):
        if torch.is_grad_enabled() and not rows.requires_grad:
            rows = rows.detach().requires_grad_()  # other ranks may need theirs
        return _Start.apply(rows, probs, self)

    def finish(self, rows, probs=None):
        return _Finish.apply(rows, probs, self)

    def send(self, rows, probs, count, room):
        """So many rows and all probs, into memory of `room` rows; probs may be None."""
        sent = [None if t is None else self.exchange.send(t, n, room)
                for t, n in ((rows, count), (probs, self.exchange.rows))]
        self.works = [pair[1] for pair in sent if pair is not None]
        return tuple(None if pair is None else pair[0] for pair in sent)

    def wait(self):
        works, self.works = self.works, ()
        self.exchange.wait(*works)


class _Start(torch.autograd.Function):

    @staticmethod
    def forward(ctx, rows, probs, flight):
        ctx.flight, ctx.rows, ctx.has_probs = flight, rows.shape[0], probs is not None
        return flight.send(rows, probs, flight.there, max(rows.shape[0], flight.room))

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, drows, dprobs):
        if ctx.flight.meanwhile is not None:
            ctx.flight.meanwhile()
        ctx.flight.wait()
        return drows[:ctx.rows], dprobs[:ctx.rows] if ctx.has_probs else None, None


class _Finish(torch.autograd.Function):

    @staticmethod
    def forward(ctx, rows, probs, flight):
        ctx.flight, ctx.rows, ctx.has_probs = flight, rows.shape[0], probs is not None
        flight.wait()
        return rows[:flight.room], None if probs is None else probs[:flight.room]

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, drows, dprobs):
        flight = ctx.flight
        return *flight.send(drows, dprobs if ctx.has_probs else None, flight.back, ctx.rows), None
