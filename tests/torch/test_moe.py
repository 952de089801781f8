# SPDX-License-Identifier: Apache-2.0
"""moe, and its parts, against loops over tokens and choices in float64."""

import os
import re

import pytest
import torch
from conftest import DEVICE, ROOT, assert_near

import quern.torch as qt
from quern.torch.modules import _FORMULAS

TOKENS, TOPK, EXPERTS, HIDDEN, FFN = 37, 3, 6, 64, 32
NAMES = ("x", "probs", "w1", "w2", "residual")


def operands(dtype=torch.bfloat16, experts=EXPERTS):
    torch.manual_seed(2)
    given = {"x": torch.randn(TOKENS, HIDDEN).to(dtype), "probs": torch.rand(TOKENS, TOPK),
             "w1": torch.randn(experts, 2 * FFN, HIDDEN).mul(0.2).to(dtype),
             "w2": torch.randn(experts, HIDDEN, FFN).mul(0.2).to(dtype),
             "residual": torch.randn(TOKENS, HIDDEN).to(dtype)}
    return {name: t.requires_grad_() for name, t in given.items()}


def draw(how, kind=torch.int64):
    torch.manual_seed(3)
    indices = torch.rand(TOKENS, EXPERTS).argsort(1)[:, :TOPK].to(kind)
    if how == "one":
        indices.fill_(2)
    elif how == "none":
        indices.fill_(-1)
    elif how == "dropped":
        indices[::3, 1] = EXPERTS
        indices[4] = -5
    return indices


def reference(given, indices, dy, first, experts):
    t = {name: v.detach().double().requires_grad_() for name, v in given.items()}
    total = []
    for token in range(TOKENS):
        y = t["residual"][token]
        for k in range(TOPK):
            e = int(indices[token, k]) - first
            if 0 <= e < experts:
                pre = t["w1"][e] @ t["x"][token]
                h = _FORMULAS["swiglu"](pre[:FFN], pre[FFN:], 7.0, 1.702, 1.0)
                y = y + t["w2"][e] @ (h * t["probs"][token, k])
        total.append(y)
    y = torch.stack(total)
    y.backward(dy.double())
    return y.detach(), {name: torch.zeros_like(v) if v.grad is None else v.grad
                        for name, v in t.items()}


def run(given, indices, dy, **more):
    for t in given.values():
        t.grad = None
    y = qt.moe(given["x"], indices, given["probs"], given["w1"], given["w2"],
               residual=given["residual"], **more)
    y.backward(dy)
    return y.detach(), {name: t.grad for name, t in given.items()}


@pytest.mark.parametrize("how", ["even", "one", "none", "dropped"])
@pytest.mark.parametrize("where", ["h", "y"])
def test_layer(how, where):
    given, indices, dy = operands(), draw(how), torch.randn(TOKENS, HIDDEN).bfloat16()
    y, grads = run(given, indices, dy, prob=where)
    expected, wanted = reference(given, indices, dy, 0, EXPERTS)
    assert_near(y, expected, 0.02)
    for name in NAMES:
        assert_near(grads[name], wanted[name], 0.02)


def test_window_of_experts():
    """Two ranks with half of the experts each add up to one with all."""
    given, indices = operands(), draw("dropped", torch.int32)
    dy = torch.randn(TOKENS, HIDDEN).bfloat16()
    for first in (0, 3):
        half = {name: t.detach()[first:first + 3].clone().requires_grad_() if name[0] == "w" else t
                for name, t in given.items()}
        y, grads = run(half, indices, dy, first=first, experts=EXPERTS)
        expected, wanted = reference(half, indices, dy, first, 3)
        assert_near(y, expected, 0.02)
        for name in NAMES:
            assert_near(grads[name], wanted[name], 0.02)


def test_prob_of_tokens():
    """With squared_relu and prob=x the probability is squared."""
    given, indices = operands(), draw("even")
    w1 = given["w1"].detach()[:, :FFN].contiguous()
    p = given["probs"].detach().bfloat16().float()
    options = {"activation": "squared_relu", "recipe": "bf16"}
    x = given["x"].detach().requires_grad_()
    probs = p.clone().requires_grad_()
    y = qt.moe(x, indices, probs, w1, given["w2"].detach(), prob="x", **options)
    squares = p.clone().requires_grad_()
    other = qt.moe(x.detach(), indices, squares ** 2, w1, given["w2"].detach(), prob="h",
                   **options)
    assert_near(y.detach(), other.detach().double(), 0.02)
    dy = torch.randn_like(y)
    y.backward(dy)
    other.backward(dy)
    assert_near(probs.grad, squares.grad.double(), 0.03)


def test_tokens_do_not_depend_on_others():
    given, indices = operands(), draw("even")
    y = qt.moe(given["x"], indices, given["probs"], given["w1"], given["w2"])
    few = qt.moe(given["x"][5:9], indices[5:9], given["probs"][5:9].double(), given["w1"],
                 given["w2"])
    assert torch.equal(y[5:9], few)


@pytest.mark.parametrize("recipe", ["fp8_block", "mxfp8"])
def test_recipes(recipe):
    given, indices, dy = operands(), draw("dropped"), torch.randn(TOKENS, HIDDEN).bfloat16()
    y, grads = run(given, indices, dy, recipe=recipe)
    expected, wanted = reference(given, indices, dy, 0, EXPERTS)
    assert_near(y, expected, 0.12)
    for name in NAMES:
        assert_near(grads[name], wanted[name], 0.12)


def test_parts():
    indices = draw("dropped")
    sizes, inverse = qt.route(indices, EXPERTS)
    order = [i for e in range(EXPERTS) for i, v in enumerate(indices.reshape(-1)) if v == e]
    assert sizes.tolist() == [int((indices == e).sum()) for e in range(EXPERTS)]
    flat = inverse.reshape(-1)
    assert [int(flat[i]) for i in order] == list(range(len(order)))
    assert int((flat < 0).sum()) == TOKENS * TOPK - len(order)
    x = torch.randn(TOKENS, 40)
    rows = qt.permute(x, inverse)
    assert torch.equal(rows[:len(order)], x[torch.tensor(order) // TOPK])


def test_the_program_of_the_readme():
    with open(os.path.join(ROOT, "README.md"), encoding="utf-8") as file:
        block = re.search(r"^```python\n(.*?)^```$", file.read(), re.DOTALL | re.MULTILINE)[1]
    names = {}
    exec(block, names)
    assert names["y"].shape == names["x"].grad.shape and names["x"].grad.any()


def test_compiles():
    given, indices = operands(), draw("even")
    args = [given[name].detach() for name in ("x", "probs", "w1", "w2")]

    def layer(x, probs, w1, w2):
        return qt.moe(x, indices, probs, w1, w2)

    compiled = torch.compile(layer, fullgraph=True, backend="aot_eager")
    assert torch.equal(compiled(*args), layer(*args))


def test_bad_input():
    given = operands()
    x, probs, w1, w2 = (given[name].detach() for name in ("x", "probs", "w1", "w2"))
    indices = draw("even")
    with pytest.raises(ValueError, match="prob is 'z'"):
        qt.moe(x, indices, probs, w1, w2, prob="z")
    with pytest.raises(TypeError, match="indices: a tensor of int32 or int64"):
        qt.moe(x, indices.float(), probs, w1, w2)
    with pytest.raises(ValueError, match="probs"):
        qt.moe(x, indices, probs[:, :2], w1, w2)
    with pytest.raises(TypeError, match=r"moe\(\) got an unexpected keyword argument 'residul'"):
        qt.moe(x, indices, probs, w1, w2, residul=None)
    for more, kind, words in (
            ({"first": "1"}, TypeError, "first is str: an integer from 0"),
            ({"first": True}, TypeError, "first is bool: an integer from 0"),
            ({"experts": "4 residual=1"}, TypeError, "experts is str: an integer from 1"),
            ({"experts": 0}, ValueError, "experts is 0: an integer from 1"),
            ({"lora_scaling": "x"}, TypeError, "lora_scaling is str")):
        with pytest.raises(kind, match=words):
            qt.moe(x, indices, probs, w1, w2, **more)
    with pytest.raises(TypeError, match="w1 is NoneType: a tensor is expected"):
        qt.moe(x, indices, probs, None, w2, lora1=(w1, w1))
    for experts in (4.0, "4", None):
        with pytest.raises(TypeError, match="experts is .*: an integer from 1 is expected"):
            qt.route(indices, experts)
    with pytest.raises(TypeError, match="offs: moe sorts the rows itself"):
        qt.moe(x, indices, probs, w1, w2, offs=indices)
    with pytest.raises(ValueError, match="37 rows are expected"):
        qt.moe(x[:30], indices, None, w1, w2)
    for value in (None, [[1.0]]):
        with pytest.raises(TypeError, match="x is .*: a tensor is expected"):
            qt.moe(value, indices, probs, w1, w2)
    with pytest.raises(TypeError, match="prob is list: a tensor is expected"):
        qt.grouped_mlp(x, w1, w2, [0] * EXPERTS, prob=[1.0] * TOKENS)
    with pytest.raises(TypeError, match="residual is int: a tensor is expected"):
        qt.moe(x, indices, probs, w1, w2, residual=3)
    indices[7, 2] = EXPERTS + 1
    with pytest.raises(Exception, match="token 7, k 2: index is 7: at most 5 is expected"):
        qt.moe(x, indices, probs, w1, w2)
        qt.check(DEVICE)  # a GPU reports it here


@pytest.mark.parametrize("recipe", ["bf16", "fp8_row"])
def test_shapes_of_the_residual(recipe):
    """That of x, or [tokens, hidden]; others with as many values would be added to other tokens."""
    x, probs, w1, w2, residual = [t.detach()[:6] for t in operands().values()]
    indices, cube = draw("even")[:6], (2, 3, HIDDEN)
    expected = qt.moe(x, indices, probs, w1, w2, residual=residual, recipe=recipe)
    for shape in ((6, HIDDEN), cube):
        y = qt.moe(x.reshape(cube), indices, probs, w1, w2, residual=residual.reshape(shape),
                   recipe=recipe)
        assert torch.equal(y, expected.reshape(cube))
    for shape in ((3, 2, HIDDEN), (12, HIDDEN // 2)):
        with pytest.raises(ValueError, match=r"residual has the shape .*64\] is expected"):
            qt.moe(x.reshape(cube), indices, probs, w1, w2, residual=residual.reshape(shape),
                   recipe=recipe)


@pytest.mark.parametrize("recipe", ["bf16", "fp8_row"])
def test_autocast_casts_the_residual_as_x(recipe):
    x, probs, w1, w2, residual = operands(torch.float32).values()
    low = [t.detach().bfloat16() for t in (x, residual)]
    indices = draw("even")
    weights = [w.bfloat16() if recipe == "bf16" else w for w in (w1, w2)]
    with torch.autocast(DEVICE, torch.bfloat16):
        y = qt.moe(x, indices, probs, w1, w2, residual=residual, recipe=recipe)
    assert torch.equal(y, qt.moe(low[0], indices, probs, *weights, residual=low[1], recipe=recipe))
