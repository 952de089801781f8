# SPDX-License-Identifier: Apache-2.0
"""grouped_mm with low-rank adapters: y and the gradients of x, a, b, w and a bias against float64,
a few training steps through packed weights, and arguments that are refused."""

import pytest
import torch
from conftest import DEVICE, Case, assert_near

import quern.torch as qt

RECIPES = {"bf16": torch.bfloat16, "fp16": torch.float16, "w4a16_mxfp4": torch.bfloat16,
           "w4a16_int4": torch.bfloat16, "w8a16_fp8_block": torch.bfloat16}


def adapters(case, rank, dtype):
    g = len(case.lengths)
    return [(torch.randn(shape) / shape[2]**.5).to(dtype).requires_grad_()
            for shape in ((g, rank, case.k), (g, case.n, rank))]


def weights_of(case, recipe):
    """As grouped_mm takes them, and their values in float64."""
    if not recipe.startswith("w"):
        return case.w, case.w.double()
    packed = qt.quantize(case.w, of="w", recipe=recipe)
    return packed, qt.dequantize(packed, dtype=torch.float32).double()


def expect(case, w, a, b, scale, bias=None):
    """y, with float64 leaves for x, a, b and the bias."""
    leaves = [t.detach().double().requires_grad_() for t in (case.x[:case.tokens], a, b)]
    x, a, b = leaves
    y = torch.cat([p @ w[e].T + scale * (p @ a[e].T) @ b[e].T + (0 if bias is None else bias[e])
                   for e, p in enumerate(x.split(case.lengths))])
    return y, leaves


@pytest.mark.parametrize("recipe", RECIPES)
@pytest.mark.parametrize("rank", [1, 8, 65])
def test_gradients(recipe, rank):
    case = Case([5, 0, 70, 1], n=128, k=256, dtype=RECIPES[recipe])
    a, b = adapters(case, rank, case.x.dtype)
    w, values = weights_of(case, recipe)
    x = case.x.clone().requires_grad_()
    y = qt.grouped_mm(x, w, **case.sizes(), recipe=recipe, lora=(a, b), lora_scaling=0.7)
    y.backward(case.dy)
    expected, leaves = expect(case, values, a, b, 0.7)
    expected.backward(case.dy[:case.tokens].double())
    assert_near(y[:case.tokens], expected.detach())
    assert_near(x.grad[:case.tokens], leaves[0].grad)
    for found, leaf in zip((a, b), leaves[1:]):
        assert found.grad.shape == leaf.shape and found.grad.dtype == x.dtype
        assert_near(found.grad, leaf.grad, 2**-7)


def test_with_weights_and_bias():
    case = Case([9, 0, 33], n=64, k=48)
    a, b = adapters(case, 16, torch.bfloat16)
    w, bias = case.w.clone().requires_grad_(), torch.randn(3, 64, requires_grad=True)
    scale = torch.tensor([0.5])
    y = qt.grouped_mm(case.x, w, **case.sizes("offs"), bias=bias, lora=(a, b), lora_scaling=scale,
                      outside="zero", out_dtype=torch.float32)
    dy = case.dy.float()
    y.backward(dy)
    expected, leaves = expect(case, case.w.double(), a, b, 0.5, bias.detach().double())
    expected.backward(case.dy[:case.tokens].double())
    assert_near(y[:case.tokens], expected.detach(), 2**-9)
    assert not y[case.tokens:].any()
    assert_near(w.grad, case.wgrad(case.dy, case.x))
    assert_near(bias.grad, torch.stack([p.sum(0) for p in case.parts(case.dy)]))
    for found, leaf in zip((a, b), leaves[1:]):  # x needs no gradient
        assert_near(found.grad, leaf.grad, 2**-7)


def test_without_adapters_effect():
    """b of zeros leaves y as it is, to the bit, and a without a gradient."""
    case = Case([40, 2], n=64, k=64)
    a, b = adapters(case, 8, torch.bfloat16)
    with torch.no_grad():
        b.zero_()
    y = qt.grouped_mm(case.x, case.w, **case.sizes(), lora=(a, b))
    assert torch.equal(y[:42], qt.grouped_mm(case.x, case.w, **case.sizes())[:42])
    y[:42].sum().backward()
    assert not a.grad.any() and b.grad.any()


def test_training_through_packed_weights():
    """Steps of SGD next to the same in float64: adapters approach a target through 4-bit weights."""
    case = Case([30, 0, 34], n=32, k=64, rows=64)
    w, values = weights_of(case, "w4a16_mxfp4")
    a, b = adapters(case, 8, torch.bfloat16)
    masters = [t.detach().double() for t in (a, b)]
    target = expect(case, values, *[torch.randn_like(t) / 4 for t in (a, b)], 1)[0].detach()
    losses = []
    for _ in range(6):
        a.grad = b.grad = None
        y = qt.grouped_mm(case.x, w, **case.sizes(), recipe="w4a16_mxfp4", lora=(a, b),
                          lora_scaling=2.0)
        loss = (y.float() - target.float()).square().mean()
        loss.backward()
        expected, leaves = expect(case, values, a, b, 2)
        (expected - target).square().mean().backward()
        assert_near(a.grad, leaves[1].grad, 2**-5)
        assert_near(b.grad, leaves[2].grad, 2**-5)
        losses.append(float(loss.detach()))
        with torch.no_grad():
            for t, master in zip((a, b), masters):
                master -= 0.5 * t.grad.double()
                t.copy_(master)
    assert losses[-1] < 0.7 * losses[0]


@pytest.mark.skipif(DEVICE != "cpu", reason="needs only one device")
def test_compiles():
    case = Case([12, 0, 20], n=32, k=64, rows=32)
    a, b = adapters(case, 8, torch.bfloat16)

    def step(x, w, a, b, sizes):
        return qt.grouped_mm(x, w, sizes, lora=(a, b), lora_scaling=0.5)

    args = case.x, case.w, a, b, case.sizes()["sizes"]
    expected = step(*args)
    expected.sum().backward()
    wanted = a.grad.clone(), b.grad.clone()
    a.grad = b.grad = None
    found = torch.compile(step, fullgraph=True, backend="aot_eager")(*args)
    found.sum().backward()
    assert torch.equal(found, expected)
    assert torch.equal(a.grad, wanted[0]) and torch.equal(b.grad, wanted[1])


@pytest.mark.parametrize("change, error, text", [
    ({"lora": 3}, TypeError, "lora: a pair of tensors"),
    ({"lora_scaling": "x"}, TypeError, "lora_scaling is str"),
    ({"lora_scaling": torch.ones(2)}, ValueError, r"lora_scaling has the shape \[2\]"),
    ({"lora_scaling": torch.ones(1).double()}, TypeError, "lora_scaling is torch.float64"),
    ({"recipe": "fp8_block"}, ValueError, "lora: recipe fp8_block quantizes x"),
    ({"main_grad": torch.zeros(2, 32, 64)}, ValueError, "lora cannot be combined with main_grad"),
    ({"rank": 257}, ValueError, "the rank is 257: 1 to 256"),
    ({"rank": 0}, ValueError, "the rank is 0: 1 to 256"),
    ({"dtype": torch.float16}, TypeError, r"lora\[0\] is torch.float16"),
    ({"features": 63}, ValueError, r"lora\[0\] has the shape \[2, 4, 63\]"),
])
def test_refused(change, error, text):
    case = Case([3, 4], n=32, k=64)
    rank, dtype = change.pop("rank", 4), change.pop("dtype", torch.bfloat16)
    a = torch.zeros(2, rank, change.pop("features", 64), dtype=dtype)
    change.setdefault("lora", (a, torch.zeros(2, 32, rank, dtype=dtype)))
    with pytest.raises(error, match=text):
        qt.grouped_mm(case.x, case.w, **case.sizes(), **change)
