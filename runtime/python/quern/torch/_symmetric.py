# SPDX-License-Identifier: Apache-2.0
"""Exchanges through memory that all ranks of a group map: a rank writes its rows where the other
ranks read them, by its own launches, and a barrier on the device says that they are there."""

import contextlib
import weakref

import torch
import torch.distributed as dist

from quern.torch._ops import ops
from quern.torch._trip import Trip
from quern.torch.layer import move

_ALIGN = 256  # bytes: where a region begins
_MORE = 8  # memory after the last region: this part of the results, only for shapes


class Memory:
    """Bytes on each rank of a group, which all ranks can write. All ranks make it at the same time.

        views   uint8 [count] of each rank
        trips   those whose rows are in it
    """

    def __init__(self, ranks, count, device):
        self.count, self.trips = count, weakref.WeakSet()
        self.views = self.make(ranks, count, device)

    def make(self, ranks, count, device):
        if device.type != "cuda":
            raise ValueError(f"exchange='symmetric': the parameters are on the device {device}, "
                             "whose memory other ranks cannot map: a GPU, or exchange="
                             "'all_to_all' is expected")
        group = ranks.group or dist.group.WORLD
        try:
            options = getattr(group._get_backend(device), "options", None)
            patience = getattr(options, "_timeout", dist.default_pg_timeout)
            self.patience = int(patience.total_seconds() * 1000)
            import torch.distributed._symmetric_memory as symmetric
            # Not by symmetric.empty, whose pool may give another part of a block on each rank.
            self.mine = symmetric._SymmetricMemory.empty_strided_p2p((count,), (1,), torch.uint8,
                                                                     device)
            self.handle = symmetric.rendezvous(self.mine, group)
            return [self.handle.get_buffer(rank, (count,), torch.uint8)
                    for rank in range(ranks.ranks)]
        except (ImportError, AttributeError, RuntimeError) as error:
            raise RuntimeError(
                f"exchange='symmetric': rank {ranks.rank} of {ranks.ranks} cannot map the memory "
                "of the other ranks' GPUs, as GPUs of one host that are linked can: exchange="
                f"'all_to_all' serves all others: {error}") from error

    def barrier(self):
        """On the current stream: all ranks see after it the rows that any rank wrote before. A rank
        that waits for longer than the group's timeout ends with an error of CUDA."""
        self.handle.barrier(0, self.patience)


_kept = weakref.WeakKeyDictionary()  # of a group, {device: Memory}: layers share it


def _memory(ranks, count, device):
    made = _kept.setdefault(ranks.group or dist.group.WORLD, {})
    if device not in made or made[device].count < count:
        made[device] = Memory(ranks, count, device)
    return made[device]


class Peers:
    """The regions of a layer in the memory of each rank, one of each name for each chunk."""

    def __init__(self, layer, device):
        ranks, size = layer.ranks.ranks, layer.token_dtype().itemsize
        width = layer.total + 1 + layer.capacity * ((layer.prob == "h") +
                                                    (layer.token_capacity is not None))
        tokens = layer.sent_rows * layer.hidden
        sent = {"tokens": tokens * size} if layer.dispatch == "values" else \
            {"codes": tokens, "scales": tokens // layer.scaled * 4}
        results = layer.rows * layer.hidden * size
        self.head, self.device, at = width, device, 0
        self.at, sizes = [], {"head": ranks * width * 4, "dprobs": layer.rows * 4, **sent,
                              "results": results}
        for _ in range(layer.chunks):
            self.at.append({})
            for name, count in sizes.items():
                self.at[-1][name] = at
                at += -(-count // _ALIGN) * _ALIGN
        self.memory = _memory(layer.ranks, at + results // _MORE, device)
        self.addresses = [self._addresses(layer, at["results"], size * layer.hidden)
                          for at in self.at]
        self._rows, self._stream = {}, None

    def _addresses(self, layer, first, step):
        """int64 [rows]: the address of the result of each row that this rank receives, in the
        memory of the rank that it is from."""
        blocks = [view.data_ptr() + first + layer.ranks.rank * layer.capacity * step
                  for view in self.memory.views]
        seats = torch.arange(layer.capacity, dtype=torch.int64) * step
        return (torch.tensor(blocks, dtype=torch.int64)[:, None] + seats).view(-1).to(self.device)

    def rows(self, rank, name, chunk, dtype, width, first=0):
        """A region of a rank from a row on, and all memory after it: the caller knows its end."""
        key = rank, name, chunk, dtype, width, first
        if key not in self._rows:
            step = width * dtype.itemsize
            start = self.at[chunk][name] + first * step
            count = (self.memory.count - start) // step
            self._rows[key] = self.memory.views[rank][start:start + count * step].view(
                dtype).view(count, width)
        return self._rows[key]

    def stream(self):
        """For exchanges while something else runs; None on the CPU."""
        if self._stream is None and self.device.type == "cuda":
            self._stream = torch.cuda.Stream(self.device)
        return self._stream


class SymmetricTrip(Trip):
    """A call's exchanges through Peers. Each rank writes the rows that pairs have, and no others.

    A barrier before the tokens of a pass are written says that all ranks have read the rows of
    earlier passes, results too; one after each exchange, that its rows are there.
    """

    def __init__(self, layer, slots, starts):
        super().__init__(layer, slots, starts)
        self.peers, self.memory, self.me = layer.peers, layer.peers.memory, layer.ranks.rank
        self.ranks = [(self.me + i) % layer.ranks.ranks for i in range(1, layer.ranks.ranks + 1)]
        self.is_begun, self.is_there, self.event, self.held = False, False, None, []
        self.maps = None
        self.sent = {}  # type and elements of each rank's block of codes and of scales

    @property
    def addresses(self):
        return self.peers.addresses[self.chunk]

    def _rows(self, rank, name, dtype, width, first=0):
        return self.peers.rows(rank, name, self.chunk, dtype, width, first)

    def _begin(self):
        """Before tokens are written."""
        if self.is_begun:
            return
        for trip in self.memory.trips:
            if trip.layer is not self.layer or trip.chunk == self.chunk:
                raise RuntimeError(
                    "exchange='symmetric': the memory has rows of another layer's call that has "
                    "not ended: call no such layer in `shared`, or give one "
                    "exchange='all_to_all'")
        self.memory.trips.add(self)
        with self._there():
            self.memory.barrier()
        self.is_begun = True

    @contextlib.contextmanager
    def _there(self, *held):
        """Launches in it follow all that came before, on a stream of their own if something else
        runs meanwhile, and read the tensors `held`."""
        stream = self.peers.stream() if self.is_apart else None
        if stream is None:
            yield
            return
        self.held += held
        if self.is_there:
            yield
            return
        stream.wait_stream(torch.cuda.current_stream(self.peers.device))
        self.is_there = True
        try:
            with torch.cuda.stream(stream):
                yield
        finally:
            self.is_there = False

    def _end(self):
        """After the rows of an exchange were written."""
        with self._there():
            self.memory.barrier()
            stream = self.peers.stream() if self.is_apart else None
            self.event = None if stream is None else stream.record_event()
        self.is_begun = False

    def _wait(self, count=None):
        if self.event is not None:
            torch.cuda.current_stream(self.peers.device).wait_event(self.event)
            self.event, self.held = None, []

    def leave(self):
        """Later launches read no rows of this call in the memory."""
        self._wait()
        self.memory.trips.discard(self)

    def send(self, head, x, probs):
        """To be on the other stream once takes the host less time than four times."""
        if self.layer.dispatch != "values":
            super().send(head, x, probs)
            return
        with self._there(head, x, probs):
            super().send(head, x, probs)

    def send_head(self, head):
        self._begin()
        with self._there(head):
            for rank in self.ranks:
                self._rows(rank, "head", torch.float32, self.peers.head)[self.me].copy_(head[rank])

    def take_head(self):
        self._wait()
        ranks = self.layer.ranks.ranks
        return self._rows(self.me, "head", torch.float32, self.peers.head)[:ranks].clone()

    def send_tokens(self, t, probs, of, results=None):
        dprobs = None
        if results is not None:
            dprobs = move(ops.permute_dprob, "permute", t, self.slots, probs, results)
        self._begin()
        if self.layer.dispatch == "values":
            self._put_tokens(t, probs)
        else:
            for name, sent in zip(("codes", "scales"), self.quantized(self.to_blocks(t), of)):
                self._put_blocks(name, sent)
        self._end()
        return dprobs

    def _put_tokens(self, t, probs):
        maps, block = self._maps(), self.layer.sent_rows // self.layer.ranks.ranks
        topk = maps.shape[2]
        with self._there(t, probs, maps):
            for rank in self.ranks:
                to = self._rows(rank, "tokens", t.dtype, t.shape[1], self.me * block)
                each = len(to) // topk  # permute has as many rows as it could write
                for i in range(0, len(t), each):
                    part, at = t[i:i + each], maps[rank, i:i + each]
                    move(ops.permute_, "permute", part, at,
                         None if probs is None else probs[i:i + each], output=to[:at.numel()])

    def _put_blocks(self, name, t):
        """The block of each rank, all of it."""
        t = t.view(self.layer.ranks.ranks, -1)
        self.sent[name] = t.dtype, t.shape[1]
        with self._there(t):
            for rank in self.ranks:
                to = self._rows(rank, name, t.dtype, t.shape[1], self.me)[0]
                to.copy_(t[rank])

    def _maps(self):
        """int32 [ranks, tokens, ..]: rows of each token in the block that a rank receives of this
        one, -1 for none."""
        if self.maps is None:
            layer = self.layer
            if self.tokens is None or not layer.has_all_tokens(len(self.slots)):
                block = layer.sent_rows // layer.ranks.ranks
                at = (self.slots if self.tokens is None else self.tokens) - layer._first_rows
                self.maps = at.masked_fill_(at >= block, -1)
            else:  # a token's row is its number: only ranks that it chose receive it
                to = torch.div(self.slots, layer.capacity, rounding_mode="floor")
                is_sent = (to == layer._numbers).any(2)
                self.maps = torch.where(is_sent, layer._homes[:len(to), 0], -1)[:, :, None]
        return self.maps

    def take_tokens(self, of):
        self._wait()
        layer = self.layer
        if layer.dispatch == "values":
            rows = self._rows(self.me, "tokens", layer.token_dtype(), layer.hidden)
            rows = rows[:layer.sent_rows]
            rows = rows.clone() if self.sources is None else rows[self.sources]
        else:
            codes, scales = (self._rows(self.me, name, *self.sent[name])[:layer.ranks.ranks]
                             for name in ("codes", "scales"))
            rows = self.dequantized(codes.view(-1), scales.view(-1), of)
            rows = rows if self.sources is None else rows[self.sources]
        self.leave()
        return rows

    def send_rows(self, rows, dprobs=None):
        """The layer wrote the rows to their addresses."""
        self.memory.trips.add(self)
        if dprobs is not None:
            self._put_blocks("dprobs", dprobs)
        self._end()

    def take_rows(self, is_kept=False):
        self._wait()
        layer = self.layer
        rows = self._taken("results", layer.token_dtype(), layer.hidden, is_kept)
        dprobs = self._taken("dprobs", torch.float32, 1) if layer.prob == "h" else None
        self.leave()
        return rows, dprobs

    def _taken(self, name, dtype, width, is_kept=False):
        """Rows that came back, with the shape that slots ask for."""
        count, rows = self.slots.numel(), self._rows(self.me, name, dtype, width)
        if len(rows) >= count and not is_kept:
            return rows[:count]
        made = rows.new_empty(max(count, self.layer.rows), width)
        made[:self.layer.rows] = rows[:self.layer.rows]
        return made[:count]
