# SPDX-License-Identifier: Apache-2.0
"""The program of each process of test_parallel.py, by torch.distributed on the CPU, and of
test_parallel_cuda.py with QUERN_TORCH_DEVICE=cuda, a GPU for each:

    python tests/torch/ranks.py PROGRAM RANK RANKS FOLDER

A program is a function of this file; each rank leaves FOLDER/RANK.json, {name: error or ""}.
"""

import datetime
import faulthandler
import functools
import json
import os
import sys
import time
import traceback

os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
os.environ.setdefault("NCCL_NVLS_ENABLE", "0")  # no NVLink multicast
os.environ.setdefault("TORCH_SYMM_MEM_DISABLE_MULTICAST", "1")
ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(ROOT, "runtime", "python"))

import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402
import torch.utils.checkpoint  # noqa: E402

import quern.torch as qt  # noqa: E402
from quern.torch import _symmetric  # noqa: E402

PATIENCE = datetime.timedelta(seconds=200)  # a rank may wait for cases of the others
DEVICE = os.environ.get("QUERN_TORCH_DEVICE", "cpu")
HIDDEN, FFN = (96, 40) if DEVICE == "cpu" else (256, 128)
EXPERTS = {1: [4], 2: [3, 1], 3: [1, 3, 2], 4: [2, 1, 3, 1]}  # of each rank
TOKENS = {1: [9], 2: [7, 0], 3: [5, 0, 11], 4: [6, 13, 0, 1]}
ROUTES = ("even", "one", "last", "none", "dropped", "twice", "own")
DEFAULTS = dict(route="even", topk=2, prob="h", recipe="bf16", factor=1, dtype=torch.bfloat16,
                residual=False, kind=torch.int64)


SYMMETRIC = [
    *((ranks, dict(route=route, once=once)) for ranks, route, once in (
        (1, "even", False), (2, "even", True), (2, "dropped", False), (3, "none", True),
        (3, "one", False), (4, "even", False), (4, "twice", True), (4, "dropped", True))),
    (2, dict(topk=4, factor=19)), (4, dict(capacity=100, route="one", recipe="fp8_block")),
    (3, dict(prob="x", topk=3, residual=True, route="dropped")),
    (3, dict(prob="y", topk=3, residual=True)),
    (2, dict(bias=True, recompute=True, kind=torch.int32)),
    (4, dict(capacity=3, route="few", topk=3, prob="y", residual=True)),
    (4, dict(once=True, route="few", capacity=3)),
    (3, dict(once=True, route="few", capacity=8, topk=3, factor=2, recipe="mxfp8")),
    (3, dict(once=True, shared=True, overlap_wgrad=True)),
    (4, dict(chunks=3, once=True, topk=3, recipe="mxfp8")),
    (3, dict(chunks=3, shared=True, overlap_wgrad=True, prob="x")),
    (2, dict(dispatch="quantized", recipe="fp8_row", once=True, factor=20)),
    (3, dict(dispatch="quantized", recipe="fp8_block", hidden=128, capacity=128, route="dropped")),
    (4, dict(dispatch="quantized", recipe="mxfp8", hidden=128, capacity=128, once=True, chunks=2,
             dtype=torch.float32))]


class SharedFiles(_symmetric.Memory):
    """A mock of symmetric memory, for processes on a CPU: files that all of them map."""
    folder = "."
    made = {}  # of each group: how many

    def make(self, ranks, count, device):
        self.group = ranks.group
        names = tuple(dist.get_process_group_ranks(self.group or dist.group.WORLD))
        self.made[names] = self.made.get(names, 0) + 1
        path = "-".join(map(str, (f"{self.folder}/memory", *names, self.made[names])))
        views = [torch.from_file(f"{path}.{rank}", shared=True, size=count, dtype=torch.uint8)
                 for rank in range(ranks.ranks)]
        views[ranks.rank].fill_(0xff)  # NaN
        self.barrier()
        return views

    def barrier(self):
        dist.barrier(self.group)


def cases():
    """name: (ranks, options)."""
    made = [(ranks, dict(route=route)) for ranks in EXPERTS for route in ROUTES]
    for recipe in ("fp8_block", "mxfp8"):
        made += [(ranks, dict(recipe=recipe)) for ranks in EXPERTS]
        made += [(3, dict(recipe=recipe, route="one", factor=20)),
                 (4, dict(recipe=recipe, route="dropped", dtype=torch.float32))]
    made += [(3, dict(prob=prob, topk=3, residual=True, route=route))
             for prob in ("x", "h", "y") for route in ("even", "dropped")]
    made += [(2, dict(route="even", factor=19, topk=4)), (4, dict(topk=1)),
             (2, dict(kind=torch.int32, bias=True, activation="squared_relu")),
             (3, dict(interleave=8, recompute=True)), (3, dict(overlap_wgrad=True, recipe="mxfp8")),
             (3, dict(overlap_wgrad=True, fuse_wgrad_accumulation=True)),
             (2, dict(wgrad_queue=True, delay_wgrad_compute=True)),
             (4, dict(capacity=100, route="one")), (2, dict(capacity=2, route="few", prob="x")),
             (4, dict(capacity=3, route="few", topk=3, prob="y", residual=True)),
             (3, dict(shared=True)),
             (3, dict(once=True, shared=True, overlap_wgrad=True)),
             *((ranks, dict(once=True, topk=3, recipe=recipe, route=route, residual=True))
               for ranks in (2, 4) for recipe, route in
               (("bf16", "even"), ("bf16", "dropped"), ("mxfp8", "even"), ("fp8_block", "one"))),
             (1, dict(once=True, route="twice")), (3, dict(once=True, route="none")),
             (4, dict(once=True, route="few", capacity=3)),
             (3, dict(once=True, route="few", capacity=8, topk=3, factor=2, recipe="mxfp8")),
             (3, dict(chunks=2)),
             (2, dict(chunks=2, recipe="fp8_block", is_first_microbatch=True)),
             (4, dict(chunks=3, once=True, topk=3, recipe="mxfp8")),
             (2, dict(chunks=2, prob="y", residual=True, topk=3, route="dropped")),
             (3, dict(chunks=3, shared=True, overlap_wgrad=True, prob="x")),
             (3, dict(dispatch="quantized", recipe="fp8_row", factor=20, topk=3, once=True)),
             (4, dict(dispatch="quantized", recipe="fp8_row", route="dropped")),
             *((ranks, dict(dispatch="quantized", recipe=recipe, hidden=128, capacity=128, **more))
               for ranks, recipe, more in (
                   (3, "fp8_block", dict(route="dropped")), (4, "fp8_block", dict(once=True)),
                   (2, "mxfp8", dict(dtype=torch.float32, once=True)),
                   (4, "mxfp8", dict(chunks=2, residual=True)))),
             (2, dict(shared=True, overlap_wgrad=True, prob="y", topk=3)),
             *((ranks, dict(exchange="symmetric", **more)) for ranks, more in SYMMETRIC)]
    return {f"{ranks} ranks " + " ".join(f"{k}={v}" for k, v in options.items()): (ranks, options)
            for ranks, options in made}


def draw(route, tokens, topk, ranks, kind):
    total = sum(EXPERTS[ranks])
    indices = torch.rand(tokens, total).argsort(1)[:, :topk].to(kind)
    if route == "one":
        indices.fill_(total // 2)
    elif route == "last":
        indices.fill_(total - 1)
    elif route == "none":
        indices.fill_(-1)
    elif route == "dropped":
        indices[::3, -1] = total
        indices[1::4, 0] = -7
    elif route == "few":  # fewer pairs than tokens: blocks may be smaller than tokens * topk
        indices[:, 1:] = -1
        indices[torch.arange(tokens) % 5 > 0] = total
    elif route == "twice":
        indices[:, 1] = indices[:, 0]
    elif route == "own":  # nothing leaves a rank
        last = torch.tensor(EXPERTS[ranks]).cumsum(0) - 1
        indices[:] = torch.repeat_interleave(last, torch.tensor(TOKENS[ranks]))[:, None]
    return indices


def same(a, b):
    """The same bytes: torch.equal takes 0 for -0."""
    return a.dtype == b.dtype and torch.equal(a.detach().contiguous().view(torch.uint8),
                                              b.detach().contiguous().view(torch.uint8))


def leaf(t):
    return t.detach().clone().requires_grad_()


def shared(x):
    return (x * 3).abs()


def alone(given, indices, dy, prob, options):
    """The layer in one process: y and all gradients."""
    t = {name: leaf(value) for name, value in given.items() if value is not None}
    more = {name: options[name] for name in ("recipe", "activation", "interleave", "recompute")
            if name in options}
    residual = shared(t["x"]) if "shared" in options else t.get("residual")
    y = qt.moe(t["x"], indices, t["probs"], t["w1"], t["w2"], prob=prob, b1=t.get("b1"),
               b2=t.get("b2"), residual=residual, **more)
    y.backward(dy)
    return y.detach(), {name: value.grad for name, value in t.items()}


def run_case(ranks, options, group):
    rank, o = dist.get_rank(group), DEFAULTS | options
    more = {"shared": shared} if o.pop("shared", False) else {}
    if "is_first_microbatch" in o:
        more["is_first_microbatch"] = o.pop("is_first_microbatch")
    experts, tokens = EXPERTS[ranks], [n * o["factor"] for n in TOKENS[ranks]]
    route, topk, prob, factor = o.pop("route"), o.pop("topk"), o.pop("prob"), o.pop("factor")
    dtype, kind, has_residual = o.pop("dtype"), o.pop("kind"), o.pop("residual")
    hidden, is_quantized = o.pop("hidden", HIDDEN), o.get("dispatch") == "quantized"
    capacity = o.pop("capacity", max(tokens) * topk)
    if o.pop("once", False):
        o["token_capacity"] = capacity if is_quantized else min(capacity, max(tokens))
    if o.get("wgrad_queue"):
        o["wgrad_queue"] = qt.WgradQueue()
    module = qt.ExpertParallelMoE(experts[rank], hidden, FFN, capacity=capacity, group=group,
                                  prob=prob, params_dtype=dtype, device=DEVICE, **o)
    torch.manual_seed(7)  # the same on all ranks
    total, many = sum(experts), sum(tokens)
    wide = module.w1.shape[1]
    given = {"x": torch.randn(many, hidden).to(dtype), "probs": torch.rand(many, topk),
             "residual": torch.randn(many, hidden).to(dtype) if has_residual else None,
             "w1": torch.randn(total, wide, hidden).mul(0.2).to(dtype),
             "w2": torch.randn(total, hidden, FFN).mul(0.2).to(dtype)}
    if o.get("bias"):
        given.update(b1=torch.randn(total, wide).to(dtype), b2=torch.randn(total, hidden).to(dtype))
    dy = torch.randn(many, hidden).to(dtype)
    indices = draw(route, many // factor, topk, ranks, kind).repeat(factor, 1)
    y, grads = alone(given, indices, dy, prob, o | more)
    if is_quantized:  # all bits are those of the values that were sent; y's and dx's also of others
        first = y, grads["x"], grads["probs"]
        sent = {of: qt.dequantize(qt.quantize(t, [many], recipe=o["recipe"], of=of,
                                              copies="rowwise"), [many])
                for of, t in (("x", given["x"]), ("dy", dy))}
        y, grads = alone(given | {"x": sent["x"]}, indices, sent["dy"], prob, o | more)
        assert all(map(same, first, (y, grads["x"], grads["probs"]))), "values twice quantized"
        if has_residual:
            grads["residual"] = dy
    here = slice(sum(tokens[:rank]), sum(tokens[:rank + 1]))
    window = slice(module.first, module.first + experts[rank])
    names = [name for name in ("w1", "w2", "b1", "b2") if name in given]
    with torch.no_grad():
        for name in names:
            getattr(module, name).copy_(given[name][window])
    is_fused = o.get("fuse_wgrad_accumulation")
    if is_fused:
        for w in (module.w1, module.w2):
            w.main_grad = torch.zeros(w.shape)
    t = {name: leaf(given[name][here]) for name in ("x", "probs", "residual")
         if given[name] is not None}
    found = module(t["x"], indices[here], t["probs"], residual=t.get("residual"), **more)
    found.backward(dy[here])
    if o.get("wgrad_queue"):
        assert module.w1.grad is None and module.need_backward_dw()
        module.backward_dw()
    assert same(found, y[here]), "y"
    for name, value in t.items():
        assert same(value.grad, grads[name][here]), f"gradient of {name}"
    for name in names:
        p = getattr(module, name)
        grad = p.main_grad.to(dtype) if is_fused else p.grad
        expected = grads[name][window]
        if o.get("chunks"):  # sums of parts
            error = (grad.double() - expected.double()).abs().max()
            assert error <= 2**-6 * expected.abs().max(), f"gradient of {name}: {error}"
        else:
            assert same(grad, expected), f"gradient of {name}"


def stack(group, exchange="all_to_all"):
    """Two layers, of which the first is checkpointed, and two microbatches in flight; the gradients
    of weights add up in main_grad. They are those of one process after each backward pass."""
    rank, ranks, rows, topk = dist.get_rank(group), dist.get_world_size(group), 10, 2
    here, mine = slice(rank * rows, (rank + 1) * rows), slice(2 * rank, 2 * rank + 2)
    layers = [qt.ExpertParallelMoE(2, HIDDEN, FFN, capacity=rows * topk, group=group,
                                   device=DEVICE, params_dtype=torch.bfloat16, exchange=exchange,
                                   fuse_wgrad_accumulation=True, overlap_wgrad=i == 0)
              for i in range(2)]
    torch.manual_seed(9)
    weights = [torch.randn(2 * ranks, *p.shape[1:]).mul(0.3).bfloat16().requires_grad_()
               for layer in layers for p in (layer.w1, layer.w2)]
    mains = [torch.zeros(w.shape) for w in weights]
    parameters = [p for layer in layers for p in (layer.w1, layer.w2)]
    for p, w in zip(parameters, weights):
        p.data.copy_(w[mine])
        p.main_grad = torch.zeros(p.shape)
    passes = []
    for _ in range(2):
        x, dy = torch.randn(2, ranks * rows, HIDDEN).bfloat16()
        indices, probs = draw("even", len(x), topk, ranks, torch.int64), torch.rand(len(x), topk)
        whole, part = leaf(x), leaf(x[here])
        y, found = whole, part
        for i in range(2):
            y = qt.moe(y, indices, probs, *weights[2 * i:2 * i + 2], main_grad1=mains[2 * i],
                       main_grad2=mains[2 * i + 1])
            arguments = found, indices[here], probs[here]
            found = torch.utils.checkpoint.checkpoint(layers[i], *arguments, use_reentrant=False) \
                if i == 0 else layers[i](*arguments)
        assert same(found, y[here]), "y"
        passes.append((y, found, dy, whole, part))
    for y, found, dy, whole, part in reversed(passes):
        y.backward(dy)
        found.backward(dy[here])
        assert same(part.grad, whole.grad[here]), "dx"
        for p, main in zip(parameters, mains):
            assert same(p.main_grad, main[mine]), "main_grad"


TENSOR = {"bf16": 24, "fp8_block": 128, "mxfp8": 32}  # features of a rank, multiples of blocks


def tensor_cases():
    made = {f"{ranks} ranks {recipe}": (ranks, dict(recipe=recipe)) for ranks in EXPERTS
            for recipe in TENSOR}
    return made | {"3 ranks fused": (3, dict(recipe="bf16", main_grad=True)),
                   "2 ranks 3 axes": (2, dict(recipe="mxfp8", axes=True)),
                   "2 ranks bias": (2, dict(recipe="bf16", bias=True))}


def near(found, expected, size):
    """Rounded once more, or once less, to bf16; size: the sums of magnitudes."""
    found, expected = found.double(), expected.double()
    return bool(((found - expected).abs() <= 2**-7 * expected.abs() + 2**-20 * size).all())


def run_tensor(ranks, options, group):
    """Column-parallel, then row-parallel products next to those of one process."""
    rank, recipe = dist.get_rank(group), options["recipe"]
    part, other, rows, lengths = TENSOR[recipe], 80, 31, [9, 0, 20]
    torch.manual_seed(8)
    wide, sizes = part * ranks, torch.tensor(lengths)
    mine = slice(rank * part, (rank + 1) * part)
    x, dx = (torch.randn(rows, wide).bfloat16() for _ in range(2))
    y, dy = (torch.randn(rows, other).bfloat16() for _ in range(2))
    w = torch.randn(3, other, wide).bfloat16()
    bias = torch.randn(3, wide) if options.get("bias") else None
    more = dict(recipe=recipe, outside="zero")

    def run(function, x, w, dy, **more):
        x, w = leaf(x), leaf(w)
        main = torch.zeros(w.shape) if options.get("main_grad") else None
        given = x.view(1, *x.shape) if options.get("axes") else x
        y = function(given, w, sizes, main_grad=main, **more)
        assert y.shape[:-1] == given.shape[:-1]
        y = y.view(rows, -1)
        y.backward(dy)
        return y.detach(), x.grad, w.grad if main is None else main

    one = run(qt.grouped_mm, x, w, dy, **more)
    found = run(qt.row_parallel_mm, x[:, mine], w[:, :, mine].contiguous(), dy, group=group, **more)
    expert = torch.repeat_interleave(torch.arange(3), torch.tensor(lengths))
    size = torch.einsum("ik,ink->in", x[:29].abs().double(), w.abs().double()[expert])
    assert near(found[0][:29], one[0][:29], size) and not found[0][29:].any(), "y of rows"
    assert same(found[1], one[1][:, mine]), "dx of rows"
    assert same(found[2], one[2][:, :, mine]), "dw of rows"
    w = w.transpose(1, 2).contiguous()
    one = run(qt.grouped_mm, y, w, dx, bias=bias, **more)
    found = run(qt.column_parallel_mm, y, w[:, mine], dx[:, mine], group=group,
                bias=None if bias is None else bias[:, mine], **more)
    size = torch.einsum("in,ink->ik", dx[:29].abs().double(), w.abs().double()[expert])
    assert same(found[0], one[0][:, mine]), "y of columns"
    assert near(found[1][:29], one[1][:29], size) and not found[1][29:].any(), "dx of columns"
    assert same(found[2], one[2][:, mine]), "dw of columns"


def expect(kind, words, function, *args, **more):
    """The sentence of an error that a call raises."""
    try:
        function(*args, **more)
    except kind as error:
        if words in str(error):
            return ""
        return f"{words!r} is expected: {error}"
    return f"no error: {words!r} is expected"


def small(group=None, capacity=4, **options):
    module = qt.ExpertParallelMoE(2, 32, 16, capacity=capacity, group=group,
                                  params_dtype=torch.bfloat16, device=DEVICE, **options)
    return module, torch.zeros(6, 32, dtype=torch.bfloat16), torch.ones(6, 1)


def errors(rank, ranks):
    """Every rank raises the error of one, and the layer goes on."""
    module, x, probs = small()
    indices = torch.arange(6)[:, None] % module.total
    many, large = indices.clone(), indices.clone()
    if rank == 1:
        many[1:] = 5
        large[3] = 99
    told = {"capacity": expect(
        RuntimeError, "capacity is 4 pairs: rank 1 has 5 for rank 2; the first that does not fit "
        "is of expert 5", module, x, many, probs)}
    told["index"] = expect(
        RuntimeError, f"rank 1: token 3, k 0: index is 99: at most {module.total - 1} is expected",
        module, x, large, probs)
    once = small(token_capacity=2)[0]
    few = indices.clone()
    if rank == 2:  # three tokens and four pairs for rank 1
        few = torch.tensor([[2, 3], [2, -1], [3, -1], [0, 1], [-1, -1], [-1, -1]])
    told["token capacity"] = expect(
        RuntimeError, "token_capacity is 2 tokens: rank 2 has 3 for rank 1", once, x, few,
        torch.ones(few.shape))
    told["afterwards"] = "" if module(x, indices, probs).shape == x.shape else "no result"
    told["recipe"] = expect(ValueError, "recipe of rank 2 is not that of rank 0: on rank", small,
                            recipe="mxfp8" if rank == 2 else "bf16")
    told["prob"] = expect(ValueError, "prob of rank 1 is not that of rank 0", small,
                          prob="x" if rank == 1 else "h")
    return told


def parallel(rank, ranks):
    groups = {n: dist.new_group(list(range(n)), timeout=PATIENCE) for n in EXPERTS}
    told = errors(rank, ranks)
    made = [(name, n, functools.partial(run, n, options)) for run, table in
            ((run_case, cases()), (run_tensor, tensor_cases()))
            for name, (n, options) in table.items()]
    made += [("stack", 4, stack), ("stack symmetric", 4, symmetric_stack)]
    return told | tell(made, groups, rank)


def tell(made, groups, rank):
    told = {}
    for name, n, run in made:
        if rank < n:
            try:
                run(groups[n])
                told[name] = ""
            except Exception:
                told[name] = traceback.format_exc()
            leave(told, rank)  # of a process that is stopped
    return told


def leave(told, rank):
    with open(os.path.join(sys.argv[4], f"{rank}.json"), "w") as file:
        json.dump(told, file)


symmetric_stack = functools.partial(stack, exchange="symmetric")


def cuda_cases():
    """name: options."""
    made = [dict(route=route) for route in ROUTES]
    made += [dict(once=True, topk=3), dict(once=True, route="dropped", factor=20),
             dict(route="few", capacity=40, topk=3, factor=2), dict(factor=50, topk=4),
             dict(recipe="fp8_block", factor=20), dict(recipe="mxfp8", once=True, factor=20),
             dict(prob="x", topk=3, residual=True), dict(prob="y", topk=3, residual=True),
             dict(chunks=2, once=True, topk=3, factor=10),
             dict(chunks=3, shared=True, overlap_wgrad=True, prob="x"),
             dict(shared=True, overlap_wgrad=True, once=True, recipe="mxfp8")]
    made += [dict(dispatch="quantized", recipe=recipe, capacity=640, once=True, factor=10)
             for recipe in ("fp8_row", "fp8_block", "mxfp8")]
    made = [dict(exchange=exchange, **options) for exchange in ("all_to_all", "symmetric")
            for options in made]
    return {" ".join(f"{k}={v}" for k, v in options.items()): options for options in made}


def several(rank, ranks):
    groups = {ranks: dist.group.WORLD}
    made = [(name, ranks, functools.partial(run_case, ranks, options))
            for name, options in cuda_cases().items()]
    made += [("stack", ranks, stack), ("stack symmetric", ranks, symmetric_stack)]
    made += [(f"graph {exchange} {name}", ranks, functools.partial(graph, exchange, more))
             for exchange in ("all_to_all", "symmetric") for name, more in GRAPHS.items()]
    return tell(made, groups, rank)


GRAPHS = {"pairs": {}, "tokens": dict(token_capacity=200),
          "chunks": dict(token_capacity=100, chunks=2, overlap_wgrad=True),
          "quantized": dict(token_capacity=256, dispatch="quantized", recipe="fp8_block")}


def graph(exchange, more, group):
    """Both passes as a CUDA graph, with other indices before each replay; the host never waits."""
    tokens, topk, ranks = 200, 3, dist.get_world_size(group)
    module = qt.ExpertParallelMoE(4, HIDDEN, FFN, capacity=640, device=DEVICE, exchange=exchange,
                                  params_dtype=torch.bfloat16, **more)
    torch.manual_seed(dist.get_rank(group))
    x, dy = (torch.randn(tokens, HIDDEN).bfloat16() for _ in range(2))
    x, probs = x.requires_grad_(), torch.rand(tokens, topk).requires_grad_()
    indices = torch.rand(tokens, 4 * ranks).argsort(1)[:, :topk].contiguous()

    def step():
        y = module(x, indices, probs)
        if module.overlap_wgrad:
            module.zero_grad()
            y.backward(dy)
            return [y.detach(), x.grad, probs.grad, module.w1.grad, module.w2.grad]
        return [y.detach(), *torch.autograd.grad(y, (x, probs, module.w1, module.w2), dy)]

    def fresh():
        x.grad = probs.grad = None
        return [t.clone() for t in step()]

    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        fresh()
    torch.cuda.current_stream().wait_stream(side)
    torch.cuda.set_sync_debug_mode("error")
    try:
        fresh()
    finally:
        torch.cuda.set_sync_debug_mode("default")
    x.grad = probs.grad = None
    module.zero_grad()
    captured = torch.cuda.CUDAGraph()
    with torch.cuda.graph(captured, capture_error_mode="thread_local"):
        results = step()
    for seed in range(4):
        indices.copy_(torch.rand(indices.shape[0], 4 * ranks).argsort(1)[:, :topk])
        if seed == 3:
            indices.fill_(-1)
        captured.replay()
        found = [t.clone() for t in results]
        assert all(map(same, found, fresh())), f"replay {seed}"
    module.check()


def stalls(rank, ranks):
    """Rank 1 does not call the layer, whose group has a timeout of 5 s. A rank that still waits 25 s
    after the plans are made says where, and ends."""
    start = time.monotonic()

    def call():
        module(x, indices, probs)
        if DEVICE != "cpu":
            torch.cuda.synchronize()

    def note(what):
        print(f"rank {rank}: {what} after {time.monotonic() - start:.1f} s", file=sys.stderr,
              flush=True)

    module, x, probs = small(exchange="symmetric")
    indices = torch.arange(6)[:, None] % module.total
    call()  # makes plans
    note("plans")
    faulthandler.dump_traceback_later(25, exit=True)
    module = small(dist.new_group(timeout=datetime.timedelta(seconds=5)), exchange="symmetric")[0]
    note("a group with a timeout")
    if rank == 1:
        while not os.path.exists(os.path.join(sys.argv[4], "0.json")):
            time.sleep(0.1)
        return {}
    began = time.monotonic()
    told = {"stalls": expect(RuntimeError, "CUDA error" if DEVICE != "cpu" else "imed out", call)}
    seconds = time.monotonic() - began
    note("the error")
    return told | {"seconds": "" if 4 < seconds < 12 else f"{seconds} s"}


def faults(rank, ranks):
    """Rank 1 does not take part in the backward pass at first, and then it ends in one."""
    told, (module, x, probs) = {}, small()
    module(x[:2], torch.zeros(2, 1, dtype=torch.int64), probs[:2]).sum().backward()  # makes plans
    for what in ("late", "ends"):
        module, x, probs = small(dist.new_group(timeout=datetime.timedelta(seconds=5)))
        dist.barrier()
        y = module(x, torch.arange(6)[:, None] % module.total, probs)
        if rank == 1 and what == "ends":
            os._exit(3)
        if rank != 1:
            start = time.monotonic()
            told[what] = expect(RuntimeError, f"rank {rank} of 3: another rank of the group ended, "
                                "or did not answer within", y.sum().backward)
            seconds = time.monotonic() - start
            told[f"{what}, seconds"] = "" if seconds < 20 else f"{seconds} s"
        if what == "late":
            dist.barrier()
    return told


def main():
    program, rank, ranks, folder = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
    torch.set_num_threads(1)
    more, backend = {}, "gloo"
    if DEVICE == "cpu":
        SharedFiles.folder, _symmetric.Memory = folder, SharedFiles
    else:
        torch.cuda.set_device(rank)
        torch.set_default_device(f"cuda:{rank}")
        more, backend = {"device_id": torch.device("cuda", rank)}, "nccl"
    dist.init_process_group(backend, init_method=f"file://{folder}/store", rank=rank,
                            world_size=ranks, timeout=PATIENCE, **more)
    told = globals()[program](rank, ranks)
    leave(told, rank)
    sys.stderr.flush()
    os._exit(0)  # gloo may throw where it destroys a group without some of its ranks


if __name__ == "__main__":
    main()
