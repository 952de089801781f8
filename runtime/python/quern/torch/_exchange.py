# SPDX-License-Identifier: Apache-2.0
"""Collectives of a process group."""

import torch
import torch.distributed as dist

_SENTENCE = 512  # the most bytes of one

class Ranks:
    """A process group, whose ranks all call the same methods in the same order."""

    def __init__(self, group):
        if not dist.is_available() or not dist.is_initialized():
            raise RuntimeError("torch.distributed has no process group: call "
                               "torch.distributed.init_process_group first")
        self.group = group
        self.ranks, self.rank = dist.get_world_size(group), dist.get_rank(group)
        self._told = _Told(self)

    def wait(self, *works):
        """The current stream, or the CPU, waits for collectives that were started."""
        with self._told:
            for work in works:
                work.wait()

    def sum(self, t):
        """Start to sum t over the ranks, in its memory; returns a work for wait."""
        with self._told:
            return dist.all_reduce(t, group=self.group, async_op=True)

    def swap(self, t, rows, room=0):
        """Start to exchange the first rows of t in blocks of as many for each rank: block r goes to
        rank r, and block r of the result is its. Returns (received, work). received has `room`
        rows, if that is more; those after the first ones are undefined."""
        received = t.new_empty(max(rows, room), *t.shape[1:])
        with self._told:
            work = dist.all_to_all_single(_known(received, rows), _known(t, rows),
                                          group=self.group, async_op=True)
        return received, work

    def gather(self, t):
        """[ranks, ...] of t from each rank."""
        every = [torch.empty_like(t) for _ in range(self.ranks)]
        with self._told:
            dist.all_gather(every, t, group=self.group)
        return torch.stack(every)

    def sentences(self, text, device):
        """A sentence, or "", of each rank."""
        code = text.encode()[:_SENTENCE]
        mine = torch.tensor(list(code.ljust(_SENTENCE, b"\0")), dtype=torch.uint8, device=device)
        return [bytes(row).rstrip(b"\0").decode(errors="replace")
                for row in self.gather(mine).tolist()]


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


def _known(t, rows):
    """The first rows of a contiguous tensor, as a type that collectives know: gloo lacks some."""
    t = t if len(t) == rows else t[:rows]
    return t if t.is_cuda else t.view(torch.uint8)
