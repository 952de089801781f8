# SPDX-License-Identifier: Apache-2.0
"""grouped_mlp, GroupedMLP and Sequential, against a loop over the experts in float64."""

import copy
import pickle

import pytest
import torch
import torch.nn.functional as F
from conftest import DEVICE, Case, assert_near

import quern.torch as qt
from quern import GATED, PLAIN
from quern.torch.modules import _FORMULAS, why_not_fused

BF16 = torch.bfloat16
LENGTHS, HIDDEN, FFN = [10, 0, 33, 5], 64, 32
NAMES = ("x", "w1", "w2", "b1", "b2", "prob")


def operands(activation="swiglu", dtype=BF16):
    """Case and a dictionary of leaves. Rows after the last expert's are NaN."""
    case = Case(LENGTHS, n=HIDDEN, k=HIDDEN, dtype=dtype)
    wide = FFN if activation in PLAIN else 2 * FFN
    values = {"x": case.x, "w1": torch.randn(4, wide, HIDDEN).mul(0.2).to(dtype),
              "w2": torch.randn(4, HIDDEN, FFN).mul(0.2).to(dtype), "b1": torch.randn(4, wide),
              "b2": torch.randn(4, HIDDEN), "prob": torch.rand(case.rows)}
    return case, {name: t.clone().requires_grad_() for name, t in values.items()}


def reference(case, given, activation, interleave=0, dy=None):
    """y and the gradients of those that are given, in float64."""
    t = {name: v.detach().double().requires_grad_() for name, v in given.items()}
    rows, parts = 0, []
    for e, length in enumerate(case.lengths):
        x = t["x"][rows:rows + length]
        pre = x @ t["w1"][e].T + (t["b1"][e] if "b1" in t else 0)
        if activation in PLAIN:
            h = _FORMULAS[activation](pre)
        else:
            a, b = pre.unflatten(-1, (-1, 2, interleave or FFN)).unbind(-2)
            h = _FORMULAS[activation](a.flatten(-2), b.flatten(-2), 7.0, 1.702, 1.0)
        p = t["prob"][rows:rows + length, None] if "prob" in t else 1
        parts.append((h * p) @ t["w2"][e].T + (t["b2"][e] * p if "b2" in t else 0))
        rows += length
    y = torch.cat(parts)
    y.backward(case.dy[:rows].double() if dy is None else dy)
    return y.detach(), {name: v.grad for name, v in t.items()}


def run(case, given, **more):
    x, w1, w2 = given["x"], given["w1"], given["w2"]
    for t in given.values():
        t.grad = None
    y = qt.grouped_mlp(x, w1, w2, **case.sizes(), **{n: given[n] for n in ("b1", "b2", "prob")
                                                     if n in given}, **more)
    y.backward(case.dy)
    return y.detach(), {name: t.grad for name, t in given.items()}


def compare(case, found, expected, tolerance):
    assert_near(found[0][:case.tokens], expected[0], tolerance)
    for name, grad in found[1].items():
        rows = slice(case.tokens) if name in ("x", "prob") else slice(None)
        assert_near(grad[rows], expected[1][name][rows], tolerance)


@pytest.mark.parametrize("activation", GATED + PLAIN)
@pytest.mark.parametrize("names", [NAMES, NAMES[:3], NAMES[:5], (*NAMES[:3], "prob")])
@pytest.mark.parametrize("recompute", [False, True])
def test_gradients_against_float64(activation, names, recompute):
    case, given = operands(activation)
    given = {name: given[name] for name in names}
    found = run(case, given, activation=activation, recompute=recompute)
    compare(case, found, reference(case, given, activation), 2**-6)
    assert not given["w1"].grad[1].any()  # the expert without tokens


@pytest.mark.parametrize("recipe", ["fp8_block", "mxfp8", "fp8_row", "fp8_tensor",
                                    "w8a16_fp8_block"])
@pytest.mark.parametrize("recompute", [False, True])
def test_recipes(recipe, recompute):
    case, given = operands()
    compare(case, run(case, given, recipe=recipe, recompute=recompute),
            reference(case, given, "swiglu"), 0.15)


@pytest.mark.parametrize("interleave", [1, 8])
def test_interleave(interleave):
    case, given = operands()
    compare(case, run(case, given, interleave=interleave),
            reference(case, given, "swiglu", interleave), 2**-6)


@pytest.mark.parametrize("interleave", [3, 24])
def test_any_run_that_divides_ffn(interleave):
    """Next to an activation in the product's launch, which reads its sums before they are rounded."""
    case, given = operands()
    w1, w2 = torch.randn(4, 96, HIDDEN).to(BF16), torch.randn(4, HIDDEN, 48).to(BF16)
    halves = w1.unflatten(1, (-1, 2, interleave)).transpose(1, 2).flatten(1, 3)
    found, expected = (qt.grouped_mlp(case.x, w, w2, **case.sizes(), interleave=run)
                       for w, run in ((w1, interleave), (halves, 0)))
    assert_near(found[:case.tokens], expected[:case.tokens].double(), 2**-6)
    with pytest.raises(RuntimeError, match="interleave=7 does not divide ffn=48"):
        qt.grouped_mlp(case.x, w1, w2, **case.sizes(), interleave=7)


@pytest.mark.parametrize("recipe", ["bf16", "fp8_block"])
def test_callers_buffers_and_main_grads(recipe):
    case, given = operands()
    y, grads = run(case, given, recipe=recipe)
    out, dgrad_out = torch.full((2, case.rows, HIDDEN), 7.0, dtype=BF16)
    main = [torch.ones(given[name].shape) for name in ("w1", "w2")]
    found, again = run(case, given, recipe=recipe, out=out, dgrad_out=dgrad_out,
                       main_grad1=main[0], main_grad2=main[1])
    assert found.data_ptr() == out.data_ptr() and not out.requires_grad
    assert torch.equal(out[:48], y[:48]) and torch.equal(dgrad_out[:48], grads["x"][:48])
    assert (out[48:] == 7).all() and (dgrad_out[48:] == 7).all()
    assert again["w1"] is None and again["w2"] is None
    for t, name in zip(main, ("w1", "w2")):
        assert_near(t - 1, grads[name].double(), 2**-7)


def test_outside_zero():
    case, given = operands()
    y, grads = run(case, given, outside="zero")
    assert not y[48:].any() and not grads["x"][48:].any() and not grads["prob"][48:].any()


@pytest.mark.parametrize("recipe", ["bf16", "fp8_block"])
def test_without_gradients(recipe):
    case, given = operands()
    y, _ = run(case, given, recipe=recipe)
    with torch.no_grad():
        more = {name: given[name] for name in ("b1", "b2", "prob")}
        again = qt.grouped_mlp(given["x"], given["w1"], given["w2"], LENGTHS, recipe=recipe, **more)
    assert torch.equal(again[:48], y[:48]) and not again.requires_grad


@pytest.mark.parametrize("recipe, dtype", [("w4a16_int4", BF16), ("w4a16_int4_fp16", torch.float16)])
@pytest.mark.parametrize("packed_as", ["w4a16_int4", "w4a16_int4_fp16"])
def test_packed_weights(recipe, dtype, packed_as):
    case, given = operands(dtype=dtype)
    y, grads = run(case, given, recipe=recipe)
    q1, q2 = (qt.quantize(given[name].detach(), recipe=packed_as, of="w", copies="rowwise")
              for name in ("w1", "w2"))
    x = given["x"].detach().clone().requires_grad_()
    more = {name: given[name] for name in ("b1", "b2", "prob")}
    again = qt.grouped_mlp(x, q1, q2, LENGTHS, recipe=recipe, **more)
    again.backward(case.dy)
    assert torch.equal(again[:48], y[:48]) and torch.equal(x.grad[:48], grads["x"][:48])


def test_quantized_weights():
    case, given = operands()
    y, grads = run(case, given, recipe="mxfp8")
    q1, q2 = (qt.quantize(given[name].detach(), recipe="mxfp8", of="w") for name in ("w1", "w2"))
    main = [torch.zeros(given[name].shape) for name in ("w1", "w2")]
    given = given | {"w1": q1, "w2": q2}
    x = given["x"].detach().requires_grad_()
    again = qt.grouped_mlp(x, q1, q2, LENGTHS, recipe="mxfp8", main_grad1=main[0],
                           main_grad2=main[1], **{n: given[n] for n in ("b1", "b2", "prob")})
    again.backward(case.dy)
    assert torch.equal(again[:48], y[:48]) and torch.equal(x.grad[:48], grads["x"][:48])
    assert_near(main[0], grads["w1"].double(), 2**-7)


WRONG = [
    ({"activation": "mish"}, ValueError, "activation is 'mish': 'swiglu'"),
    ({"w2": torch.zeros(4, HIDDEN, FFN + 1, dtype=BF16)}, ValueError, "w2 has the shape"),
    ({"w1": torch.zeros(4, 2 * FFN, 8, dtype=BF16)}, ValueError, "x has the shape .* and w1"),
    ({"w1": torch.zeros(4, 2 * FFN, HIDDEN)}, TypeError, "w1 is torch.float32"),
    ({"b1": torch.zeros(4, 2 * FFN)}, ValueError, "b1, b2: both or none"),
    ({"b1": torch.zeros(4, 1), "b2": torch.zeros(4, HIDDEN)}, ValueError, "b1 has the shape"),
    ({"prob": torch.zeros(3)}, ValueError, r"prob has the shape \[3\]: \[55\] is expected"),
    ({"main_grad1": torch.zeros(4, 2 * FFN, HIDDEN)}, ValueError, "main_grad1, main_grad2: both"),
    ({"out": torch.zeros(3, HIDDEN, dtype=BF16)}, ValueError, "out has the shape"),
    ({"sizes": [1, 2, 3]}, ValueError, r"sizes has the shape \[3\]: \[4\] is expected"),
    ({"interleave": 7}, RuntimeError, "interleave"),
    ({"recipe": "fp8_tensor_delayed"}, ValueError, "use GroupedMLP"),
    ({"outside": 0}, ValueError, "outside is 0: None or 'zero'"),
    ({"limit": None}, TypeError, "limit is NoneType: a number is expected"),
    ({"limit": "7"}, TypeError, "limit is str: a number is expected"),
    ({"interleave": "1"}, TypeError, "interleave is str: an integer from 0"),
    ({"recompute": "yes"}, TypeError, "recompute is str: True or False is expected"),
    ({"recompute": None}, TypeError, "recompute is NoneType: True or False is expected"),
    ({"queue": "a"}, TypeError, "queue is str: a WgradQueue is expected"),
    ({"layer": "a"}, TypeError, "layer is str: an integer from 0"),
    ({"lora_scaling": "x"}, TypeError, "lora_scaling is str"),
    ({"w1": None}, TypeError, "w1 is NoneType: a tensor is expected"),
    ({"w2": None}, TypeError, "w2 is NoneType: a tensor is expected"),
    *[({name: qt.quantize(torch.ones(4, 8, 8), recipe="mxfp8", of="w")}, ValueError,
       "w1, w2: both or none a Quantized are expected") for name in ("w1", "w2")],
    ({"limit": -1}, ValueError, "limit is -1: 0 or more is expected"),
    ({"slope": float("nan")}, ValueError, "slope is nan: a number is expected"),
]


@pytest.mark.parametrize("more, kind, sentence", WRONG)
def test_bad_input(more, kind, sentence):
    case, given = operands()
    plain = {"x": given["x"], "w1": given["w1"], "w2": given["w2"], "sizes": LENGTHS} | more
    with pytest.raises(kind, match=sentence):
        qt.grouped_mlp(plain.pop("x"), plain.pop("w1"), plain.pop("w2"), plain.pop("sizes"),
                       **plain)


# --------------------------------------------------------------------------------------- modules


def make(*, recipe="bf16", bias=False, main_grad=False, **more):
    torch.manual_seed(5)
    layer = qt.GroupedMLP(4, HIDDEN, FFN, recipe=recipe, bias=bias, params_dtype=BF16,
                          device=DEVICE, fuse_wgrad_accumulation=main_grad, **more)
    for p in layer.parameters():
        torch.nn.init.normal_(p.data, 0, 0.2)
    if main_grad:
        layer.w1.main_grad = torch.zeros(layer.w1.shape)
        layer.w2.main_grad = torch.zeros(layer.w2.shape)
    return layer


@pytest.mark.parametrize("recipe", ["bf16", "fp8_block"])
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("fuse", [False, True])
@pytest.mark.parametrize("delay", [False, True])
def test_module(recipe, bias, fuse, delay):
    case, given = operands()
    layer = make(recipe=recipe, bias=bias, main_grad=fuse, delay_wgrad_compute=delay)
    if fuse:
        layer.w1.grad_added_to_main_grad = False
    leaves = {"x": given["x"], "prob": given["prob"],
              **{name: getattr(layer, name) for name in ("w1", "w2", "b1", "b2")
                 if hasattr(layer, name)}}
    expected = reference(case, leaves, "swiglu")
    y = layer(leaves["x"], LENGTHS, leaves["prob"])
    y.backward(case.dy)
    if delay:
        assert not (layer.w1.main_grad.any() if fuse else layer.w1.grad)
        layer.backward_dw()
    if fuse:
        assert layer.w1.grad_added_to_main_grad
    grads = {name: t.main_grad if fuse and name in ("w1", "w2") else t.grad
             for name, t in leaves.items()}
    compare(case, (y.detach(), grads), expected, 2**-6 if recipe == "bf16" else 0.15)


def test_kept_weights_and_overwritten_main_grad():
    case, given = operands()
    layer = make(recipe="fp8_block", main_grad=True)
    layer.w1.overwrite_main_grad = layer.w2.overwrite_main_grad = True
    results = []
    for first in (None, True, False, torch.tensor([0])):
        y = layer(case.x, LENGTHS, is_first_microbatch=first)
        y.backward(case.dy)
        results.append((y[:48], layer.w1.main_grad.clone(), layer.w2.main_grad.clone()))
    for other in results[1:]:
        assert all(map(torch.equal, results[0], other))


def test_delayed_scaling():
    case, given = operands()
    layer = make(recipe="fp8_tensor_delayed", bias=True)
    leaves = {"x": given["x"], **{n: getattr(layer, n) for n in ("w1", "w2", "b1", "b2")}}
    expected = reference(case, leaves, "swiglu")
    for _ in range(3):
        layer.zero_grad()
        given["x"].grad = None
        y = layer(given["x"], LENGTHS)
        y.backward(case.dy)
    compare(case, (y.detach(), {n: t.grad for n, t in leaves.items()}), expected, 0.15)


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda m: pickle.loads(pickle.dumps(m))])
def test_copies(copied):
    case, given = operands()
    layer = make(recipe="fp8_block", bias=True, delay_wgrad_compute=True)
    y = layer(case.x, LENGTHS, is_first_microbatch=True)
    assert torch.equal(copied(layer)(case.x, LENGTHS)[:48], y[:48])
    queue = qt.WgradQueue()
    with pytest.raises(TypeError, match="wgrad_queue holds work of this process"):
        copied(make(delay_wgrad_compute=True, wgrad_queue=queue))


def sequential(activation="swiglu", is_scaled=True, bias=False, interleave=0, **more):
    torch.manual_seed(5)
    wide = FFN if activation in PLAIN else 2 * FFN
    more = {"bias": bias, "params_dtype": BF16, "device": DEVICE} | more
    fc1 = qt.GroupedLinear(4, HIDDEN, wide, **more)
    fc2 = qt.GroupedLinear(4, FFN, HIDDEN, scale_bias=bias and is_scaled, **more)
    for p in (*fc1.parameters(), *fc2.parameters()):
        torch.nn.init.normal_(p.data, 0, 0.2)
    return qt.Sequential(fc1, qt.Activation(activation, is_scaled=is_scaled, interleave=interleave),
                         fc2)


@pytest.mark.parametrize("activation", GATED + PLAIN)
@pytest.mark.parametrize("is_scaled, bias", [(True, False), (True, True), (False, True)])
@pytest.mark.parametrize("interleave", [0, 8])
def test_a_sequence_runs_as_one_mlp(activation, is_scaled, bias, interleave):
    if activation in PLAIN:
        interleave = 0
    case, given = operands(activation)
    modules = sequential(activation, is_scaled, bias, interleave)
    fc1, act, fc2 = modules
    sizes, prob = case.sizes()["sizes"], given["prob"]
    results = []
    for last in (sizes, sizes.clone()):  # sizes that may differ are not fused
        factors = [prob] if is_scaled else []
        extra = [sizes, *factors, last, *(factors if bias else [])]
        parts = [[sizes], factors, extra[1 + len(factors):]]
        assert (why_not_fused(list(modules), parts, [{}] * 3) is None) == (last is sizes)
        modules.zero_grad()
        prob.grad = None
        x = case.x.clone().requires_grad_()
        out, dgrad_out = torch.full((2, case.rows, HIDDEN), 7.0, dtype=BF16)
        y = modules(x, *extra, op_kwargs={fc2: {"output": out}, fc1: {"grad_input": dgrad_out}})
        y.backward(case.dy)
        assert y.data_ptr() == out.data_ptr() and (out[48:] == 7).all()
        assert torch.equal(dgrad_out[:48], x.grad[:48]) and (dgrad_out[48:] == 7).all()
        results.append([y[:48], x.grad[:48], *([prob.grad[:48]] if is_scaled else []),
                        *[p.grad for p in modules.parameters()]])
    for fused, apart in zip(*results):
        assert_near(fused.detach(), apart.detach().double(), 2**-5)


@pytest.mark.parametrize("more, reason", [
    ({"return_bias": True}, "return_bias"), ({"recipe": "fp8_tensor_delayed"}, "delayed scaling"),
    ({"delay_wgrad_compute": True}, "delay_wgrad_compute")])
def test_sequences_that_are_not_fused_say_why(more, reason):
    modules = list(sequential(**more))
    sizes = torch.tensor(LENGTHS)
    assert reason in why_not_fused(modules, [[sizes], [None], [sizes]], [{}] * 3)
    assert "they are no" in why_not_fused(modules[1:], [], [])


def test_hooks_and_subclasses_of_a_sequence_are_called():
    class Doubled(qt.GroupedLinear):
        def forward(self, *args, **more):
            return 2 * super().forward(*args, **more)

    case, given = operands()
    sizes = case.sizes()["sizes"]
    modules = sequential()
    extra = [sizes, given["prob"].detach(), sizes]
    fused, y = modules(case.x, *extra), modules(case.x, *extra[:2], sizes.clone())
    modules[2].__class__ = Doubled
    assert torch.equal(modules(case.x, *extra)[:48], 2 * y[:48])
    modules[2].__class__ = qt.GroupedLinear
    with modules[0].register_forward_hook(lambda module, given, made: made * 0):
        assert not modules(case.x, *extra)[:48].any()
    called = []
    with modules[1].register_forward_pre_hook(lambda module, given: called.append(module)):
        modules(case.x, *extra)
    assert called == [modules[1]]
    assert torch.equal(modules(case.x, *extra)[:48], fused[:48])


@pytest.mark.parametrize("recipe", ["bf16", "mxfp8"])
def test_recompute_without_gradients(recipe):
    case, given = operands()
    y = run(case, given, recipe=recipe, recompute=True)[0]
    with torch.no_grad():
        more = {name: given[name] for name in ("b1", "b2", "prob")}
        found = qt.grouped_mlp(case.x, given["w1"], given["w2"], **case.sizes(), recipe=recipe,
                               recompute=True, **more)
    assert torch.equal(found[:48], y[:48])


def test_classes_of_transformer_engine():
    x, prob = torch.randn(5, 16), torch.rand(5)
    a, b = x.chunk(2, -1)
    assert torch.equal(qt.SwiGLU()(x), F.silu(a) * b)
    assert torch.equal(qt.ScaledSwiGLU()(x, prob), F.silu(a) * b * prob[:, None])
    a = a.clamp(max=7)
    expected = a * torch.sigmoid(1.702 * a) * (b.clamp(-7, 7) + 1) * prob[:, None]
    assert torch.equal(qt.ScaledClampedQGeGLU()(x, prob), expected)
    with pytest.raises(ValueError, match="prob: it is given if and only if"):
        qt.SwiGLU()(x, prob)


@pytest.mark.parametrize("extra, op_kwargs, sentence", [
    (2, {}, "3 extra inputs are expected, and 2 given"),
    (3, {0: {"outputs": 1}}, "GroupedLinear has no option 'outputs'; known: output, grad_input"),
    (3, {1: {"output": 1}}, "Activation has no option 'output'; known: none"),
    (3, {None: {}}, "Linear is no module of this Sequential")])
def test_bad_options(extra, op_kwargs, sentence):
    modules = sequential()
    other = torch.nn.Linear(1, 1)
    keys = {other if i is None else modules[i]: value for i, value in op_kwargs.items()}
    case, given = operands()
    sizes = case.sizes()["sizes"]
    with pytest.raises(ValueError, match=sentence):
        modules(case.x, *(sizes, given["prob"], sizes)[:extra], op_kwargs=keys)


# ------------------------------------------------------------------------- signal to noise (SQNR)


def decibels(exact, found):
    return 20 * torch.log10(exact.float().norm() / (exact.float() - found.float()).norm())


@pytest.mark.parametrize("recipe", ["fp8_row", "fp8_block", "mxfp8"])
@pytest.mark.parametrize("is_compiled", [False, True])
def test_torchaos_bounds(recipe, is_compiled):
    """A block with a residual, groups without alignment: torchao asks for 23 dB of the output, 29
    of the input's gradient and 21 of the weights'."""
    def block(experts, x, sizes):
        return x + experts(x, sizes)

    if is_compiled:
        torch._dynamo.reset()
        block = torch.compile(block, fullgraph=True, backend="aot_eager")
    sizes, results = torch.tensor([100, 0, 33, 77, 150, 1, 200, 40]), []
    for each in ("bf16", recipe):
        torch.manual_seed(0)
        experts = qt.GroupedMLP(8, 256, 128, recipe=each, params_dtype=BF16, device=DEVICE)
        x = torch.randn(601, 256).to(BF16).requires_grad_()
        y = block(experts, x, sizes)
        F.mse_loss(y.float(), torch.ones_like(y).float()).backward()
        results.append((y.detach(), x.grad, experts.w1.grad, experts.w2.grad))
    for bound, exact, found in zip((23, 29, 21, 21), *results):
        assert decibels(exact, found) >= bound
