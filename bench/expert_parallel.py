#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A layer whose experts are spread over GPUs, forward and backward: ExpertParallelMoE, torch's
composition, and that with Megatron's token dispatcher (PyPI megatron-core) where it can be imported.

    torchrun --nproc-per-node 2 bench/expert_parallel.py [--recipes bf16,fp8_block] [--shapes 'qwen3*,olmoe']
             [--tokens N] [--rounds N] [--budget SECONDS] [--graph] [--chunks 1,2] [--quantized]
             [--exchange all_to_all,symmetric] [--no-torch] [--json FILE] [--commit HASH]

Every rank has as many tokens and experts. torch sorts the pairs by expert, exchanges their rows by
all_to_all_single with sizes that the host reads, as Megatron and torchtitan do, multiplies by
torch._grouped_mm, and sums by a compiled kernel; its backward pass is autograd's. `megatron` has the
same products between the steps of Megatron's all-to-all dispatcher, without Transformer Engine's
fused permutations. Megatron's router makes the [tokens, experts] map and probabilities that the
dispatcher takes: they are made before the clock.

`local` is quern's layer of one rank's experts on as many tokens, without an exchange, and `exchange`
the rows of quern's forward and backward passes without anything else: its `sent_bytes` go to other
GPUs, at `link_share` of the rate of NVLINK. `hidden` of quern's rows is the share of that time that
does not add to `local`. Times are medians over rounds in which all take turns, of the slowest rank.
y, dx and dw are compared before: 1 - 2 xy / (xx + yy); and y, dx and dw of quern with those of one
process that has all tokens and experts, bit by bit. Those of dw1 and dw2 differ where chunks are
added up, and may where tokens are sent quantized.

--graph also times quern's, the local and the exchange's calls as CUDA graphs, host_us is the host's
time for an eager call, which does not wait for the GPU. --chunks also overlaps parts of the tokens,
--quantized also sends codes and scales, --no-torch leaves torch and megatron out. Runs on the CPU if
there is no GPU, with --tokens, to try the program.
"""

import itertools
import json
import os
import statistics
import sys
import time

os.environ.setdefault("NCCL_NVLS_ENABLE", "0")  # no NVLink multicast
os.environ.setdefault("TORCH_SYMM_MEM_DISABLE_MULTICAST", "1")

import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as collectives

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, os.path.join(ROOT, "runtime", "python"))

import quern.torch as qt  # noqa: E402
from quern.scaling import SENT  # noqa: E402
from quern.torch._ops import ops  # noqa: E402
from quern.torch.layer import move  # noqa: E402
import expert_layers  # noqa: E402
from layer import add_rows, distance, ends_of, gated, inverse_of  # noqa: E402

NVLINK = 450e9  # bytes a second in one direction, of an H100 or H200 by its data sheet
HAS_GPU = torch.cuda.is_available()


class Layer:
    """All ranks' tokens and weights, the same on each, and those of this rank."""

    def __init__(self, shape, rank, ranks, device):
        self.name, self.tokens, self.hidden, self.ffn, self.experts, self.topk = shape
        self.rank, self.ranks, self.device = rank, ranks, device
        self.own = self.experts // ranks
        torch.manual_seed(1)
        make = dict(device=device, dtype=torch.bfloat16)
        rows = self.tokens * ranks
        self.all_x, self.all_dy = (torch.randn(rows, self.hidden, **make) for _ in range(2))
        self.all_w1 = torch.randn(self.experts, 2 * self.ffn, self.hidden, **make) * self.hidden**-0.5
        self.all_w2 = torch.randn(self.experts, self.hidden, self.ffn, **make) * self.ffn**-0.5
        values, index = torch.randn(rows, self.experts, device=device).topk(self.topk, -1)
        self.all_probs, self.all_index = values.softmax(-1), index.to(torch.int32)
        here, mine = slice(rank * self.tokens, (rank + 1) * self.tokens), self.mine()
        self.x, self.dy = self.all_x[here].clone(), self.all_dy[here].clone()
        self.probs, self.index = self.all_probs[here].clone(), self.all_index[here].clone()
        self.w1, self.w2 = self.all_w1[mine].clone(), self.all_w2[mine].clone()
        self.here = here

    def mine(self):
        return slice(self.rank * self.own, (self.rank + 1) * self.own)

    def pairs_to_a_rank(self, tokens):
        """The most that any rank sends to another, of so many of its tokens at a time."""
        to = (self.all_index // self.own).view(self.ranks, self.tokens, self.topk)
        return max(int((part == rank).sum((1, 2)).max()) for part in to.split(tokens, 1)
                   for rank in range(self.ranks))


class Timed:
    """Its parameters and a step."""

    def __init__(self, layer):
        self.layer = layer
        self.x = layer.x.clone().requires_grad_()
        self.probs = layer.probs.clone().requires_grad_()

    def both(self):
        for t in (self.x, self.probs, *self.weights()):
            t.grad = None
        y = self.forward()
        y.backward(self.layer.dy)
        return y

    def results(self):
        y, (w1, w2) = self.both().detach(), self.weights()
        return {"y": y, "dx": self.x.grad, "dw1": w1.grad, "dw2": w2.grad}


class Quern(Timed):

    def __init__(self, layer, recipe, overlap=False, chunks=1, dispatch="values",
                 exchange="all_to_all"):
        super().__init__(layer)
        self.name = f"quern {recipe}" + " symmetric" * (exchange == "symmetric")
        self.name += " overlapped" * overlap
        self.name += f" {chunks} chunks" * (chunks > 1) + " sent quantized" * (dispatch != "values")
        self.chunks, self.tokens = chunks, -(-layer.tokens // chunks)
        self.capacity = expert_layers.capacity(layer.pairs_to_a_rank(self.tokens), self.tokens,
                                               layer.topk)
        self.module = qt.ExpertParallelMoE(
            layer.own, layer.hidden, layer.ffn, capacity=self.capacity, token_capacity=self.tokens,
            recipe=recipe, overlap_wgrad=overlap, chunks=chunks, dispatch=dispatch, exchange=exchange,
            params_dtype=torch.bfloat16, device=layer.device)
        with torch.no_grad():
            self.module.w1.copy_(layer.w1)
            self.module.w2.copy_(layer.w2)

    def weights(self):
        return self.module.w1, self.module.w2

    def forward(self):
        return self.module(self.x, self.layer.index, self.probs)



class Local(Timed):
    """This rank's experts on as many pairs, all of its own tokens."""

    def __init__(self, layer, recipe):
        super().__init__(layer)
        self.name, self.recipe = f"local {recipe}", recipe
        self.index = layer.index % layer.own
        self.w1, self.w2 = (w.clone().requires_grad_() for w in (layer.w1, layer.w2))

    def weights(self):
        return self.w1, self.w2

    def forward(self):
        return qt.moe(self.x, self.index, self.probs, self.w1, self.w2, recipe=self.recipe)


class Torch(Timed):
    name = "torch"

    def __init__(self, layer):
        super().__init__(layer)
        self.w1, self.w2 = (w.clone().requires_grad_() for w in (layer.w1, layer.w2))
        compiled = torch.compile if HAS_GPU else (lambda f: f)
        self.gated, self.add_rows = compiled(gated), compiled(add_rows)

    def weights(self):
        return self.w1, self.w2

    def products(self, rows, prob, ends):
        pre = torch._grouped_mm(rows, self.w1.transpose(-2, -1), offs=ends)
        return torch._grouped_mm(self.gated(pre, prob), self.w2.transpose(-2, -1), offs=ends)

    def exchange(self, t, to, of):
        return collectives.all_to_all_single_autograd(t, to, of, dist.group.WORLD)

    def forward(self):
        l = self.layer
        flat = l.index.flatten()
        order = flat.argsort(stable=True)
        counts = torch.bincount(flat, minlength=l.experts)
        theirs = torch.empty_like(counts)
        dist.all_to_all_single(theirs, counts)
        sent = counts.view(l.ranks, -1).sum(1).tolist()  # waits for the GPU
        received = theirs.view(l.ranks, -1).sum(1).tolist()
        rows = self.exchange(self.x[order // l.topk], received, sent)
        prob = self.exchange(self.probs.flatten()[order], received, sent)
        experts = torch.arange(l.own, device=l.device).repeat(l.ranks).repeat_interleave(
            theirs, output_size=sum(received))
        by_expert = experts.argsort(stable=True)
        y = self.products(rows[by_expert], prob[by_expert], ends_of(experts[by_expert], l.own))
        y = self.exchange(y[inverse_of(by_expert)], sent, received)
        return self.add_rows(y, inverse_of(order).view(l.tokens, l.topk))


def splits_as_arrays(dispatcher, _point, counts):
    """Instead of Megatron's copies from the GPU, if there is none."""
    for name in ("input_splits", "output_splits"):
        if torch.is_tensor(splits := getattr(dispatcher, name)):
            setattr(dispatcher, name, splits.numpy())
    return counts


class Megatron(Torch):
    """torch's products between the steps of Megatron's dispatcher."""
    name = "megatron"

    def __init__(self, layer):
        from megatron.core.process_groups_config import ProcessGroupCollection
        from megatron.core.transformer import TransformerConfig
        from megatron.core.transformer.moe.token_dispatcher import MoEAlltoAllTokenDispatcher
        super().__init__(layer)
        index, mine = layer.index.long(), layer.mine()
        zeros = torch.zeros(layer.tokens, layer.experts, device=layer.device)
        self.map = zeros.bool().scatter(1, index, True)
        self.probs = zeros.scatter(1, index, layer.probs).requires_grad_()
        if not HAS_GPU:
            torch.cuda.current_device = lambda: torch.device("cpu")
            MoEAlltoAllTokenDispatcher.cuda_dtoh_stream = torch.cpu.current_stream()
            MoEAlltoAllTokenDispatcher._maybe_dtoh_and_synchronize = splits_as_arrays
        self.dispatcher = MoEAlltoAllTokenDispatcher(
            layer.own, list(range(mine.start, mine.stop)),
            TransformerConfig(
                num_layers=1, num_attention_heads=1, hidden_size=layer.hidden, bf16=True,
                num_moe_experts=layer.experts, moe_ffn_hidden_size=layer.ffn, add_bias_linear=False,
                moe_router_topk=layer.topk, moe_router_dtype="fp32",
                moe_token_dispatcher_type="alltoall", expert_model_parallel_size=layer.ranks),
            ProcessGroupCollection(ep=dist.group.WORLD, tp_ep=dist.group.WORLD, expt_tp=None))

    def forward(self):
        d = self.dispatcher
        rows, counts, prob = d.dispatch_postprocess(
            *d.token_dispatch(*d.dispatch_preprocess(self.x, self.map, self.probs)))
        ends = counts.cumsum(0).to(self.x.device, torch.int32)  # counts are on the host
        y = self.products(rows, prob, ends)
        return d.combine_postprocess(d.token_combine(d.combine_preprocess(y)))


def peers_of(options, rank):
    """The classes that quern is compared with."""
    if options.no_torch:
        return []
    try:
        import megatron.core.transformer.moe.token_dispatcher  # noqa: F401
    except ImportError as error:
        if rank == 0:
            print(f"megatron is left out: {error}", file=sys.stderr)
        return [Torch]
    return [Torch, Megatron]


class Exchange:
    """The bytes of a module's exchanges by collectives, and nothing else."""

    def __init__(self, quern):
        self.layer, self.name = quern.layer, "exchange of " + quern.name
        self.counts = [count * quern.chunks * self.layer.ranks
                       for count in (quern.capacity, quern.tokens)]
        rows = max(self.counts)
        self.to = torch.zeros(rows, self.layer.hidden, dtype=torch.bfloat16, device=self.layer.device)
        self.of = torch.zeros_like(self.to)

    def forward(self):
        for count in self.counts:
            dist.all_to_all_single(self.to[:count], self.of[:count])

    def both(self):
        self.forward()
        self.forward()

    def sent_rows(self):
        """Rows of x's type that this rank sends to others: forward, and as many backward."""
        return sum(self.counts) * (self.layer.ranks - 1) // self.layer.ranks


class SymmetricExchange:
    """The rows that a module's exchanges write into other ranks' memory, and nothing else."""

    def __init__(self, quern):
        self.layer, self.module = quern.layer, quern.module
        self.name = "exchange of " + quern.name
        with torch.no_grad():
            self.trip = self.module._sent(0, False, self.layer.x, self.layer.index,
                                          self.layer.probs)[1]
        self.module.read_head(self.trip, self.trip.take_head())
        self.trip.take_tokens("x")
        self.blocks = [self.trip._rows(rank, "results", torch.bfloat16, self.layer.hidden,
                                       self.layer.rank * self.module.capacity)
                       for rank in range(self.layer.ranks)]
        index = self.trip.index.view(self.layer.ranks, -1)
        self.used = torch.where(index < self.module.num_experts, self.module._seats, -1)[:, :, None]
        self.y = torch.zeros(self.module.rows, self.layer.hidden, dtype=torch.bfloat16,
                             device=self.layer.device)
        self.forward()

    def forward(self):
        self.trip.send_tokens(self.layer.x, None, "x")
        self.put_results()
        self.trip.send_rows(None)
        self.trip.leave()

    def put_results(self):
        """By launches of their own: the layer's products write them as they are made."""
        for to, used, part in zip(self.blocks, self.used, self.y.split(self.module.capacity)):
            move(ops.permute_, "permute", part, used, output=to[:len(part)])

    def both(self):
        self.forward()
        self.forward()

    def sent_rows(self):
        others = [rank for rank in range(self.layer.ranks) if rank != self.layer.rank]
        return sum(int((map[others] >= 0).sum()) for map in (self.trip._maps(), self.used))


def whole(layer, recipe):
    """This rank's part of the results of one process that has all tokens and experts."""
    x, w1, w2 = (t.clone().requires_grad_() for t in (layer.all_x, layer.all_w1, layer.all_w2))
    y = qt.moe(x, layer.all_index, layer.all_probs, w1, w2, recipe=recipe)
    y.backward(layer.all_dy)
    return {"y": y.detach()[layer.here], "dx": x.grad[layer.here], "dw1": w1.grad[layer.mine()],
            "dw2": w2.grad[layer.mine()]}


def synchronize():
    if HAS_GPU:
        torch.cuda.synchronize()


def most_of_ranks(value):
    value = torch.tensor(value, device="cuda" if HAS_GPU else "cpu")
    dist.all_reduce(value, dist.ReduceOp.MAX)
    return value.item()


def once(call, inner):
    """Milliseconds of a call, and microseconds of the host for it, on the slowest rank."""
    synchronize()
    dist.barrier()
    begin = time.perf_counter()
    for _ in range(inner):
        call()
    host = time.perf_counter() - begin
    synchronize()
    whole = time.perf_counter() - begin
    return most_of_ranks(whole / inner * 1e3), most_of_ranks(host / inner * 1e6)


def take_turns(calls, rounds, inner=4):
    times = {name: [] for name in calls}
    for call in calls.values():
        call()
        call()
    for turn in range(rounds):
        names = list(calls)
        for name in names[turn % len(names):] + names[:turn % len(names)]:
            times[name].append(once(calls[name], inner))
    return {name: [statistics.median(values) for values in zip(*found)]
            for name, found in times.items()}


def captured(call, name, pool):
    """A call as a CUDA graph, to be replayed; None, after a message, if it cannot be one."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        call()
        call()  # makes the plans
    torch.cuda.current_stream().wait_stream(side)
    synchronize()
    graph = torch.cuda.CUDAGraph()
    try:
        with torch.cuda.graph(graph, pool=pool, capture_error_mode="thread_local"):
            call()
    except RuntimeError as error:
        print(f"{name}: no graph: {error}", file=sys.stderr)
        return None
    return graph.replay


def layers_of(layer, options):
    """The layers of quern that are compared, of each recipe."""
    for recipe, exchange in itertools.product(options.recipes.split(","),
                                              options.exchange.split(",")):
        for chunks in map(int, options.chunks.split(",")):
            yield Quern(layer, recipe, chunks=chunks, exchange=exchange)
        yield Quern(layer, recipe, overlap=True, exchange=exchange)
        if options.quantized and recipe in SENT:
            yield Quern(layer, recipe, dispatch="quantized", exchange=exchange)


def exchanges_of(found):
    """Only the rows that the first layer of each exchange sends: {exchange: ..}."""
    made = {}
    for one in found:
        kind = one.module.exchange
        if kind not in made:
            made[kind] = (Exchange if kind == "all_to_all" else SymmetricExchange)(one)
    return made


def add_hidden(rows, pairs):
    """To rows of quern the share of the exchange's time that does not add to the local layer's."""
    ms = {(row["who"], row["phase"]): row["ms"] for row in rows}
    for row in rows:
        name, is_graph = row["who"].removesuffix(" graph"), row["who"].endswith(" graph")
        if name in pairs:
            local, exchange = (ms.get((who + " graph" * is_graph, row["phase"]))
                               for who in pairs[name])
            if local and exchange:
                row["hidden"] = 1 - (row["ms"] - local) / exchange


def measure(layer, peers, options):
    found, equal = list(layers_of(layer, options)), {}
    for recipe in options.recipes.split(","):
        expected = whole(layer, recipe)
        for one in found:
            if one.module.recipe == recipe:
                equal[one.name] = [name for name, t in one.results().items()
                                   if torch.equal(t, expected[name])]
                one.module.check()
        del expected
    first = found[0].results()
    found += [Local(layer, recipe) for recipe in options.recipes.split(",")]
    errors = {}
    for peer in peers:
        found.append(peer(layer))
        errors[peer.name] = {name: distance(first[name], t)
                             for name, t in found[-1].results().items()}
    exchanges = exchanges_of([one for one in found if isinstance(one, Quern)])
    found += exchanges.values()
    calls = {(one.name, phase): getattr(one, phase) for one in found
             for phase in ("forward", "both")}
    if options.graph and HAS_GPU:
        pool = torch.cuda.graph_pool_handle()
        graphs = {(name + " graph", phase): captured(call, name, pool)
                  for (name, phase), call in calls.items() if name not in errors}
        calls |= {name: replay for name, replay in graphs.items() if replay}
    rows = []
    for (name, phase), (ms, host_us) in take_turns(calls, options.rounds).items():
        rows.append({"shape": layer.name, "who": name, "phase": phase, "ms": ms,
                     "host_us": host_us})
        if name in equal:
            rows[-1]["bits_of_one_process"] = equal[name]
        if name in errors:
            rows[-1]["distance_from_quern"] = errors[name]
        for one in exchanges.values():
            if name in (one.name, one.name + " graph"):
                sent = one.sent_rows() * (2 if phase == "both" else 1) * layer.hidden * 2
                rows[-1].update(sent_bytes=sent, gbytes_per_s=sent / ms / 1e6,
                                link_share=sent / ms * 1e3 / NVLINK)
    add_hidden(rows, {one.name: (f"local {one.module.recipe}", exchanges[one.module.exchange].name)
                      for one in found
                      if isinstance(one, Quern) and one.module.dispatch == "values"})
    return rows


def main():
    parser = expert_layers.parser()
    parser.add_argument("--budget", type=float, default=300)
    parser.add_argument("--graph", action="store_true")
    parser.add_argument("--chunks", default="1")
    parser.add_argument("--quantized", action="store_true")
    parser.add_argument("--exchange", default="all_to_all")
    parser.add_argument("--no-torch", action="store_true")
    options = parser.parse_args()
    rank, ranks = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    device = torch.device("cuda", rank) if HAS_GPU else torch.device("cpu")
    if HAS_GPU:
        torch.cuda.set_device(device)
    dist.init_process_group("nccl" if HAS_GPU else "gloo", device_id=device if HAS_GPU else None)
    peers, start, rows = peers_of(options, rank), time.time(), []
    for shape in expert_layers.chosen(options):
        late = torch.tensor(time.time() - start > options.budget, dtype=torch.int32, device=device)
        dist.all_reduce(late, dist.ReduceOp.MAX)
        if late.item():
            break
        found = measure(Layer(shape, rank, ranks, device), peers, options)
        rows += found
        if rank == 0:
            for row in found:
                print(" ".join(f"{key}={value:.4g}" if isinstance(value, float) else f"{key}={value}"
                               for key, value in row.items()), flush=True)
            if options.json:
                with open(options.json, "w", encoding="utf-8") as file:
                    json.dump({"gpu": torch.cuda.get_device_name() if HAS_GPU else "none",
                               "ranks": ranks, "torch": torch.__version__,
                               "commit": options.commit, "rows": rows}, file, indent=1)
        if HAS_GPU:
            torch.cuda.empty_cache()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
