# SPDX-License-Identifier: Apache-2.0
"""GroupedLinear: TransformerEngine's tests of its own module, against a loop of F.linear in float64."""

import copy
import inspect
import io
import pickle

import pytest
import torch
import torch.nn.functional as F
from conftest import DEVICE, Case, assert_near, shifted

import quern.torch as qt

BF16 = torch.bfloat16
TOLERANCE = {"bf16": 2**-7, "fp8_block": 2**-3, "mxfp8": 2**-3, "fp8_tensor": 2**-3}


def draw(w):
    torch.nn.init.normal_(w, 0, 0.5)


def make(case, *, recipe="bf16", main_grad=False, **more):
    torch.manual_seed(3)
    more = {"bias": False, "params_dtype": BF16, "device": DEVICE, "init_method": draw} | more
    layer = qt.GroupedLinear(len(case.lengths), case.k, case.n, recipe=recipe, **more)
    for b in biases(layer):
        for each in b.data.view(-1, case.n):  # CUDA draws other values for other shapes
            torch.nn.init.normal_(each)
    if main_grad:
        every = torch.ones(len(case.lengths), case.n, case.k)
        for i, w in enumerate(weights(layer)):
            w.main_grad = every if w.dim() == 3 else every[i].clone()
    return layer


def weights(layer):
    return [p for name, p in layer.named_parameters() if name.startswith("weight")]


def biases(layer):
    return [p for name, p in layer.named_parameters() if name.startswith("bias")]


def stacked(tensors):
    return tensors[0] if tensors[0].dim() == 3 else torch.stack(list(tensors))


def reference(case, layer):
    """y and the gradients of x, of the weights and of the biases, in float64."""
    w = stacked([p.detach().double() for p in weights(layer)]).requires_grad_()
    found = [p.detach().double() for p in biases(layer)]
    b = torch.cat([t.reshape(-1, case.n) for t in found]) if found else \
        torch.zeros(len(case.lengths), case.n, dtype=torch.float64)
    b.requires_grad_()
    x = case.x[:case.tokens].double().requires_grad_()
    y = torch.cat([F.linear(part, w[i], b[i]) for i, part in enumerate(x.split(case.lengths))])
    y.backward(case.dy[:case.tokens].double())
    return y.detach(), x.grad, w.grad, b.grad


@pytest.mark.parametrize("experts", [3, 6])
@pytest.mark.parametrize("recipe", ["bf16", "fp8_block", "mxfp8", "fp8_tensor"])
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("fuse", [False, True])
@pytest.mark.parametrize("delay", [False, True])
def test_accuracy(experts, recipe, bias, fuse, delay):
    case = Case([16 * i for i in range(experts)], n=64, k=96)
    layer = make(case, recipe=recipe, bias=bias, main_grad=fuse, fuse_wgrad_accumulation=fuse,
                 delay_wgrad_compute=delay)
    y_ref, dx, dw, db = reference(case, layer)
    x = case.x.clone().requires_grad_()
    y = layer(x, case.lengths)
    y.backward(case.dy)
    if delay:
        assert layer.need_backward_dw() and all(w.grad is None for w in weights(layer))
        assert not fuse or all((w.main_grad == 1).all() for w in weights(layer))
        layer.backward_dw()
        with pytest.raises(RuntimeError, match="backward_dw: no backward pass waits"):
            layer.backward_dw()
    tolerance = TOLERANCE[recipe]
    assert_near(y[:case.tokens], y_ref, tolerance)
    assert_near(x.grad[:case.tokens], dx, tolerance)
    if fuse:
        assert all(w.grad is None for w in weights(layer))
    assert_near(stacked([w.main_grad - 1 if fuse else w.grad for w in weights(layer)]), dw,
                tolerance)
    if bias:
        assert_near(torch.stack([b.grad for b in biases(layer)]), db, 2**-7)


@pytest.mark.parametrize("recipe", ["bf16", "fp8_block"])
@pytest.mark.parametrize("which", ["out", "dgrad_out", "both"])
def test_callers_buffers(recipe, which):
    case = Case([64, 96, 80], n=48, k=64, rows=320)
    layer = make(case, recipe=recipe)
    sizes = case.sizes()["sizes"]
    x = case.x.clone().requires_grad_()
    expected = layer(x, sizes)
    expected.backward(case.dy)
    dx = x.grad[:240].clone()
    out = torch.full((320, 48), 7.0, dtype=BF16) if which != "dgrad_out" else None
    dgrad_out = torch.full((320, 64), 7.0, dtype=BF16) if which != "out" else None
    for _ in range(2):  # the same buffers again
        x = case.x.clone().requires_grad_()
        h = x * 1
        h.register_hook(lambda t: gradients.append(t.data_ptr()))
        gradients = []
        y = layer(h, sizes, None, out, dgrad_out)
        y.backward(case.dy)
        assert torch.equal(y[:240], expected[:240]) and torch.equal(x.grad[:240], dx)
        if out is not None:
            assert y.data_ptr() == out.data_ptr() and (out[240:] == 7).all()
            assert not out.requires_grad
        if dgrad_out is not None:
            assert gradients == [dgrad_out.data_ptr()] and (dgrad_out[240:] == 7).all()


@pytest.mark.parametrize("buffer, rule", [
    (torch.empty(319, 48, dtype=BF16), r"has the shape \[319, 48\]: \[320, 48\] is expected"),
    (torch.empty(320, 47, dtype=BF16), "has the shape"),
    (torch.empty(320 * 48, dtype=BF16), "has the shape"),
    (torch.empty(48, 320, dtype=BF16).T, "is not contiguous"),
    (torch.empty(320, 48, dtype=BF16, requires_grad=True), "requires a gradient"),
    (torch.empty(320, 48).int(), "is torch.int32: torch.bfloat16 is expected"),
])
@pytest.mark.parametrize("name", ["out", "dgrad_out"])
def test_buffers_that_do_not_fit(buffer, rule, name):
    case = Case([64, 96, 80], n=48, k=48, rows=320)
    layer = make(case)
    with pytest.raises(ValueError, match=f"{name} {rule}"):
        layer(case.x, case.lengths, **{name: buffer})


@pytest.mark.parametrize("fuse", [False, True])
def test_no_tokens(fuse):
    case = Case([0, 0, 0], n=16, k=32, rows=8)
    layer = make(case, bias=True, fuse_wgrad_accumulation=fuse, main_grad=fuse)
    for rows in (8, 0):
        x = case.x[:rows].clone().requires_grad_()
        y = layer(x, torch.zeros(3, dtype=torch.int64))
        assert y.shape == (rows, 16)
        y.backward(torch.full_like(y, float("nan")))
    for w, b in zip(weights(layer), biases(layer)):
        assert not b.grad.any()
        assert (w.main_grad == 1).all() if fuse else not w.grad.any()


@pytest.mark.parametrize("recipe", ["bf16", "fp8_block"])
@pytest.mark.parametrize("fuse", [False, True])
@pytest.mark.parametrize("bias", [False, True])
def test_one_weight_or_many_give_the_same_bits(recipe, fuse, bias):
    case = Case([10, 0, 33, 5], n=48, k=64)
    results = []
    for single in (False, True):
        layer = make(case, recipe=recipe, bias=bias, fuse_wgrad_accumulation=fuse, main_grad=fuse,
                     single_grouped_weight=single, single_grouped_bias=single)
        x = case.x.clone().requires_grad_()
        y = layer(x, case.sizes()["sizes"])
        y.backward(case.dy)
        results.append([y[:48], x.grad[:48],
                        stacked([w.main_grad if fuse else w.grad for w in weights(layer)])])
        if bias:
            results[-1].append(torch.cat([b.grad.reshape(-1, 48) for b in biases(layer)]))
    assert all(map(torch.equal, *results))


def test_many_weights_are_views_of_one_allocation():
    case = Case([10, 0, 33, 5], n=48, k=64)
    layer = make(case, bias=True)

    def is_packed():
        return all(len({p.untyped_storage().data_ptr() for p in group}) == 1
                   for group in (weights(layer), biases(layer)))

    assert is_packed()
    y = layer(case.x, case.lengths)[:48]
    for moved in (lambda: layer.float(), lambda: layer.to(BF16), lambda: copy.deepcopy(layer),
                  lambda: pickle.loads(pickle.dumps(layer))):
        layer = moved()
        assert is_packed()
    layer.load_state_dict({k: v.clone() for k, v in layer.state_dict().items()}, assign=True)
    assert is_packed()
    assert torch.equal(layer(case.x, case.lengths)[:48], y)
    layer.weight2.data = layer.weight2.data.clone()  # separate: a copy is made
    assert torch.equal(layer(case.x, case.lengths)[:48], y)
    with torch.no_grad():
        layer.weight2.zero_()
    assert not layer(case.x, case.lengths)[10:43].sub(layer.bias2).abs().gt(0.01).any()


@pytest.mark.parametrize("from_single", [False, True])
def test_state_dicts_convert(from_single):
    case = Case([10, 0, 33, 5], n=48, k=64)
    one, other = [make(case, bias=True, single_grouped_weight=single, single_grouped_bias=single)
                  for single in (from_single, not from_single)]
    with torch.no_grad():
        for p in one.parameters():
            p.normal_()
    state = torch.nn.ModuleDict({"fc": one}).state_dict()
    state["fc._extra_state"] = io.BytesIO()  # TransformerEngine's checkpoints have it
    names = set(state)
    torch.nn.ModuleDict({"fc": other}).load_state_dict(state)
    assert set(torch.nn.ModuleDict({"fc": one}).state_dict()) | {"fc._extra_state"} == names
    assert torch.equal(*[m(case.x, case.lengths)[:48] for m in (one, other)])
    with pytest.raises(RuntimeError, match="Missing key"):
        other.load_state_dict({})


def test_return_bias():
    case = Case([10, 0, 33, 5], n=48, k=64)
    for single in (False, True):
        layer = make(case, bias=True, return_bias=True, single_grouped_bias=single)
        y, b = layer(case.x, case.lengths)
        plain = make(case, bias=False)
        assert torch.equal(y[:48], plain(case.x, case.lengths)[:48])
        assert torch.equal(b if single else torch.stack(b), torch.cat(
            [p.reshape(-1, 48) for p in biases(layer)]))


def test_scale_bias():
    """prob multiplies each row's bias, and has a gradient."""
    case = Case([10, 0, 33, 5], n=48, k=64)
    layer = make(case, bias=True, scale_bias=True, outside="zero")
    prob = torch.rand(case.rows, requires_grad=True)
    y = layer(case.x, case.lengths, prob=prob)
    y.backward(case.dy)
    rows = torch.arange(4).repeat_interleave(torch.tensor(case.lengths))
    b = torch.stack([p.detach().double() for p in biases(layer)])[rows]
    dy, p = case.dy[:48].double(), prob[:48].detach().double()[:, None]
    plain = make(case, bias=False)(case.x, case.lengths)[:48].double()
    assert_near(y[:48], plain + b * p, 2**-6)
    assert_near(prob.grad[:48], (dy * b).sum(1), 2**-12)
    assert not prob.grad[48:].any() and not y[48:].any()
    expected = torch.zeros(4, 48, dtype=torch.float64).index_add(0, rows, dy * p)
    assert_near(torch.stack([t.grad for t in biases(layer)]), expected, 2**-7)
    with pytest.raises(ValueError, match="prob: it is given if and only if scale_bias=True"):
        layer(case.x, case.lengths)


@pytest.mark.parametrize("flag", ["bool", "int32", "bool tensor"])
def test_quantized_weights_are_kept_over_microbatches(flag):
    case = Case([10, 0, 33, 5], n=48, k=64)
    layer = make(case, recipe="fp8_block")

    def first(value):
        return value if flag == "bool" else torch.tensor(
            [value], dtype=torch.int32 if flag == "int32" else torch.bool)

    y = layer(case.x, case.lengths, first(True))[:48]
    assert torch.equal(y, layer(case.x, case.lengths)[:48])
    with torch.no_grad():
        for w in weights(layer):
            w.mul_(-1)
    assert torch.equal(y, layer(case.x, case.lengths, first(False))[:48])
    x = case.x.clone().requires_grad_()
    z = layer(x, case.lengths, first(True))
    z.backward(case.dy)
    assert torch.equal(z[:48], -y) and all(w.grad is not None for w in weights(layer))


def test_delayed_scaling_keeps_its_state():
    case = Case([10, 0, 33, 5], n=48, k=64)
    layer = make(case, recipe="fp8_tensor_delayed")
    y_ref, dx, dw, _ = reference(case, layer)
    assert (layer.scaling_scale == 1).all()
    for _ in range(3):
        layer.zero_grad()
        x = case.x.clone().requires_grad_()
        y = layer(x, case.lengths)
        y.backward(case.dy)
    assert (layer.scaling_scale[:, 0] > 1).all() and layer.scaling_history.any()
    assert_near(y[:48], y_ref, 2**-3)
    assert_near(x.grad[:48], dx, 2**-3)
    assert_near(stacked([w.grad for w in weights(layer)]), dw, 2**-3)
    other = make(case, recipe="fp8_tensor_delayed")
    other.load_state_dict(layer.state_dict())
    scale = layer.scaling_scale.clone()
    with torch.no_grad():
        assert torch.equal(other(case.x, case.lengths)[:48], layer(case.x, case.lengths)[:48])
    assert torch.equal(layer.scaling_scale, scale)


def test_save_original_input():
    case = Case([10, 0, 33, 5], n=48, k=64)
    results = []
    for keep in (False, True):
        layer = make(case, recipe="fp8_block", save_original_input=keep)
        x, kept = case.x.clone().requires_grad_(), []
        with torch.autograd.graph.saved_tensors_hooks(lambda t: kept.append(t) or t, lambda t: t):
            y = layer(x, case.lengths)
        assert any(t.data_ptr() == x.data_ptr() for t in kept) == keep
        y.backward(case.dy)
        results.append([y[:48], x.grad[:48], *[w.grad for w in weights(layer)]])
    assert all(map(torch.equal, *results))


@pytest.mark.parametrize("single", [False, True])
def test_main_grad_as_megatron_wants_it(single):
    case = Case([10, 0, 33, 5], n=48, k=64)
    layer = make(case, fuse_wgrad_accumulation=True, main_grad=True, single_grouped_weight=single)
    for w in weights(layer):
        w.grad_added_to_main_grad, w.zero_out_wgrad = False, True
    dw = reference(case, layer)[2]
    layer(case.x, case.lengths).backward(case.dy)
    for w in weights(layer):
        assert w.grad_added_to_main_grad and w.grad is not None and not w.grad.any()
    assert_near(stacked([w.main_grad for w in weights(layer)]) - 1, dw, 1e-4)
    for w in weights(layer):
        w.overwrite_main_grad = True
    layer(case.x, case.lengths).backward(case.dy)
    assert_near(stacked([w.main_grad for w in weights(layer)]), dw, 1e-4)


def test_main_grads_of_one_allocation_and_apart():
    """Megatron's buffer has them in reverse order."""
    case = Case([10, 0, 33, 5], n=48, k=64)
    results = []
    for order in ([0, 1, 2, 3], [3, 2, 1, 0]):
        layer = make(case, fuse_wgrad_accumulation=True)
        every = torch.zeros(4, 48, 64)
        for w, i in zip(weights(layer), order):
            w.main_grad = every[i]
        for _ in range(2):
            layer(case.x, case.lengths).backward(case.dy)
        results.append(every[order])
    assert results[0].any() and torch.equal(*results)
    layer.weight1.main_grad = shifted(every[1])
    with pytest.raises(ValueError, match="weight1.main_grad begins at 0x.*: a multiple of 16"):
        layer(case.x, case.lengths)
    del layer.weight1.main_grad
    with pytest.raises(ValueError, match="fuse_wgrad_accumulation: weight has no main_grad"):
        layer(case.x, case.lengths)


def test_hooks_follow_the_weight_gradients():
    case = Case([10, 0, 33, 5], n=48, k=64)
    layer = make(case, delay_wgrad_compute=True)
    seen = []
    layer.register_wgrad_accumulation_and_reduce_hooks(
        lambda: seen.append(layer.weight0.grad is not None))
    assert layer.weight0.skip_backward_post_hook
    for _ in range(2):
        layer(case.x, case.lengths).backward(case.dy)
    assert not seen
    layer.backward_dw()
    once = layer.weight0.grad.clone()
    layer.backward_dw()
    assert seen == [True, True] and torch.equal(layer.weight0.grad, once * 2)


def test_arguments_are_transformer_engines():
    """By name and position, as its documentation has them."""
    names = list(inspect.signature(qt.GroupedLinear).parameters)
    assert names[:24] == """num_gemms in_features out_features sequence_parallel
        fuse_wgrad_accumulation tp_group tp_size get_rng_state_tracker rng_tracker_name init_method
        bias return_bias params_dtype parallel_mode device ub_overlap_rs ub_overlap_ag ub_name
        delay_wgrad_compute save_original_input single_grouped_weight single_grouped_bias name
        use_grouped_tensor""".split()
    names = list(inspect.signature(qt.GroupedLinear.forward).parameters)
    assert names[1:6] == ["inp", "m_splits", "is_first_microbatch", "out", "dgrad_out"]


def test_init_method_and_rng_tracker():
    forks = []

    class Tracker:
        def fork(self, name="default"):
            forks.append(name)
            return torch.random.fork_rng()

    layer = qt.GroupedLinear(3, 8, 8, get_rng_state_tracker=Tracker, rng_tracker_name="experts",
                             init_method=lambda w: w.fill_(w.dim()), params_dtype=BF16)
    assert forks == ["experts"] and (layer.weight1 == 2).all() and not layer.bias0.any()
    assert qt.GroupedLinear(2, 8, 8).weight0.dtype == torch.get_default_dtype()


def test_meta_device():
    layer = qt.GroupedLinear(3, 64, 48, device="meta", params_dtype=BF16)
    layer.to_empty(device=DEVICE)
    layer.reset_parameters()
    assert len({p.untyped_storage().data_ptr() for p in weights(layer)}) == 1
    assert layer(torch.ones(6, 64).to(BF16), [1, 2, 3]).isfinite().all()
