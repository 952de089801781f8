# SPDX-License-Identifier: Apache-2.0
"""ExpertParallelMoE: a layer whose experts are spread over the ranks of a process group."""

import zlib

import torch
import torch.nn.functional as F

from quern.torch import _checks, _compile
from quern.torch._exchange import Exchange, Flight
from quern.torch._module import default_device
from quern.torch._once import added, copied, places, returned, to_blocks
from quern.torch.functions import autocast, f32
from quern.torch.layer import check_indices, combine, move_each, permute, route
from quern.torch.mlp import Route
from quern.torch.modules import GroupedMLP

_HEAD = 4  # integers before the indices that a rank sends to another: its error, see _head
_TOO_MANY, _TOO_MANY_TOKENS, _TOO_LARGE = 1, 2, 3


def _padded(t, more, value=0):
    """With so many more tokens."""
    return t if t is None or not more else F.pad(t, (0, 0, 0, more), value=value)


class ExpertParallelMoE(GroupedMLP):
    """quern.torch.moe with some of the experts on each rank of a process group.

        num_experts   those of this rank, from 1, any number on each: the first rank has the first
        hidden, ffn   of each expert
        capacity      pairs of a token and an expert that a rank may send to another in one call. A
                      rank sends and receives ranks * capacity rows, however many are used
        token_capacity  tokens that a rank may send to another in one call, at most capacity: each
                      is sent once to a rank, for all experts that it chose there. Only with
                      prob="h"; default None: it is sent for each pair
        group         default all ranks. Every rank makes the module at the same time
        prob          "x", "h" or "y", as in moe
        overlap_wgrad compute the weight gradients while the gradients of tokens are sent
        options       of GroupedMLP but outside

    For any number of ranks y and the gradients of x and probs have the bits of moe on one of them,
    if the recipe scales each token by itself, and so have each expert's weight gradients, if the
    tokens of the ranks, one after the other, are those of one.

    Forward and backward pass: as often and in the same order on all ranks, with x of one type. A
    rank may have no tokens. A rank that ends or is late is a RuntimeError on the others, after the
    group's timeout at the latest.
    """

    def __init__(self, num_experts, hidden, ffn, *, capacity, token_capacity=None, group=None,
                 prob="h", overlap_wgrad=False, **options):
        if type(capacity) is not int or capacity < 1:
            raise ValueError(f"capacity is {capacity!r}: a number from 1 is expected")
        if token_capacity is not None and (type(token_capacity) is not int or
                                           not 1 <= token_capacity <= capacity):
            raise ValueError(f"token_capacity is {token_capacity!r}: None, or 1 to capacity = "
                             f"{capacity} is expected")
        if prob not in ("x", "h", "y"):
            raise ValueError(f"prob is {prob!r}: 'x', 'h' or 'y' is expected")
        if token_capacity is not None and prob != "h":
            raise ValueError(f"token_capacity: prob is {prob!r}, which makes a token's pairs "
                             "differ: 'h' is expected")
        if "outside" in options:
            raise TypeError("outside: ExpertParallelMoE sorts the rows itself")
        exchange = Exchange(group, capacity)
        if overlap_wgrad:
            if options.get("delay_wgrad_compute"):
                raise ValueError("overlap_wgrad: the weight gradients cannot also wait for "
                                 "backward_dw(), which delay_wgrad_compute says")
            options["delay_wgrad_compute"] = True
        super().__init__(num_experts, hidden, ffn, **options)
        self.capacity, self.group, self.prob = capacity, group, prob
        self.overlap_wgrad, self.token_capacity = overlap_wgrad, token_capacity
        self._exchange = exchange
        device = default_device(None) if self.w1.is_meta else self.w1.device
        counts = self._agree(device)
        self.first, self.total = sum(counts[:self._exchange.rank]), sum(counts)
        self.register_buffer("_ends", torch.tensor(counts, device=device).cumsum(0),
                             persistent=False)
        self.register_buffer("_errors", torch.zeros(len(counts), _HEAD, dtype=torch.int32,
                                                    device=device), persistent=False)

    def __getstate__(self):
        raise TypeError("the process group is of this process: an ExpertParallelMoE cannot be "
                        "copied or pickled; its state_dict() can")

    def _agree(self, device):
        """The number of experts of each rank. ValueError if the ranks differ in something else."""
        mine = {name: getattr(self, name) for name in (
            "num_experts", "hidden", "ffn", "capacity", "token_capacity", "recipe", "activation",
            "interleave", "limits", "prob")}
        mine.update(params_dtype=self.w1.dtype, bias=hasattr(self, "b1"))
        numbers = [value if type(value) is int else zlib.crc32(repr(value).encode())
                   for value in mine.values()]
        every = self._exchange.gather(torch.tensor(numbers, device=device)).tolist()
        for rank, theirs in enumerate(every):
            for name, one, other in zip(mine, every[0], theirs):
                if one != other and name != "num_experts":
                    raise ValueError(f"{name} of rank {rank} is not that of rank 0: on rank "
                                     f"{self._exchange.rank} it is {mine[name]!r}")
        return [numbers[0] for numbers in every]

    # ------------------------------------------------------------------------------------ forward

    def forward(self, x, indices, probs, *, residual=None, shared=None, is_first_microbatch=None):
        """y, shaped as x [tokens, hidden] or [.., hidden]: the sum over a token's choices.

            indices   [tokens, topk] int32 or int64, below `total`: the expert of each pair. A pair
                      whose index is below 0 or `total` itself is dropped
            probs     [tokens, topk] of any float type
            residual  as x: added to the sum
            shared    a function of x whose result is a residual, such as the expert of all tokens:
                      called while the tokens are sent, and so is its backward pass
            is_first_microbatch  of GroupedLinear.forward

        A pair or token that exceeds its capacity, or an index above `total`, is a RuntimeError on
        all ranks. On a GPU such pairs are left out, and check() raises the error.
        """
        if torch.compiler.is_compiling():
            return _compile.in_eager("torch.distributed exchanges the tokens", self.forward, x,
                                     indices, probs, residual=residual,
                                     shared=shared, is_first_microbatch=is_first_microbatch)
        if shared is not None and residual is not None:
            raise ValueError("residual, shared: at most one of them is expected")
        flat, probs = self._checked(x, indices, probs)
        tokens, topk = indices.shape
        # permute and combine have a row for each pair: here it is a row of the blocks.
        more = max(-(-self._exchange.rows // topk) - tokens, 0)
        flat, probs = _padded(flat, more), _padded(probs, more)
        residual = self._residual(x, residual, more)
        slots, index, firsts, sources = self._send_indices(_padded(indices, more, -1))
        is_once, at_home = firsts is not None, probs if self.prob != "h" else None
        rows = to_blocks(flat, slots, firsts) if is_once else \
            permute(flat, slots, at_home if self.prob == "x" else None)
        exchange, few = self._exchange, self._exchange.ranks * (self.token_capacity or 0)
        there = Flight(exchange, exchange.rows, self._overlapped if self.overlap_wgrad else None,
                       there=few)
        sent = there.start(rows, move_each(probs, slots) if at_home is None else None)
        if shared is not None:
            residual = self._residual(x, shared(x), more)
        rows, sent = there.finish(*sent)
        y = self._experts(copied(rows, sources) if is_once else rows, sent, index,
                          is_first_microbatch)
        back = Flight(exchange, slots.numel(), back=few)
        y, _ = back.finish(*back.start(returned(y, sources) if is_once else y))
        y = added(y, slots, firsts, residual) if is_once else \
            combine(y, slots, at_home if self.prob == "y" else None, residual)
        return y[:tokens].reshape(x.shape)

    def _checked(self, x, indices, probs):
        """x [tokens, hidden], and probs in fp32."""
        is_autocast = isinstance(x, torch.Tensor) and torch.is_autocast_enabled(x.device.type)
        x, = autocast(self._scaling, x)
        _checks.values("x", x, max(x.dim(), 2) if isinstance(x, torch.Tensor) else 2)
        if is_autocast:
            x = x.to(self._dtype())
        _checks.values("x", x, x.dim(), self._dtype())
        _checks.on_device("x", x, self.w1)
        if x.shape[-1] != self.hidden:
            raise ValueError(f"x has the shape {list(x.shape)}: its last axis is expected to have "
                             f"hidden = {self.hidden} elements")
        check_indices(indices)
        _checks.shaped("indices", indices, (x.shape[:-1].numel(), indices.shape[1]), x)
        return x.reshape(-1, self.hidden), f32("probs", probs, tuple(indices.shape), x)

    def _residual(self, x, residual, more):
        """[tokens, hidden], with so many more tokens."""
        if residual is None:
            return None
        _checks.shaped("residual", residual, x.shape, x)
        _checks.values("residual", residual, x.dim(), self._dtype())
        return _padded(residual.reshape(-1, self.hidden), more)

    def _dtype(self):
        """The type of tokens that are sent."""
        return self._scaling.type or self.w1.dtype

    def _experts(self, rows, probs, index, is_first_microbatch):
        """This rank's experts: a result for each row that was received."""
        words = f" prob={'none' if probs is None else 'h'} first={self.first} experts={self.total}"
        return self._run(rows, None if probs is None else probs[:, None], is_first_microbatch,
                         route=Route(index[:, None], None, words))

    def _overlapped(self):
        if len(self._later):  # no, if weights are frozen
            self.backward_dw()

    def need_backward_dw(self):
        return super().need_backward_dw() and not self.overlap_wgrad

    # --------------------------------------------------------------------- which pair goes where

    def _send_indices(self, indices):
        """slots of pairs [tokens, topk], and the expert of each row that is received, -1 for none;
        with token_capacity firsts and sources, else None twice (_once.py)."""
        exchange, capacity, tokens = self._exchange, self.capacity, self.token_capacity
        is_pair = (indices >= 0) & (indices < self.total)
        to = torch.bucketize(indices, self._ends, right=True).to(torch.int32)
        to = to.where(is_pair, -1)
        sizes, row = route(to, exchange.ranks)
        starts = (sizes.cumsum(0) - sizes)[to.clamp(min=0)]
        place = row - starts
        fits = is_pair & (place < capacity)
        heads, firsts, sent = [(_TOO_MANY, sizes, is_pair & ~fits)], None, [indices]
        if tokens is not None:
            firsts, source, has_room, many = places(to, exchange.ranks, tokens)
            heads.append((_TOO_MANY_TOKENS, many, is_pair & ~has_room))
            fits &= has_room
            sent.append(source)
        slots = (to * capacity + place).where(fits, -1).to(torch.int32)
        to_slots = slots.where(fits, exchange.rows).reshape(-1).long()
        blocks = [self._head(indices, to, heads).expand(exchange.ranks, -1)]
        for values in sent:
            block = indices.new_full((exchange.rows + 1,), -1, dtype=torch.int32)
            block.scatter_(0, to_slots, values.reshape(-1).to(torch.int32))
            blocks.append(block[:-1].view(exchange.ranks, capacity))
        received, work = exchange.send(torch.cat(blocks, 1), exchange.ranks)
        exchange.wait(work)
        self._note(received[:, :_HEAD])
        index, source = received[:, _HEAD:_HEAD + capacity], received[:, _HEAD + capacity:]
        if tokens is None:
            return slots, index.reshape(-1), None, None
        first = torch.arange(exchange.ranks, device=index.device)[:, None] * tokens
        return slots, index.reshape(-1), firsts, (source.clamp(min=0) + first).reshape(-1)

    def _head(self, indices, to, heads):
        """The first error of this rank's indices, int32 [_HEAD]: a code, 0 for none, and three
        integers that check prints. heads: a code, the sizes that are too large and the pairs that
        do not fit."""
        topk = indices.shape[1]
        indices, to = indices.reshape(-1), to.reshape(-1)
        found = torch.zeros(_HEAD, dtype=torch.int64, device=indices.device)
        for code, sizes, is_over in heads:
            over = is_over.reshape(-1).int().argmax(0, keepdim=True)
            rank = to[over].clamp(min=0)  # not sizes[a tensor of no axis], which waits
            many = torch.cat([torch.full_like(over, code), rank, sizes[rank], indices[over]])
            found = torch.where(is_over.any(), many, found)
        is_large = indices > self.total
        large = is_large.int().argmax(0, keepdim=True)
        huge = torch.cat([torch.full_like(large, _TOO_LARGE), large // topk, large % topk,
                          indices[large]])
        return torch.where(is_large.any(), huge, found).clamp(max=2**31 - 1).to(torch.int32)

    def _note(self, heads):
        """On the CPU all ranks raise an error of any; a GPU keeps the first ones for check()."""
        self._errors.copy_(torch.where((self._errors == 0).all(), heads, self._errors))
        if heads.device.type == "cpu":
            self.check()

    def check(self):
        """Wait for the device, then RuntimeError with the first error of the indices of any rank
        since the last check."""
        errors = self._errors.tolist()
        self._errors.zero_()
        for rank, (code, a, b, c) in enumerate(errors):
            if code == _TOO_LARGE:
                raise RuntimeError(f"rank {rank}: token {a}, k {b}: index is {c}: at most "
                                   f"{self.total} is expected")
            if code == _TOO_MANY:
                raise RuntimeError(
                    f"capacity is {self.capacity} pairs: rank {rank} has {b} for rank {a}; the "
                    f"first that does not fit is of expert {c}")
            if code == _TOO_MANY_TOKENS:
                raise RuntimeError(
                    f"token_capacity is {self.token_capacity} tokens: rank {rank} has {b} for rank "
                    f"{a}; the first that does not fit is of expert {c}")

    def extra_repr(self):
        return (f"{super().extra_repr()}, capacity={self.capacity}, experts {self.first} to "
                f"{self.first + self.num_experts - 1} of {self.total}")
