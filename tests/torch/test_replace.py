# SPDX-License-Identifier: Apache-2.0
"""aten::_grouped_mm by quern: values, layouts and strides as torch's; and the cases left to torch's kernel."""

import pytest
import torch
from conftest import DEVICE, Case, assert_near, uses

import quern.torch as qt
from quern.torch import switches

BOTH = (torch._grouped_mm, torch.nn.functional.grouped_mm)
CASE = Case([10, 0, 33, 5], n=48, k=64)


@pytest.fixture
def torch_calls(monkeypatch):
    """The calls that go on to torch's kernel."""
    calls = []

    class Spy:
        def __init__(self, kernel):
            self.kernel = kernel

        def call_boxed(self, *args):
            calls.append(args)
            return self.kernel.call_boxed(*args)

    with qt.replace_grouped_mm():
        monkeypatch.setattr(switches, "_own", {k: Spy(v) for k, v in switches._own.items()})
        yield calls


def other_layout(t):
    return t.transpose(-2, -1).contiguous().transpose(-2, -1)


def calls(case, dtype=torch.bfloat16):
    """Name -> operands, ends, the result in float64, and the part of it that is defined."""
    x, dy, w = (t.to(dtype) for t in (case.x, case.dy, case.w))
    ends, rows = case.sizes("offs")["offs"], slice(0, case.tokens)
    fprop, dgrad, wgrad = (f(*a) for f, a in ((case.fprop, (x, w)), (case.dgrad, (dy, w)),
                                              (case.wgrad, (dy, x))))
    every = torch.einsum("gnk,gmk->gnm", w.double(), w.double())
    yield "2d 3d", (x, w.transpose(1, 2)), ends, fprop, rows
    yield "2d 3d, gradient", (dy, w), ends, dgrad, rows
    yield "2d 2d", (dy.t(), x), ends, wgrad, ...
    yield "3d 2d", (w, x.t()), ends, fprop.t(), (..., rows)
    yield "3d 3d", (w, w.transpose(1, 2)), None, every, ...


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("lengths, n, k", [([10, 0, 33, 5], 48, 64), ([7, 1], 36, 24), ([9], 33, 18),
                                           ([0, 0], 16, 16)])
def test_values(torch_calls, lengths, n, k, dtype):
    """Any layout of either operand, widths that are no multiples of 16 bytes."""
    for name, (a, b), ends, expected, part in calls(Case(lengths, n, k), dtype):
        for left in (a, other_layout(a)):
            for right in (b, other_layout(b)):
                y = torch._grouped_mm(left, right, offs=ends)
                assert y.dtype == dtype
                if expected.numel():
                    assert_near(y[part], expected)
    assert not torch_calls


def test_strides_are_those_of_the_fake_kernel(torch_calls):
    for _, (a, b), ends, _, _ in calls(Case([7, 1], n=36, k=24)):
        try:
            fake = torch._grouped_mm(a.to("meta"), b.to("meta"), offs=ends if ends is None else
                                     ends.to("meta"))
        except RuntimeError as e:
            assert "multiple of 16 bytes" in str(e)  # torch has no such call; quern does
            continue
        y = torch._grouped_mm(a, b, offs=ends)
        assert (y.shape, y.stride()) == (fake.shape, fake.stride())


def test_values_that_are_not_aligned(torch_calls):
    lengths = CASE.sizes("offs")["offs"]
    x = torch.empty(CASE.rows * 64 + 1).to(torch.bfloat16)[1:].view(CASE.rows, 64).copy_(CASE.x)
    wide = torch.zeros(CASE.rows, 70).to(torch.bfloat16)
    wide[:, :64] = CASE.x
    for a in (x, wide[:, :64]):
        y = torch._grouped_mm(a, CASE.w.transpose(1, 2), offs=lengths)
        assert_near(y[:CASE.tokens], CASE.fprop(CASE.x, CASE.w))
    assert not torch_calls


@pytest.mark.parametrize("function", BOTH)
def test_gradients(torch_calls, function):
    x, w = (t.clone().requires_grad_() for t in (CASE.x, CASE.w))
    y = function(x, w.transpose(-2, -1), offs=CASE.sizes("offs")["offs"])
    y.backward(CASE.dy)
    assert_near(y[:CASE.tokens], CASE.fprop(CASE.x, CASE.w))
    assert_near(x.grad[:CASE.tokens], CASE.dgrad(CASE.dy, CASE.w))
    assert_near(w.grad, CASE.wgrad(CASE.dy, CASE.x))
    assert not torch_calls


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_compiled(torch_calls, backend):
    """Widths that torch pads: compiled code relies on the strides."""
    def layer(x, w, ends):
        return (torch._grouped_mm(x * 2, w.transpose(-2, -1), offs=ends) + 1).square()

    torch._dynamo.reset()
    compiled = torch.compile(layer, fullgraph=True, backend=backend)
    for lengths in ([10, 0, 33, 5], [3, 1, 0, 4]):
        case = Case(lengths, n=36, k=64)
        ends = case.sizes("offs")["offs"]
        for function in (layer, compiled):
            y = function(case.x, case.w, ends)[:case.tokens]
            assert_near(y, (case.fprop(case.x.double() * 2, case.w) + 1).square(), 2**-6)
    assert not torch_calls


def test_torch_keeps_the_rest(torch_calls):
    ends, w = CASE.sizes("offs")["offs"], CASE.w.transpose(1, 2)
    y = torch._grouped_mm(CASE.x.float(), w.float(), offs=ends)
    assert_near(y[:CASE.tokens], CASE.fprop(CASE.x, CASE.w), 1e-5)
    torch._grouped_mm(CASE.x, w, offs=ends, out_dtype=torch.bfloat16)
    assert len(torch_calls) == 1
    for args, more, sentence in [
            ((CASE.x, CASE.w), {"offs": ends}, "contraction dimension"),
            ((CASE.x, w), {"offs": ends, "out_dtype": torch.float32}, "dtype"),
            ((CASE.x, w), {}, "offs"),
            ((CASE.x, w.half()), {"offs": ends}, "."),
            ((CASE.x, w), {"offs": ends, "bias": CASE.x[0]}, ".")]:
        with pytest.raises(RuntimeError, match=sentence):
            torch._grouped_mm(*args, **more)
    assert len(torch_calls) == 6


def test_nothing_is_kept():
    """Each call has tensors of its own on the same memory: one that is kept would count."""
    bases = CASE.x.clone(), CASE.w.clone(), CASE.sizes("offs")["offs"]
    before = [uses(t) for t in bases]
    with qt.replace_grouped_mm():
        for _ in range(300):
            x, w, ends = (t[:] for t in bases)
            torch._grouped_mm(x, w.transpose(1, 2), offs=ends, out_dtype=torch.bfloat16)
            torch._grouped_mm(x, other_layout(w).transpose(1, 2), offs=ends)
            torch._grouped_mm(w, w.transpose(1, 2))
            with pytest.raises(RuntimeError):
                torch._grouped_mm(x, w, offs=ends)  # torch's sentence
            with pytest.raises(RuntimeError, match=r"ends has the shape \[3\]: \[4\] is expected"):
                torch._grouped_mm(x, w.transpose(1, 2), offs=ends[:3])  # quern's
    del x, w, ends
    assert [uses(t) for t in bases] == before


def computes(case):
    """Who computes: torch's kernel refuses rows that are no multiples of 16 bytes."""
    try:
        torch._grouped_mm(case.x, case.w.transpose(1, 2), offs=case.sizes("offs")["offs"])
    except RuntimeError as e:
        assert "multiple of 16 bytes" in str(e)
        return "torch"
    return "quern"


def test_undo():
    case = Case([3, 4], n=16, k=18)
    assert computes(case) == "torch"
    first, second = qt.replace_grouped_mm(), qt.replace_grouped_mm()
    first.undo()
    first.undo()  # does nothing
    assert computes(case) == "quern"
    second.undo()
    assert computes(case) == "torch"
    for _ in range(3):
        with qt.replace_grouped_mm():
            assert computes(case) == "quern"
        assert computes(case) == "torch"


@pytest.mark.skipif(DEVICE == "cpu", reason="needs a GPU")
def test_capture():
    """A graph follows sizes that change between its replays."""
    w, ends = CASE.w.transpose(1, 2), CASE.sizes("offs")["offs"]
    with qt.replace_grouped_mm():
        torch._grouped_mm(CASE.x, w, offs=ends)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            y = torch._grouped_mm(CASE.x, w, offs=ends)
        for lengths in ([10, 0, 33, 5], [0, 48, 0, 0], [1, 2, 3, 4]):
            case = Case(lengths, n=48, k=64, rows=CASE.rows)
            ends.copy_(case.sizes("offs")["offs"])
            graph.replay()
            case.x = CASE.x
            assert_near(y[:case.tokens], case.fprop(CASE.x, CASE.w))
