# SPDX-License-Identifier: Apache-2.0
"""ExpertParallelMoE in processes on the CPU: the bits of one process, and errors."""

import json
import os
import subprocess
import sys

import pytest
import torch
from conftest import DEVICE, ROOT
from torch.utils._python_dispatch import TorchDispatchMode

import quern.torch as qt
import ranks
from quern.torch import _symmetric
from quern.torch._exchange import Ranks

pytestmark = pytest.mark.skipif(DEVICE != "cpu", reason="its processes use the CPU")
PROGRAM = os.path.join(ROOT, "tests", "torch", "ranks.py")
FIRST = ("capacity", "token capacity", "index", "afterwards", "recipe", "prob")


def run(program, count, folder, exits=None):
    """Each rank's results; exits: {rank: exit status} of those that do not end with 0."""
    env = os.environ | {"QUERN_THREADS": "1", "OMP_NUM_THREADS": "1"}
    processes = [subprocess.Popen(
        [sys.executable, PROGRAM, program, str(rank), str(count), str(folder)], env=env,
        stderr=subprocess.PIPE, text=True) for rank in range(count)]
    told = []
    for rank, process in enumerate(processes):
        try:
            error = process.communicate(timeout=300)[1]
        except subprocess.TimeoutExpired:
            for each in processes:
                each.kill()
            pytest.fail(f"rank {rank} did not end: {process.communicate()[1]}")
        expected = (exits or {}).get(rank, 0)
        assert process.returncode == expected, f"rank {rank}: {error}"
        if expected:
            told.append({})
            continue
        with open(folder / f"{rank}.json") as file:
            told.append(json.load(file))
    return told


@pytest.fixture(scope="module")
def told(tmp_path_factory):
    return run("parallel", 4, tmp_path_factory.mktemp("ranks"))


def passed(told, name, count):
    assert [t[name] for t in told[:count]] == [""] * count
    assert not any(name in t for t in told[count:])


@pytest.mark.parametrize("name", ranks.cases())
def test_bits_of_one_process(told, name):
    passed(told, name, ranks.cases()[name][0])


@pytest.mark.parametrize("name", ["stack", "stack symmetric"])
def test_layers_checkpointed_and_in_microbatches(told, name):
    passed(told, name, 4)


@pytest.mark.parametrize("name", ranks.tensor_cases())
def test_tensor_parallel_products(told, name):
    passed(told, name, ranks.tensor_cases()[name][0])


@pytest.mark.parametrize("name", FIRST)
def test_errors_of_all_ranks(told, name):
    assert [t[name] for t in told] == [""] * 4


def test_faults(tmp_path):
    told = run("faults", 3, tmp_path, {1: 3})
    for rank in (0, 2):
        assert told[rank] == {name: "" for name in ("late", "late, seconds", "ends",
                                                    "ends, seconds")}


def test_a_rank_that_stalls(tmp_path):
    told = run("stalls", 2, tmp_path)
    assert told[0] == {"stalls": "", "seconds": ""}


@pytest.fixture
def group(tmp_path, monkeypatch):
    import torch.distributed as dist
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "lo")
    dist.init_process_group("gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
    yield
    dist.destroy_process_group()


def test_example():
    path = os.path.join(ROOT, "examples", "torch_expert_parallel.py")
    made = subprocess.run([sys.executable, path], capture_output=True, text=True, env=os.environ | {
        "PYTHONPATH": os.path.join(ROOT, "runtime", "python"), "QUERN_THREADS": "1",
        "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"})
    assert made.returncode == 0, made.stdout + made.stderr
    for rank in (0, 1):
        assert f"rank {rank} of 2: y, dx, dw1, dw2 have the bits of one process" in made.stdout


def test_bad_input(group):
    module, x, probs = ranks.small()
    indices = torch.zeros(6, 1, dtype=torch.int64)
    for kind, words, args in (
            (TypeError, "x is list: a tensor is expected", ([], indices, probs)),
            (TypeError, "x is torch.float32: torch.bfloat16", (x.float(), indices, probs)),
            (ValueError, r"x has the shape \[6, 30\]: .* hidden = 32", (x[:, :30], indices, probs)),
            (TypeError, "indices: a tensor of int32 or int64", (x, indices.float(), probs)),
            (ValueError, r"indices has the shape \[5, 1\]: \[6, 1\]", (x, indices[:5], probs)),
            (TypeError, "probs is NoneType: a tensor is expected", (x, indices, None)),
            (ValueError, r"probs has the shape \[6\]: \[6, 1\]", (x, indices, probs[:, 0]))):
        with pytest.raises(kind, match=words):
            module(*args)
    with pytest.raises(ValueError, match="residual has the shape"):
        module(x, indices, probs, residual=x[:3])
    with pytest.raises(ValueError, match="residual, shared: at most one of them is expected"):
        module(x, indices, probs, residual=x, shared=torch.nn.Identity())
    with pytest.raises(TypeError, match="the process group is of this process"):
        torch.save(module, os.devnull)


def test_bad_arguments(group):
    for kind, words, more in (
            (ValueError, "capacity is 0: an integer from 1 is expected", {"capacity": 0}),
            (ValueError, "token_capacity is 5: an integer from 1 to 4", {"token_capacity": 5}),
            (ValueError, "token_capacity: prob is 'y', .* 'h' is expected",
             {"token_capacity": 4, "prob": "y"}),
            (ValueError, "prob is 'z': 'x', 'h' or 'y' is expected", {"prob": "z"}),
            (ValueError, "chunks is 0: an integer from 1 is expected", {"chunks": 0}),
            (ValueError, "chunks is 2: recipe fp8_tensor_delayed has delayed scaling",
             {"chunks": 2, "recipe": "fp8_tensor_delayed"}),
            (ValueError, "dispatch is 'fp8': 'values' or 'quantized'", {"dispatch": "fp8"}),
            *((ValueError, f"dispatch='quantized': {words}", {"dispatch": "quantized", **more})
              for words, more in (
                  ("recipe is bf16: one of fp8_row, fp8_block, mxfp8 is expected", {}),
                  ("tokens are float16, .* bfloat16 or float32 is expected",
                   {"recipe": "mxfp8", "params_dtype": torch.float16}),
                  ("tokens are float32, .*: bfloat16 is expected",
                   {"recipe": "fp8_row", "params_dtype": torch.float32}),
                  ("prob='h' without bias", {"recipe": "mxfp8", "prob": "y"}),
                  ("prob='h' without bias", {"recipe": "mxfp8", "bias": True}),
                  ("hidden is 32: a multiple of 128 is expected", {"recipe": "mxfp8"}))),
            (ValueError, "exchange is 'nccl': 'all_to_all' or 'symmetric' is expected",
             {"exchange": "nccl"}),
            (ValueError, "exchange='symmetric': the parameters are on the device cpu",
             {"exchange": "symmetric"}),
            (TypeError, "outside: ExpertParallelMoE sorts the rows itself", {"outside": "zero"}),
            (ValueError, "overlap_wgrad: ", {"overlap_wgrad": True, "delay_wgrad_compute": True})):
        with pytest.raises(kind, match=words):
            qt.ExpertParallelMoE(2, 32, 16, **{"capacity": 4, **more})
    with pytest.raises(ValueError, match="dispatch='quantized': capacity is 65: a multiple of 64 "
                                         "is expected for hidden = 256"):
        qt.ExpertParallelMoE(2, 256, 16, capacity=65, recipe="mxfp8", dispatch="quantized")
    with pytest.raises(ValueError, match="hidden is 40: a multiple of 16 is expected"):
        qt.ExpertParallelMoE(2, 40, 16, capacity=4, recipe="fp8_row", dispatch="quantized",
                             params_dtype=torch.bfloat16)
    with pytest.raises(ValueError, match="num_experts is 1025: an integer from 1 to 1024"):
        qt.ExpertParallelMoE(1025, 8, 8, capacity=4)


def test_bad_arguments_of_products(group):
    x, w = torch.zeros(4, 16).bfloat16(), torch.zeros(1, 16, 16).bfloat16()
    for function, word in ((qt.column_parallel_mm, "dgrad_out"), (qt.row_parallel_mm, "bias"),
                           (qt.row_parallel_mm, "out"), (qt.column_parallel_mm, "lora"),
                           (qt.row_parallel_mm, "lora")):
        with pytest.raises(TypeError, match=f"{word}: {function.__name__} has no such argument"):
            function(x, w, [4], **{word: x})
    with pytest.raises(ValueError, match="their last axes differ"):
        qt.row_parallel_mm(x[:, :8], w, [4])


@pytest.mark.parametrize("recipe", ["bf16", "fp8_block"])
def test_autocast_of_products(group, recipe):
    x, w = torch.randn(4, 32), torch.randn(2, 16, 32)
    with torch.autocast(DEVICE, torch.bfloat16):
        expected = qt.grouped_mm(x, w, [1, 3], recipe=recipe)
        for function in (qt.row_parallel_mm, qt.column_parallel_mm):
            y = function(x, w, [1, 3], recipe=recipe)
            assert y.dtype == torch.bfloat16 and torch.equal(y, expected)


def test_no_group():
    x, w = torch.zeros(4, 16).bfloat16(), torch.zeros(1, 16, 16).bfloat16()
    for call in (lambda: qt.ExpertParallelMoE(2, 32, 16, capacity=4),
                 lambda: qt.row_parallel_mm(x, w, [4]), lambda: qt.column_parallel_mm(x, w, [4])):
        with pytest.raises(RuntimeError, match="call torch.distributed.init_process_group first"):
            call()


class _NoReads(TorchDispatchMode):
    """No operator gives the host a value of a tensor."""

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        assert function not in (torch.ops.aten._local_scalar_dense.default,
                                torch.ops.aten.nonzero.default), function
        return function(*args, **kwargs or {})


@pytest.fixture
def own_memory(monkeypatch):
    """Symmetric memory of one rank: a list of its barriers, to which tests add."""
    events = []

    class Own(_symmetric.Memory):
        def make(self, ranks, count, device):
            return [torch.full((count,), 0xff, dtype=torch.uint8)]

        def barrier(self):
            events.append("barrier")

    monkeypatch.setattr(_symmetric, "Memory", Own)
    return events


@pytest.mark.parametrize("exchange", ["all_to_all", "symmetric"])
@pytest.mark.parametrize("token_capacity", [None, 4])
def test_the_host_reads_no_tensor(group, monkeypatch, own_memory, token_capacity, exchange):
    module, x, probs = ranks.small(overlap_wgrad=True, token_capacity=token_capacity,
                                   exchange=exchange)
    indices = torch.tensor([[0], [1], [1], [0], [1], [1]])
    monkeypatch.setattr(module, "check", lambda: None)  # a GPU is not asked, either
    with _NoReads():
        y = module(x, indices, probs)
        y.backward(torch.ones_like(y))
    monkeypatch.undo()
    with pytest.raises(RuntimeError, match="capacity is 4 pairs: rank 0 has 6 for rank 0; the "
                                           "first that does not fit is of expert 1"):
        module.check()
    module.check()  # told once
    assert module.w1.grad is not None and not y[4:].any()


def test_tokens_that_do_not_fit_add_nothing(group, monkeypatch):
    """As on a GPU, where the call raises nothing: y and all gradients are those of the others."""
    module, _, _ = ranks.small(capacity=12, token_capacity=3)
    torch.manual_seed(1)
    x, probs = torch.randn(6, 32).bfloat16(), torch.rand(6, 2)
    indices = torch.tensor([[0, 1], [2, -1], [1, 0], [1, 1], [0, 2], [1, 0]])
    monkeypatch.setattr(module, "check", lambda: None)
    few, found = indices.clone(), []
    few[4:] = 2
    for given in (indices, few):
        leaf = x.clone().requires_grad_()
        y = module(leaf, given, probs)
        module.zero_grad()
        y.backward(torch.ones_like(y))
        found.append((y.detach(), leaf.grad, module.w1.grad, module.w2.grad))
    assert all(map(torch.equal, *found)) and found[0][0][3].any() and not found[0][0][4:].any()


class _Count(TorchDispatchMode):
    """Operators that are no views."""
    VIEWS = ("view", "slice", "expand", "select", "detach", "unsqueeze", "split")

    def __init__(self):
        super().__init__()
        self.found = []

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        name = str(function).split(".")[1]
        self.found += [] if name in self.VIEWS else [str(function)]
        return function(*args, **kwargs or {})


@pytest.mark.parametrize("exchange, token_capacity, most", [
    ("all_to_all", None, (30, 16)), ("all_to_all", 6, (37, 17)), ("all_to_all", 5, (61, 17)),
    ("symmetric", None, (33, 15)), ("symmetric", 6, (41, 15)), ("symmetric", 5, (63, 15))])
def test_few_operators(group, monkeypatch, own_memory, exchange, token_capacity, most):
    """The host's time is that of operators. There is room for more pairs than the rank has."""
    module, x, probs = ranks.small(capacity=7, token_capacity=token_capacity, exchange=exchange)
    indices = torch.tensor([[0], [1], [1], [0], [-1], [-1]])
    monkeypatch.setattr(module, "check", lambda: None)
    x, probs = x.requires_grad_(), probs.requires_grad_()
    for _ in range(2):
        with _Count() as forward:
            y = module(x, indices, probs)
        dy = torch.ones_like(y)
        with _Count() as backward:
            y.backward(dy)
    found = [count.found for count in (forward, backward)]
    assert all(len(names) <= n for names, n in zip(found, most)), (list(map(len, found)), found)


def test_what_runs_while_rows_are_sent(group, monkeypatch):
    """Between the start of an exchange and the wait for it, in both passes."""
    module, x, probs = ranks.small(overlap_wgrad=True)
    x, indices, probs, events = x[:4].clone(), torch.arange(4)[:, None] % 2, probs[:4], []
    scale = torch.ones(32, dtype=torch.bfloat16, requires_grad=True)
    for name in ("swap", "wait"):
        method = getattr(Ranks, name)
        monkeypatch.setattr(Ranks, name, lambda *args, name=name, method=method: (
            events.append(name), method(*args))[1])
    module.register_wgrad_accumulation_and_reduce_hooks(lambda: events.append("wgrad"))

    def shared(x):
        events.append("shared")
        y = x * scale
        y.register_hook(lambda _: events.append("its gradient"))
        return y

    y = module(x, indices, probs, shared=shared)
    head, rows = ["swap", "wait"], ["swap", "wait"]
    assert events == [head[0], rows[0], "shared", head[1], rows[1], "swap", "wait"]
    events.clear()
    y.backward(torch.ones_like(y))
    assert events == ["swap", "wait", "swap", "swap", "its gradient", "wgrad", "wait"]
    assert scale.grad is not None and module.w1.grad is not None


def test_chunks_overlap(group, monkeypatch):
    """The tokens of the second chunk are sent before the first one's experts, in both passes."""
    module, x, probs = ranks.small(chunks=2)
    indices, events = torch.arange(6)[:, None] % 2, []
    for name in ("swap", "wait"):
        method = getattr(Ranks, name)
        monkeypatch.setattr(Ranks, name, lambda *args, name=name, method=method: (
            events.append(name), method(*args))[1])

    class Moe(TorchDispatchMode):
        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            name = str(function).split(".")[1]
            events.extend([name] if name.startswith("moe") else [])
            return function(*args, **kwargs or {})

    chunk = ["wait", "wait", "moe_forward", "swap"]
    with Moe():
        y = module(x.clone().requires_grad_(), indices, probs)
    assert events == ["swap"] * 4 + chunk + chunk + ["wait", "wait"]
    events.clear()
    with Moe():
        y.backward(torch.ones_like(y))
    chunk = ["wait", "moe_backward", "moe_wgrad", "swap", "swap"]
    assert events == ["swap", "swap"] + chunk + chunk + ["wait", "wait"]


def test_barriers(group, monkeypatch, own_memory):
    """One before the tokens of a pass are written, and one after each exchange; rows are written
    between them, results by the layer."""
    module, x, probs = ranks.small(capacity=6, exchange="symmetric")

    class Puts(TorchDispatchMode):
        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            name = str(function).split(".")[1]
            own_memory.extend([name] if name in ("permute_", "moe_forward_", "moe_backward_") else [])
            return function(*args, **kwargs or {})

    with Puts():
        y = module(x.clone().requires_grad_(), torch.arange(6)[:, None] % 2, probs)
    tokens = ["barrier", "permute_", "barrier"]
    assert own_memory == [*tokens, "moe_forward_", "barrier"]
    own_memory.clear()
    with Puts():
        y.backward(torch.ones_like(y))
    assert own_memory == [*tokens, "moe_backward_", "barrier"]


def test_memory_that_cannot_be_mapped(group):
    with pytest.raises(RuntimeError, match="exchange='symmetric': rank 0 of 1 cannot map the "
                                           "memory .* exchange='all_to_all' serves all others: "):
        _symmetric.Memory(Ranks(None), 64, torch.device("cuda", 0))


def test_layers_share_symmetric_memory(group, own_memory):
    """And none is called while the tokens of another one are under way."""
    one, x, probs = ranks.small(capacity=6, exchange="symmetric")
    other = ranks.small(capacity=6, exchange="symmetric")[0]
    indices = torch.arange(6)[:, None] % 2
    assert one.peers.memory is other.peers.memory
    large = ranks.small(exchange="symmetric", capacity=20)[0]
    assert large.peers.memory is not one.peers.memory
    y = one(x, indices, probs) + other(x, indices, probs)
    for module in (one, other):
        with pytest.raises(RuntimeError, match="the memory has rows of another layer's call "
                                               "that has not ended: call no such layer in"):
            one(x, indices, probs, shared=lambda x: module(x, indices, probs))
    assert torch.equal(y, one(x, indices, probs, shared=lambda x: large(x, indices, probs)) * 2)


def test_autocast_and_no_grad(group):
    module, x, probs = ranks.small(recipe="mxfp8")
    x, indices, probs = torch.randn(2, 2, 32), torch.arange(4)[:, None] % 2, probs[:4]
    with torch.autocast("cpu", torch.bfloat16), torch.no_grad():
        y = module(x, indices, probs)
    assert y.dtype == torch.bfloat16 and y.shape == x.shape and not y.requires_grad
    assert torch.equal(y.view(4, 32), qt.moe(x.bfloat16().view(4, 32), indices, probs, module.w1,
                                             module.w2, recipe="mxfp8"))


def test_compiled_code_calls_it(group):
    module, x, probs = ranks.small()
    x, indices, probs = x[:4], torch.zeros(4, 1, dtype=torch.int64), probs[:4]
    with pytest.warns(UserWarning, match="eager mode here: torch.distributed exchanges the tokens"):
        y = torch.compile(module, backend="eager")(x + 1, indices, probs)
    assert torch.equal(y, module(x + 1, indices, probs))
    x, w = torch.randn(4, 32).bfloat16(), torch.randn(2, 16, 32).bfloat16()
    for function, what in ((qt.row_parallel_mm, "result"), (qt.column_parallel_mm, "gradient")):
        with pytest.warns(UserWarning, match=f"here: torch.distributed sums the {what}"):
            y = torch.compile(function, backend="eager")(x, w, [1, 3])
        assert torch.equal(y, qt.grouped_mm(x, w, [1, 3]))


@pytest.mark.parametrize("of", ["x", "dy"])
def test_quantizing_again_gives_the_same_codes(of):
    """Rows with every largest value of bfloat16 from 2^-100 on, and smaller values of all sizes, so
    that tokens of fp8_row may be sent as codes and scales."""
    largest = torch.arange(0x0d80, 0x7f80, dtype=torch.int16).view(torch.bfloat16)[:, None]
    torch.manual_seed(5)
    part = torch.randn(len(largest), 47) * 2.0**-torch.randint(0, 24, (47,))
    rows = torch.cat([largest, (largest * part.clamp(-1, 1)).bfloat16()], 1)
    rows[::2] *= -1
    rows[::97] = 0
    sizes = [len(rows)]
    first = qt.quantize(rows, sizes, recipe="fp8_row", of=of, copies="rowwise")
    values = qt.dequantize(first, sizes)
    again = qt.quantize(values, sizes, recipe="fp8_row", of=of, copies="rowwise")
    assert values.dtype == torch.bfloat16 and not torch.equal(values, rows)
    assert ranks.same(first.rowwise, again.rowwise)
    assert ranks.same(first.rowwise_sf, again.rowwise_sf)
