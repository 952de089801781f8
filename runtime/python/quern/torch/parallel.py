# SPDX-License-Identifier: Apache-2.0
"""ExpertParallelMoE: a layer whose experts are spread over the ranks of a process group."""

import math
import zlib

import torch
import torch.nn.functional as F

from quern.scaling import sent_features
from quern.torch import _checks, _compile
from quern.torch._exchange import Ranks
from quern.torch._module import default_device
from quern.torch._ops import ops
from quern.torch._symmetric import Peers, SymmetricTrip
from quern.torch._tools import check
from quern.torch._trip import Trip, add_up, give_back, receive, send
from quern.torch.functions import autocast, f32
from quern.torch.layer import check_indices, move, route_line
from quern.torch.mlp import Route
from quern.torch.modules import GroupedMLP

_FAR = 2**30  # more than there are pairs
_NOTED = 2**20  # a noted error is its excess times this, and the number of its expert plus 1
_TOPK = 32  # the most choices of a token
_EXPERTS = 1024  # the most experts of a route


def _padded(t, more, choices=0, value=0):
    """With so many more tokens, and choices."""
    return F.pad(t, (0, choices, 0, more), value=value) if t is not None and more + choices else t


def _split(t, sizes):
    """Parts of so many tokens; of None None."""
    if t is None or len(sizes) == 1:
        return [t] * len(sizes)
    return t.split(sizes)


class ExpertParallelMoE(GroupedMLP):
    """quern.torch.moe with some of the experts on each rank of a process group.

        num_experts   those of this rank, from 1, any number on each: the first rank has the first
        hidden, ffn   of each expert
        capacity      pairs of a token and an expert that a rank may send to another in one chunk.
                      A rank sends and receives ranks * capacity rows, however many are used
        token_capacity  tokens that a rank may send to another in one chunk, at most capacity: each
                      is sent once to a rank, for all experts that it chose there. Only with
                      prob="h"; default None: it is sent for each pair
        chunks        a call's tokens are sent in so many parts, of which one is sent while the
                      experts multiply the one before. Each casts the weights, unless forward has
                      is_first_microbatch
        dispatch      "values", or "quantized": tokens and the gradients of results are sent as
                      codes and scales of the recipe, one of quern.scaling.SENT; only with prob="h"
        exchange      "all_to_all", or "symmetric": each rank writes its rows into memory that it
                      maps of the other ranks' GPUs, and only those rows that pairs have
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
                 prob="h", overlap_wgrad=False, chunks=1, dispatch="values",
                 exchange="all_to_all", **options):
        capacity = _checks.integer("capacity", capacity, 1)
        if token_capacity is not None:
            token_capacity = _checks.integer("token_capacity", token_capacity, 1, capacity)
        _checks.word("prob", prob, ("x", "h", "y"))
        if token_capacity is not None and prob != "h":
            raise ValueError(f"token_capacity: prob is {prob!r}, which makes a token's pairs "
                             "differ: 'h' is expected")
        chunks = _checks.integer("chunks", chunks, 1)
        _checks.word("dispatch", dispatch, ("values", "quantized"))
        _checks.word("exchange", exchange, ("all_to_all", "symmetric"))
        if "outside" in options:
            raise TypeError("outside: ExpertParallelMoE sorts the rows itself")
        ranks = Ranks(group)
        if overlap_wgrad:
            if options.get("delay_wgrad_compute"):
                raise ValueError("overlap_wgrad: the weight gradients cannot also wait for "
                                 "backward_dw(), which delay_wgrad_compute says")
            options["delay_wgrad_compute"] = True
        super().__init__(num_experts, hidden, ffn, **options)
        self.capacity, self.group, self.prob = capacity, group, prob
        self.overlap_wgrad, self.token_capacity = overlap_wgrad, token_capacity
        self.chunks, self.dispatch, self.exchange = chunks, dispatch, exchange
        if chunks > 1 and self._scaling.slots:
            raise ValueError(f"chunks is {chunks}: recipe {self.recipe} has delayed scaling, whose "
                             "scales are chosen once in a call: 1 is expected")
        self.ranks, self.rows, self._error = ranks, ranks.ranks * capacity, ""
        self.sent_rows = ranks.ranks * (token_capacity or capacity)
        if dispatch == "quantized":
            if prob != "h" or hasattr(self, "b1"):
                raise ValueError("dispatch='quantized': prob='h' without bias is expected, so that "
                                 "nothing else reads the tokens or their gradients")
            name = "capacity" if token_capacity is None else "token_capacity"
            self.scaled = sent_features(self.recipe, str(self.token_dtype())[6:], hidden, name,
                                        getattr(self, name))
        device = default_device(None) if self.w1.is_meta else self.w1.device
        counts = self._agree(device)
        self.first, self.total = sum(counts[:ranks.rank]), sum(counts)
        if self.total > _EXPERTS:
            raise ValueError(f"num_experts: the ranks have {self.total} experts: at most "
                             f"{_EXPERTS} are expected")
        for name, t in self._tables(counts).items():
            self.register_buffer(name, t.to(device), persistent=False)
        self.peers = Peers(self, device) if exchange == "symmetric" else None

    def _tables(self, counts):
        """Constants of _plan and read_head, and the errors that were noted."""
        ranks, capacity, tokens = self.ranks.ranks, self.capacity, self.token_capacity
        number = torch.arange(ranks, dtype=torch.int32)
        first = F.pad(torch.tensor(counts, dtype=torch.int32).cumsum(0, dtype=torch.int32), (1, 0))
        twice, far = (torch.tensor(n, dtype=torch.int32).expand(ranks) for n in (capacity, _FAR))
        made = {"_edges": torch.cat([first[:-1].repeat_interleave(2),
                                     first[1:].repeat_interleave(2)]),
                "_room": torch.stack([twice, far], 1).view(-1),
                "_base": torch.stack([number * capacity, -far], 1).view(-1),
                "_seats": torch.arange(capacity, dtype=torch.int32).repeat(ranks, 1),
                "_noted": torch.zeros(2 * ranks, dtype=torch.int64)}
        if self.dispatch == "quantized":
            made["_quantized_rows"] = torch.tensor([self.sent_rows * self.hidden // self.scaled])
        if self.exchange == "symmetric":
            made["_numbers"] = number.view(-1, 1, 1)
            made["_first_rows"] = made["_numbers"] * (tokens or capacity)
        if tokens is not None:
            made["_homes"] = torch.arange(tokens, dtype=torch.int32)[:, None] + number * tokens
            made["_arrivals"] = torch.arange(tokens, dtype=torch.int32)[:, None] + \
                self.ranks.rank * tokens
            made["_noted_tokens"] = torch.zeros(ranks, dtype=torch.int32)
        return made

    def __getstate__(self):
        raise TypeError("the process group is of this process: an ExpertParallelMoE cannot be "
                        "copied or pickled; its state_dict() can")

    def _agree(self, device):
        """The number of experts of each rank. ValueError if the ranks differ in something else."""
        mine = {name: getattr(self, name) for name in (
            "num_experts", "hidden", "ffn", "capacity", "token_capacity", "recipe", "activation",
            "interleave", "limits", "prob", "chunks", "dispatch", "exchange")}
        mine.update(params_dtype=self.w1.dtype, bias=hasattr(self, "b1"))
        numbers = [value if type(value) is int else zlib.crc32(repr(value).encode())
                   for value in mine.values()]
        every = self.ranks.gather(torch.tensor(numbers, device=device)).tolist()
        for rank, theirs in enumerate(every):
            for name, one, other in zip(mine, every[0], theirs):
                if one != other and name != "num_experts":
                    raise ValueError(f"{name} of rank {rank} is not that of rank 0: on rank "
                                     f"{self.ranks.rank} it is {mine[name]!r}")
        return [numbers[0] for numbers in every]

    # ------------------------------------------------------------------------------------ forward

    @_compile.eager_if(lambda *_, **__: "torch.distributed exchanges the tokens")
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
        if shared is not None and residual is not None:
            raise ValueError("residual, shared: at most one of them is expected")
        flat, probs = self._checked(x, indices, probs)
        residual = self._residual(x, residual)
        each = -(-len(flat) // self.chunks)
        sizes = [max(min(each, len(flat) - i * each), 0) for i in range(self.chunks)]
        is_apart = self.chunks > 1 or self.overlap_wgrad or shared is not None
        sent = [self._sent(i, is_apart, *part)
                for i, part in enumerate(zip(*(_split(t, sizes)
                                               for t in (flat, indices.contiguous(), probs))))]
        if shared is not None:
            residual = self._residual(x, shared(x))
        residuals = _split(residual, sizes)
        results = []
        for order, trip, _, _ in sent:
            rows, received = receive(order, trip)
            if results and is_first_microbatch is not None:
                is_first_microbatch = False
            y = self._experts(rows, received, trip, is_first_microbatch)
            results.append(give_back(y, trip))
        y = [self._added_up(*parts) for parts in zip(results, sent, residuals, sizes)]
        y = y[0] if len(y) == 1 else torch.cat(y)
        return y if y.shape == x.shape else y.reshape(x.shape)

    def _sent(self, chunk, is_apart, x, indices, probs):
        """Start to send tokens: the arguments of receive, then those of _added_up."""
        (tokens, topk), rows = indices.shape, self.rows
        # permute and combine have a row for each pair: here it is a row of the blocks.
        choices = max(topk, min(-(-rows // max(tokens, 1)), _TOPK)) - topk
        more = max(-(-rows // (topk + choices)) - tokens, 0)
        x, probs = _padded(x, more), _padded(probs, more, choices)
        trip = self._plan(_padded(indices, more, choices, -1))
        trip.chunk, trip.is_apart = chunk, is_apart
        return send(x, None if self.prob == "y" else probs, trip), trip, probs, more

    def _added_up(self, order, sent, residual, tokens):
        _, trip, probs, more = sent
        y = add_up(order, probs if self.prob == "y" else None, _padded(residual, more), trip)
        return y[:tokens] if more else y

    def _checked(self, x, indices, probs):
        """x [tokens, hidden], and probs in fp32."""
        is_autocast = isinstance(x, torch.Tensor) and torch.is_autocast_enabled(x.device.type)
        x, = autocast(self._scaling, x)
        _checks.values("x", x)
        if is_autocast:
            x = x.to(self.token_dtype())
        _checks.values("x", x, x.dim(), self.token_dtype())
        _checks.on_device("x", x, self.w1)
        if x.shape[-1] != self.hidden:
            raise ValueError(f"x has the shape {list(x.shape)}: its last axis is expected to have "
                             f"hidden = {self.hidden} elements")
        check_indices(indices)
        _checks.shaped("indices", indices, (math.prod(x.shape[:-1]), indices.shape[1]), x)
        flat = x if x.dim() == 2 else x.reshape(-1, self.hidden)
        return flat.contiguous(), f32("probs", probs, tuple(indices.shape), x)

    def _residual(self, x, residual):
        """[tokens, hidden]."""
        if residual is None:
            return None
        _checks.shaped("residual", residual, x.shape, x)
        _checks.values("residual", residual, x.dim(), self.token_dtype())
        residual = residual if residual.dim() == 2 else residual.reshape(-1, self.hidden)
        return residual.contiguous()

    def token_dtype(self):
        """The type of tokens that are sent."""
        return self._scaling.type or self.w1.dtype

    def _experts(self, rows, probs, trip, is_first_microbatch):
        """This rank's experts: a result for each row that was received, or at the trip's
        addresses."""
        words = f" prob={'none' if probs is None else 'h'} first=0"
        words += "" if trip.addresses is None else " scatter=1"
        return self._run(rows, probs, is_first_microbatch,
                         route=Route(trip.index, None, words, trip.addresses))

    def run_wgrad(self):
        """The weight gradients of the oldest backward pass."""
        if len(self._later):  # no, if weights are frozen
            self.backward_dw()

    def need_backward_dw(self):
        return super().need_backward_dw() and not self.overlap_wgrad

    # --------------------------------------------------------------------- which pair goes where

    def _plan(self, indices):
        """A Trip: pairs in the order of experts, tokens and choices, in a block for each rank."""
        try:
            starts, inverse = ops.route_starts(*route_line(indices, self.total), indices)
        except RuntimeError as error:
            if indices.device.type != "cpu":
                raise
            self._error = f"rank {self.ranks.rank}: {error}"
            self.check()
        begins, ends = starts.index_select(0, self._edges).chunk(2)
        reach = begins + self._room  # of each block: its end, and infinity
        bounds = torch.minimum(reach, ends)
        expert = torch.bucketize(reach, starts, right=True)
        torch.maximum(self._noted, torch.add(expert, ends - bounds, alpha=_NOTED),
                      out=self._noted)
        span = torch.bucketize(inverse, bounds, right=True)
        slots = (self._base - begins).take(span).add_(inverse).clamp_(min=-1)
        trip = (Trip if self.peers is None else SymmetricTrip)(self, slots, starts)
        if self.token_capacity is not None:
            trip.slots, trip.tokens, trip.homes = self._tokens(slots)
        if indices.device.type == "cpu":
            self.check()
        return trip

    def has_all_tokens(self, count):
        """Whether blocks of tokens have room for all of a rank."""
        return count <= self.token_capacity and self.ranks.ranks <= _TOPK

    def _tokens(self, slots):
        """slots, tokens and homes of a Trip. A block has the tokens of x in their order, if it has
        room for all; else those that have pairs there. A pair whose token does not fit leaves
        slots, and its home is -1, which the rank of its expert reads."""
        capacity, ranks, (count, topk) = self.token_capacity, self.ranks.ranks, slots.shape
        if self.has_all_tokens(count):
            tokens, at = self._homes, self._arrivals
            if count < capacity:
                tokens, at = tokens[:count], at[:count]
                tokens = _padded(tokens, 0, -(-self.sent_rows // count) - ranks, -1)
            return slots, tokens, at.expand(count, topk)
        to = (slots // self.capacity + 1).long()  # 0: none
        has = torch.zeros(ranks + 1, count, dtype=torch.bool, device=slots.device)
        number = has.scatter_(0, to.t(), True).cumsum(1, dtype=torch.int32)  # of tokens, from 1
        torch.maximum(self._noted_tokens, number[1:, -1], out=self._noted_tokens)
        at = number.gather(0, to.t()).t().contiguous()
        fits = at <= capacity
        slots = slots.where(fits, -1)
        # Some pairs of a token have one row: permute writes it as often.
        tokens = torch.add(at, to, alpha=capacity).sub_(capacity + 1).to(torch.int32)
        homes = (at + (self.ranks.rank * capacity - 1)).where(fits, -1)
        return slots, tokens.where(slots >= 0, -1), homes

    def head_of(self, trip, probs):
        """Sent before the tokens, f32 [ranks, ..]: this rank's starts of experts, then for each
        row of the block its probability and the row of its token, if the rank of the experts needs
        them."""
        starts = trip.starts.view(torch.float32).expand(self.ranks.ranks, -1)
        values = [probs] if self.prob == "h" else []
        if trip.homes is not None:
            values.append(trip.homes.view(torch.float32))
        if not values:
            return starts.contiguous()
        count = len(values)
        values = torch.stack(values, 2) if count > 1 else values[0]
        moved = move(ops.permute, "permute", values.view(-1, count), trip.all_slots.view(-1, 1))
        moved = moved if len(moved) == self.rows else moved[:self.rows]
        return torch.cat([starts, moved.view(self.ranks.ranks, -1)], 1)

    def read_head(self, trip, head):
        """Set index and sources of a trip, whose head was received. Returns the probabilities of
        received rows, or None. Rows that no pair has are of the expert after the last one, and
        everything else about them is undefined."""
        numbers, last = head.view(torch.int32), self.first + self.num_experts
        ends = numbers[:, self.first + 1:last + 1] - numbers[:, self.first:self.first + 1]
        index = torch.searchsorted(ends, self._seats, right=True, out_int32=True)
        if trip.homes is not None:
            homes = numbers[:, self.total + 1 + (self.prob == "h")::2]
            index.masked_fill_(homes < 0, self.num_experts)
            trip.sources = homes.clamp(0, self.sent_rows - 1).long().view(-1)
        trip.index = index.view(-1, 1)
        if self.prob != "h":
            return None
        step = 1 if trip.homes is None else 2
        return head[:, self.total + 1::step].reshape(-1, 1)

    # ---------------------------------------------------------------------------------- errors

    def check(self):
        """Wait for the device, then RuntimeError with the first error of the indices of any rank
        since the last check. All ranks call it."""
        found = self._found()
        for error in [found] if self.ranks.ranks == 1 else self.ranks.sentences(
                found, self._noted.device):
            if error:
                raise RuntimeError(error)

    def _found(self):
        """The error of this rank's indices, or ""."""
        error, self._error, rank = self._error, "", self.ranks.rank
        if self._noted.device.type != "cpu":
            try:
                check(self._noted.device)
            except RuntimeError as told:
                error = f"rank {rank}: {told}"
        noted = self._noted.tolist()
        if max(noted) >= _NOTED:
            self._noted.zero_()
        for to, value in enumerate(noted[::2]):
            if value >= _NOTED and not error:
                error = (f"capacity is {self.capacity} pairs: rank {rank} has "
                         f"{self.capacity + value // _NOTED} for rank {to}; the first that does "
                         f"not fit is of expert {value % _NOTED - 1}")
        many = [] if self.token_capacity is None else self._noted_tokens.tolist()
        for to, count in enumerate(many):
            if count > self.token_capacity and not error:
                error = (f"token_capacity is {self.token_capacity} tokens: rank {rank} has {count} "
                         f"for rank {to}")
        if max(many, default=0):
            self._noted_tokens.zero_()
        return error

    def extra_repr(self):
        return (f"{super().extra_repr()}, capacity={self.capacity}, experts {self.first} to "
                f"{self.first + self.num_experts - 1} of {self.total}")
