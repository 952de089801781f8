# SPDX-License-Identifier: Apache-2.0
"""Tests that need a GPU: CUDA graphs whose sizes change before each replay, reduce-overhead,
streams, and the refusals of a capture. QUERN_TORCH_DEVICE=cuda runs them."""

import pytest
import torch
from conftest import DEVICE, Case, assert_near, captured, in_threads

import quern.torch as qt

pytestmark = pytest.mark.skipif(DEVICE == "cpu", reason="needs a GPU: QUERN_TORCH_DEVICE=cuda")
BF16 = torch.bfloat16
EXPERTS, FEATURES, ROWS = 4, 256, 512
SPLITS = ([128] * 4, [0, 300, 0, 7], [0] * 4, [512, 0, 0, 0], [1, 2, 3, 4], [0, 0, 0, 511])


def make(kind, **more):
    torch.manual_seed(0)
    more = {"params_dtype": BF16, "device": DEVICE, "outside": "zero"} | more
    if kind == "linear":
        return qt.GroupedLinear(EXPERTS, FEATURES, FEATURES, **more)
    return qt.GroupedMLP(EXPERTS, FEATURES, 128, **more)


def data():
    torch.manual_seed(1)
    x, dy = torch.randn(2, ROWS, FEATURES).to(BF16)
    return x.requires_grad_(), dy, torch.tensor(SPLITS[0])


# ---------------------------------------------------------------------------------------- graphs


@pytest.mark.parametrize("kind", ["linear", "mlp"])
@pytest.mark.parametrize("recipe", ["bf16", "fp8_block", "mxfp8"])
@pytest.mark.parametrize("more", [{}, {"bias": True}], ids=str)
def test_a_graph_with_other_sizes_before_each_replay(kind, recipe, more):
    module, (x, dy, sizes) = make(kind, recipe=recipe, **{"bias": False} | more), data()

    def step():
        y = module(x, sizes)
        return y, *torch.autograd.grad(y, (x, *module.parameters()), dy)

    graph, results = captured(step)
    for lengths in SPLITS:
        sizes.copy_(torch.tensor(lengths))
        with torch.no_grad():
            x.normal_()
        graph.replay()
        assert all(map(torch.equal, results, step())), lengths


@pytest.mark.parametrize("recipe", ["bf16", "fp8_block"])
def test_buffers_main_grad_and_kept_weights_in_a_graph(recipe):
    module = make("linear", recipe=recipe, fuse_wgrad_accumulation=True, outside=None, bias=False,
                  single_grouped_weight=True)
    module.weight.main_grad = torch.zeros(module.weight.shape)
    x, dy, sizes = data()
    out, dgrad_out = torch.full((2, ROWS, FEATURES), 7.0, dtype=BF16)
    first = torch.tensor([1])
    module(x, sizes, True)  # memory for the quantized weights

    def step():
        y = module(x * 1, sizes, first, out, dgrad_out)
        torch.autograd.grad(y, x, dy)
        return y

    graph, y = captured(step)
    assert y.data_ptr() == out.data_ptr()
    for i, lengths in enumerate(SPLITS):
        sizes.copy_(torch.tensor(lengths))
        first.fill_(int(i != 3))
        if i in (1, 3):  # not seen by replay 3, which keeps the quantized weights
            with torch.no_grad():
                module.weight.normal_(0, 0.1)
                before = module.weight.clone() if i == 1 else before
        out.fill_(7)
        dgrad_out.fill_(7)
        module.weight.main_grad.zero_()
        graph.replay()
        end, main_grad = sum(lengths), module.weight.main_grad.clone()
        assert (out[end:] == 7).all() and (dgrad_out[end:] == 7).all()
        if i == 3 and recipe != "bf16":
            with torch.no_grad():
                module.weight.copy_(before)
        expected = make("linear", recipe=recipe, bias=False, single_grouped_weight=True)
        expected.load_state_dict(module.state_dict())
        z = x.detach().clone().requires_grad_()
        again = expected(z, sizes)
        again.backward(dy)
        assert torch.equal(out[:end], again[:end]) and torch.equal(dgrad_out[:end], z.grad[:end])
        assert_near(main_grad, expected.weight.grad.double(), 2**-7)


def test_two_graphs_at_once_on_two_streams():
    modules = [make("mlp", recipe="fp8_block") for _ in range(2)]
    graphs, expected, inputs = [], [], [data() for _ in modules]  # graphs read them at replays
    for module, (x, dy, sizes) in zip(modules, inputs):
        def step(module=module, x=x, dy=dy, sizes=sizes):
            y = module(x, sizes)
            return y, *torch.autograd.grad(y, (x, module.w1, module.w2), dy)

        # Detached: a graph of autograd that lives on ties the leaves to this stream.
        expected.append([t.detach() for t in step()])
        graphs.append(captured(step))
    streams = [torch.cuda.Stream() for _ in graphs]
    for stream in streams:
        stream.wait_stream(torch.cuda.current_stream())
    for _ in range(100):
        for stream, (graph, _) in zip(streams, graphs):
            with torch.cuda.stream(stream):
                graph.replay()
    torch.cuda.synchronize()
    for (_, results), wanted in zip(graphs, expected):
        assert all(map(torch.equal, results, wanted))


def test_make_graphed_callables():
    module, (x, dy, sizes) = make("linear", recipe="fp8_block"), data()
    expected = torch.autograd.grad(module(x, sizes), (x, *module.parameters()), dy)
    graphed = torch.cuda.make_graphed_callables(module, (x, sizes))
    y = graphed(x, sizes)
    assert all(map(torch.equal, torch.autograd.grad(y, (x, *module.parameters()), dy), expected))


def test_what_a_capture_refuses():
    x, dy, sizes = data()
    w = torch.randn(EXPERTS, FEATURES, FEATURES).to(BF16)
    qt.grouped_mm(x, w, sizes)
    new = torch.randn(EXPERTS, 264, FEATURES).to(BF16)
    on_host = torch.tensor(SPLITS[1], device="cpu")
    for call, sentence in ((lambda: qt.grouped_mm(x, w, SPLITS[1]), "would freeze"),
                           (lambda: qt.grouped_mm(x, w, on_host), "would freeze"),
                           (lambda: qt.grouped_mm(x, new, sizes), "captur")):
        graph = torch.cuda.CUDAGraph()
        with pytest.raises(RuntimeError, match=sentence):
            with torch.cuda.graph(graph):
                call()
        torch.cuda.synchronize()
        qt.grouped_mm(x, w, sizes)  # the process stays usable


# ------------------------------------------------------------------------------- reduce-overhead


@pytest.mark.parametrize("kind", ["linear", "mlp"])
@pytest.mark.parametrize("recipe", ["bf16", "fp8_block"])
@pytest.mark.parametrize("fuse", [False, True])
def test_reduce_overhead_has_no_skips(kind, recipe, fuse):
    from torch._dynamo.utils import counters

    torch._dynamo.reset()
    counters.clear()
    more = {"single_grouped_weight": True, "bias": False} if kind == "linear" else {}
    module = make(kind, recipe=recipe, fuse_wgrad_accumulation=fuse, **more)
    if fuse:
        for p in module.parameters():
            p.main_grad = torch.zeros(p.shape)
            torch._dynamo.mark_static_address(p.main_grad)
    compiled = torch.compile(module, fullgraph=True, mode="reduce-overhead")
    x, dy, sizes = data()
    for i, lengths in enumerate(SPLITS * 2):
        sizes.copy_(torch.tensor(lengths))
        results = []
        for function in (compiled, module):
            torch.compiler.cudagraph_mark_step_begin()
            module.zero_grad()
            for p in module.parameters() if fuse else ():
                p.main_grad.zero_()
            z = x.detach().clone().requires_grad_()
            y = function(z, sizes)
            y.backward(dy)
            results.append([y.detach().clone(), z.grad.clone()] + [
                (p.main_grad if fuse else p.grad).clone() for p in module.parameters()])
        assert all(map(torch.equal, *results)), (i, lengths)
    assert counters["inductor"]["cudagraph_skips"] == 0


@pytest.mark.parametrize("kind", ["linear", "mlp"])
def test_reduce_overhead_with_kept_weights(kind):
    """A flag on the device says when the weights are quantized again."""
    from torch._dynamo.utils import counters

    torch._dynamo.reset()
    counters.clear()
    module = make(kind, recipe="fp8_block", **({"single_grouped_weight": True, "bias": False}
                                               if kind == "linear" else {}))
    compiled = torch.compile(module, fullgraph=True, mode="reduce-overhead")
    (x, dy, sizes), first = data(), torch.tensor([1])
    for i, lengths in enumerate(SPLITS * 2):
        sizes.copy_(torch.tensor(lengths))
        first.fill_(int(i % 3 == 0))
        if i % 3 == 0:
            with torch.no_grad():
                for p in module.parameters():
                    p.mul_(1.25)
        torch.compiler.cudagraph_mark_step_begin()
        module.zero_grad()
        z = x.detach().clone().requires_grad_()
        y = compiled(z, sizes, is_first_microbatch=first)
        y.backward(dy)
        module.zero_grad()  # those are memory of the graph
        again = x.detach().clone().requires_grad_()
        expected = module(again, sizes)
        expected.backward(dy)
        assert torch.equal(y, expected) and torch.equal(z.grad, again.grad), (i, lengths)
    assert counters["inductor"]["cudagraph_skips"] == 0


# --------------------------------------------------------------------------------------- streams


@pytest.mark.parametrize("recipe", ["bf16", "fp8_block"])
def test_two_streams_by_turns(recipe):
    module, (x, dy, sizes) = make("mlp", recipe=recipe), data()
    expected = module(x, sizes).detach()
    streams, results = [torch.cuda.Stream() for _ in range(2)], []
    for stream in streams:
        stream.wait_stream(torch.cuda.current_stream())
    for i in range(200):
        with torch.cuda.stream(streams[i % 2]), torch.no_grad():
            results.append(module(x, sizes))
    torch.cuda.synchronize()
    assert all(torch.equal(y, expected) for y in results)


def test_a_run_waits_for_its_stream():
    module, (x, _, sizes) = make("linear"), data()
    expected = module(x, sizes).detach()
    late, stream = torch.zeros_like(x), torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream), torch.no_grad():
        torch.cuda._sleep(50_000_000)
        late.copy_(x)
        y = module(late, sizes)
    stream.synchronize()
    assert torch.equal(y, expected)


def test_a_queue_flushed_on_another_stream():
    """Operands come from one stream and are freed after the flush on another, which is late."""
    queue, stream, main_grad = qt.WgradQueue(), torch.cuda.Stream(), None
    case = Case([128, 0, 300, 84], n=256, k=256, rows=512)
    main_grad, expected = torch.zeros(2, 4, 256, 256)
    w = case.w.clone().requires_grad_()
    stream.wait_stream(torch.cuda.current_stream())
    for _ in range(8):
        for into, q in ((main_grad, queue), (expected, None)):
            x = case.x.clone()
            qt.grouped_mm(x, w, case.lengths, main_grad=into, queue=q).backward(case.dy)
    with torch.cuda.stream(stream):
        torch.cuda._sleep(50_000_000)
        queue.flush()
    del x
    junk = [torch.full_like(case.x, float("nan")) for _ in range(32)]  # may not reuse that memory
    queue.flush()
    torch.cuda.synchronize()
    assert len(junk) == 32 and torch.equal(main_grad, expected)


def test_backward_in_many_threads():
    """Autograd's threads, and six of ours, begin without a current context."""
    module, (x, dy, sizes) = make("mlp", recipe="fp8_block"), data()
    expected = torch.autograd.grad(module(x, sizes), (x, module.w1, module.w2), dy)
    torch.cuda.synchronize()

    def work():
        with torch.device(DEVICE), torch.cuda.stream(torch.cuda.Stream()):
            for _ in range(10):
                y = module(x, sizes)
                found = torch.autograd.grad(y, (x, module.w1, module.w2), dy)
                assert all(map(torch.equal, found, expected))

    in_threads(work)


# ------------------------------------------------------------------------------- errors, buffers


def test_check_reports_what_kernels_found():
    x, _, _ = data()
    w = torch.randn(EXPERTS, FEATURES, FEATURES).to(BF16)
    qt.grouped_mm(x, w, torch.tensor([128, 0, 3000, 5]))
    with pytest.raises(RuntimeError, match="group 2"):
        qt.check()
    qt.check()  # reported once


def test_devices_must_agree():
    module, (x, _, sizes) = make("linear"), data()
    with pytest.raises(ValueError, match="w is on cuda:0 and the values on cpu"):
        module(x.cpu(), sizes.cpu())
    with pytest.raises(ValueError, match="out is on cpu"):
        module(x, sizes, out=torch.empty(ROWS, FEATURES, dtype=BF16, device="cpu"))


def test_sizes_on_the_host_give_the_same_bits():
    module, (x, _, sizes) = make("linear"), data()
    for given in (SPLITS[0], torch.tensor(SPLITS[0], device="cpu")):
        assert torch.equal(module(x, given), module(x, sizes))
