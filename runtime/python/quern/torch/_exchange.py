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
        """The current stream, or the CPU, waits for what was started."""
        with self._told():
            for work in works:
                work.wait()

    def sum(self, t):
        """Start to sum t over the ranks, in its place: what to wait for."""
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
                f"rank {rank} of {ranks}: another rank of the group ended, or did not answer within "
                f"the group's timeout; the group cannot be used any more: {error}") from error


def _bytes(t):
    """The memory of a tensor; collectives do not know every type."""
    return t.contiguous().reshape(-1).view(torch.uint8)


class Sent(torch.autograd.Function):
    """The exchange of rows [room, features] and of probs [room], or None; the gradients return.

    meanwhile is called in the backward pass while the gradients of rows are sent. All ranks send
    all gradients, whichever of them need one.
    """

    @staticmethod
    def forward(ctx, rows, probs, exchange, room, meanwhile):
        ctx.exchange, ctx.room, ctx.meanwhile = exchange, rows.shape[0], meanwhile
        received, *works = exchange.send(rows, exchange.rows, room)
        if probs is None:
            exchange.wait(*works)
            ctx.has_probs = False
            return received, None
        ctx.has_probs = True
        received_probs, work = exchange.send(probs, exchange.rows, room)
        exchange.wait(*works, work)
        return received, received_probs

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, drows, dprobs):
        exchange = ctx.exchange
        sent, *works = exchange.send(drows, exchange.rows, ctx.room)
        sent_probs = None
        if ctx.has_probs:
            sent_probs, work = exchange.send(dprobs, exchange.rows, ctx.room)
            works.append(work)
        if ctx.meanwhile is not None:
            ctx.meanwhile()
        exchange.wait(*works)
        return sent, sent_probs, None, None, None
