# SPDX-License-Identifier: Apache-2.0
"""grouped_mm, grouped_mlp and moe with low-rank adapters: y and all gradients against float64, a few
training steps through packed weights, and arguments that are refused."""

import numpy as np
import pytest
import torch
from conftest import DEVICE, Case, assert_near

import quern.torch as qt

RECIPES = {"bf16": torch.bfloat16, "fp16": torch.float16, "w4a16_mxfp4": torch.bfloat16,
           "w4a16_int4": torch.bfloat16, "w8a16_fp8_block": torch.bfloat16,
           "w4a16_int4_fp16": torch.float16}


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


@pytest.mark.parametrize("recipe", RECIPES)
@pytest.mark.parametrize("rank", [1, 8, 65])
@pytest.mark.parametrize("scaling", [1, 0.3, 1e-8])
def test_gradient_of_a_without_that_of_x(recipe, rank, scaling):
    """lora_t is rounded once, after the factor: the bits are those of a call whose x has a
    gradient. With the least factor dy @ b exceeds the range of FP16, and times it does not."""
    case = Case([5, 0, 70, 1], n=128, k=256, dtype=RECIPES[recipe])
    a, b = adapters(case, rank, case.x.dtype)
    w, _ = weights_of(case, recipe)
    dy = case.dy * 2**12 if scaling == 1e-8 else case.dy
    found = []
    for need_x in (False, True):
        x = case.x.clone().requires_grad_(need_x)
        y = qt.grouped_mm(x, w, **case.sizes(), recipe=recipe, lora=(a, b), lora_scaling=scaling)
        found.append(torch.autograd.grad(y, a, dy)[0])
    assert found[1].isfinite().all() and torch.equal(*found)


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


@pytest.mark.parametrize("number", [np.float64, np.float32, np.int64])
def test_scaling_of_numpy(number):
    case = Case([40, 2], n=64, k=64)
    pair = adapters(case, 8, torch.bfloat16)
    found, expected = (qt.grouped_mm(case.x, case.w, **case.sizes(), lora=pair, lora_scaling=scale)
                       for scale in (number(2), 2.0))
    assert torch.equal(found[:42], expected[:42])


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
    ({"lora_scaling": torch.ones(1, requires_grad=True)}, ValueError,
     "lora_scaling requires a gradient: it has none"),
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


# ---------------------------------------------------------------------------------- experts


def act(pre, activation):
    a, b = pre.chunk(2, -1) if activation == "swiglu" else (pre, 1)
    return torch.nn.functional.silu(a) * b


class Experts:
    """w1 and w2, as the functions take them and in float64, and their adapters."""

    def __init__(self, recipe, activation="swiglu", groups=4, hidden=128, ffn=64, rank=8):
        torch.manual_seed(3)
        wide = 2 * ffn if activation == "swiglu" else ffn
        dtype = RECIPES[recipe]
        self.w, self.values, self.lora = [], [], []
        for n, k in ((wide, hidden), (hidden, ffn)):
            w = (torch.randn(groups, n, k) / k**.5).to(dtype)
            packed = qt.quantize(w, of="w", recipe=recipe) if recipe.startswith("w") else w
            self.w.append(packed)
            self.values.append(qt.dequantize(packed, dtype=torch.float32).double()
                               if recipe.startswith("w") else w.double())
            self.lora.append([(torch.randn(shape) / shape[2]**.5).to(dtype).requires_grad_()
                              for shape in ((groups, rank, k), (groups, n, rank))])
        self.b = [torch.randn(groups, n, requires_grad=True) for n in (wide, hidden)]
        self.activation, self.dtype = activation, dtype

    def leaves(self):
        """The same in float64: adapters, biases."""
        return [t.detach().double().requires_grad_() for t in (*self.lora[0], *self.lora[1],
                                                               *self.b)]

    def expect(self, e, x, prob, leaves, scale, with_bias=True):
        a1, b1, a2, b2, bias1, bias2 = leaves
        w1, w2 = self.values
        pre = x @ w1[e].T + scale * (x @ a1[e].T) @ b1[e].T + (bias1[e] if with_bias else 0)
        h = act(pre, self.activation) * prob
        return h @ w2[e].T + scale * (h @ a2[e].T) @ b2[e].T + (bias2[e] * prob if with_bias else 0)


def compare(found, expected, limit):
    for a, b in zip(found, expected):
        assert a.shape == b.shape
        assert_near(a, b, limit)


@pytest.mark.parametrize("recipe", ["bf16", "fp16", "w4a16_mxfp4", "w4a16_int4", "w4a16_int4_fp16"])
@pytest.mark.parametrize("activation, ffn", [("swiglu", 64), ("silu", 64), ("swiglu", 33),
                                             ("silu", 12)])
def test_mlp(recipe, activation, ffn):
    """With 33 and 12 the activation's rows are no multiples of 16 bytes."""
    experts = Experts(recipe, activation, ffn=ffn)
    case = Case([5, 0, 40, 1], n=128, k=128, dtype=experts.dtype)
    x, prob = case.x.clone().requires_grad_(), torch.rand(case.rows, requires_grad=True)
    y = qt.grouped_mlp(x, *experts.w, **case.sizes("offs"), recipe=recipe, activation=activation,
                       prob=prob, b1=experts.b[0], b2=experts.b[1], lora1=experts.lora[0],
                       lora2=experts.lora[1], lora_scaling=0.7, outside="zero")
    y.backward(case.dy)
    assert not y[case.tokens:].any() and not prob.grad[case.tokens:].any()
    leaves = experts.leaves()
    x64, p64 = (t.detach()[:case.tokens].double().requires_grad_() for t in (x, prob))
    expected = torch.cat([experts.expect(e, part, p[:, None], leaves, 0.7) for e, (part, p) in
                          enumerate(zip(x64.split(case.lengths), p64.split(case.lengths)))])
    expected.backward(case.dy[:case.tokens].double())
    assert_near(y[:case.tokens], expected.detach(), 2**-7)
    compare([t.grad for t in (*experts.lora[0], *experts.lora[1], *experts.b)],
            [t.grad for t in leaves], 2**-6)
    compare([x.grad[:case.tokens], prob.grad[:case.tokens]], [x64.grad, p64.grad], 2**-6)


@pytest.mark.parametrize("which", [0, 1])
def test_mlp_with_one_pair(which):
    """Next to one of the weights: b of zeros gives what grouped_mlp gives without adapters."""
    experts = Experts("bf16")
    case = Case([30, 2, 0, 8], n=128, k=128)
    a, b = experts.lora[which]
    pairs = {f"lora{which + 1}": (a, torch.zeros_like(b).requires_grad_())}
    y = qt.grouped_mlp(case.x, *experts.w, **case.sizes(), **pairs)
    assert_near(y[:40], qt.grouped_mlp(case.x, *experts.w, **case.sizes())[:40], 2**-7)
    y = qt.grouped_mlp(case.x, *experts.w, **case.sizes(), **{f"lora{which + 1}": (a, b)})
    leaves = experts.leaves()
    for t in leaves[2 - 2 * which:4 - 2 * which]:
        t.data.zero_()
    expected = torch.cat([experts.expect(e, part, 1, leaves, 1, False) for e, part in
                          enumerate(case.x[:40].double().split(case.lengths))])
    assert_near(y[:40], expected.detach(), 2**-7)


@pytest.mark.parametrize("prob", ["x", "h", "y", None])
@pytest.mark.parametrize("recipe", ["bf16", "w4a16_mxfp4"])
def test_moe(recipe, prob):
    """Experts 2 to 5 of 6 are here; a dropped pair; a residual."""
    experts = Experts(recipe)
    x, residual = (torch.randn(20, 128).bfloat16().requires_grad_() for _ in range(2))
    probs = torch.rand(20, 2, requires_grad=True)
    indices = torch.stack([torch.randperm(6)[:2] for _ in range(20)])
    indices[3, 1] = -1
    more = {} if prob is None else {"prob": prob}
    y = qt.moe(x, indices, None if prob is None else probs, *experts.w, recipe=recipe, first=2,
               experts=6, residual=residual, lora1=experts.lora[0], lora2=experts.lora[1],
               lora_scaling=0.5, **more)
    dy = torch.randn_like(y)
    y.backward(dy)
    leaves = experts.leaves()
    x64, r64, p64 = (t.detach().double().requires_grad_() for t in (x, residual, probs))
    expected = []
    for i in range(20):
        total = r64[i]
        for e, p in zip(indices[i].tolist(), p64[i]):
            if 2 <= e < 6:
                factors = [p if prob == name else 1 for name in ("x", "h", "y")]
                total = total + factors[2] * experts.expect(
                    e - 2, x64[i:i + 1] * factors[0], factors[1], leaves, 0.5, False)[0]
        expected.append(total)
    expected = torch.stack(expected)
    expected.backward(dy.double())
    assert_near(y, expected.detach(), 2**-6)
    compare([t.grad for t in (*experts.lora[0], *experts.lora[1])],
            [t.grad for t in leaves[:4]], 2**-5)
    compare([x.grad, residual.grad], [x64.grad, r64.grad], 2**-5)
    if prob is not None:
        assert_near(probs.grad, p64.grad, 2**-5)


@pytest.mark.skipif(DEVICE != "cpu", reason="needs only one device")
def test_mlp_compiles():
    experts, case = Experts("bf16"), Case([12, 0, 20, 8], n=128, k=128, rows=40)

    def step(x, sizes, w1, w2, *lora):
        return qt.grouped_mlp(x, w1, w2, sizes, lora1=lora[:2], lora2=lora[2:], lora_scaling=0.5)

    lora = (*experts.lora[0], *experts.lora[1])
    args = case.x, case.sizes()["sizes"], *experts.w, *lora
    expected = step(*args)
    expected.sum().backward()
    wanted = [t.grad.clone() for t in lora]
    for t in lora:
        t.grad = None
    found = torch.compile(step, fullgraph=True, backend="aot_eager")(*args)
    found.sum().backward()
    assert torch.equal(found, expected)
    assert all(torch.equal(t.grad, w) for t, w in zip(lora, wanted))


@pytest.mark.parametrize("change, error, text", [
    ({"lora1": 3}, TypeError, "lora1: a pair of tensors"),
    ({"lora2": (1, 2)}, TypeError, r"lora2\[0\]"),
    ({"lora1": "swapped"}, ValueError, r"lora1\[0\] has the shape"),
    ({"recompute": True}, ValueError, "lora1 or lora2 cannot be combined with recompute"),
    ({"queue": 1}, ValueError, "lora1 or lora2 cannot be combined with queue"),
    ({"recipe": "fp8_block"}, ValueError, "lora1: recipe fp8_block quantizes x"),
    ({"activation": "tanh"}, ValueError, "activation is 'tanh'"),
    ({"lora_scaling": "x"}, TypeError, "lora_scaling is str"),
    ({"b1": torch.zeros(4, 128)}, ValueError, "b1, b2: both or none"),
])
def test_mlp_refused(change, error, text):
    experts, case = Experts("bf16"), Case([3, 4, 0, 0], n=128, k=128)
    a, b = experts.lora[0]
    if change.get("lora1") == "swapped":
        change = {"lora1": (b, a)}
    with pytest.raises(error, match=text):
        qt.grouped_mlp(case.x, *experts.w, **case.sizes(), **{"lora1": (a, b), **change})
