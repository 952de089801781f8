# SPDX-License-Identifier: Apache-2.0
"""Modules inside PyTorch's wrappers: checkpoints, autocast, DDP, FSDP2, threads; what
functions do at their edges; and that errors keep no memory."""

import copy
import gc
import os
import subprocess
import sys
import threading
import warnings

import pytest
import torch
import torch.distributed as dist
from conftest import DEVICE, ROOT, Case, assert_near, in_threads, uses
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils.checkpoint import checkpoint

import quern.torch as qt

BF16 = torch.bfloat16
CASE = Case([10, 0, 33, 5], n=64, k=64)


def make(kind, **more):
    torch.manual_seed(0)
    more = {"params_dtype": BF16, "device": DEVICE} | more
    if kind == "linear":
        return qt.GroupedLinear(4, 64, 64, **more)
    if kind == "single":
        return qt.GroupedLinear(4, 64, 64, single_grouped_weight=True, single_grouped_bias=True,
                                **more)
    return qt.GroupedMLP(4, 64, 32, bias=True, **more)


def step(module, function=None, x=None, **more):
    module.zero_grad()
    x = (CASE.x if x is None else x).clone().requires_grad_()
    y = (function or module)(x, CASE.sizes()["sizes"], **more)
    y.backward(CASE.dy.to(y.dtype))
    return [y[:48].detach(), x.grad[:48], *[p.grad.clone() for p in module.parameters()]]


@pytest.mark.parametrize("kind", ["linear", "mlp"])
def test_weights_kept_in_inference_mode_serve_training(kind):
    module, sizes = make(kind, recipe="mxfp8"), CASE.sizes()["sizes"]
    with torch.inference_mode():
        y = module(CASE.x, sizes, is_first_microbatch=True)
    found = step(module, is_first_microbatch=False)
    assert torch.equal(found[0], y[:48]) and all(t.isfinite().all() for t in found)


KINDS = ("linear", "single", "mlp")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("recipe", ["bf16", "fp8_block"])
@pytest.mark.parametrize("reentrant", [False, True])
def test_checkpoint(kind, recipe, reentrant):
    module = make(kind, recipe=recipe)

    def again(x, sizes):
        return checkpoint(module, x, sizes, use_reentrant=reentrant)

    assert all(map(torch.equal, step(module), step(module, again)))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("reentrant", [False, True])
def test_checkpoint_of_delayed_scaling(kind, reentrant):
    """The recomputation uses the scales of its forward pass."""
    results = []
    for is_checkpointed in (False, True):
        module = make(kind, recipe="fp8_tensor_delayed")

        def again(x, sizes):
            return checkpoint(module, x, sizes, use_reentrant=reentrant)

        steps = [step(module, again if is_checkpointed else None) for _ in range(3)]
        results.append([*steps[-1], module.scaling_scale])
    assert all(map(torch.equal, *results))


@pytest.mark.parametrize("recipe", ["bf16", "fp8_block", "fp16"])
@pytest.mark.parametrize("kind", KINDS)
def test_autocast(kind, recipe):
    """The input becomes autocast's type, or the recipe's where it takes only one; weights stay."""
    module = make(kind, recipe=recipe, params_dtype=torch.float32)
    dtype = torch.float16 if recipe == "fp16" else BF16
    with torch.autocast(DEVICE, dtype=BF16):
        found = step(module, x=CASE.x.float())
    assert found[0].dtype == dtype and found[1].dtype == torch.float32
    assert all(t.dtype == torch.float32 for t in found[2:])
    halves = make(kind, recipe=recipe, params_dtype=torch.float32)
    y = halves(CASE.x.to(dtype), CASE.lengths)
    assert torch.equal(found[0], y[:48])
    with torch.autocast(DEVICE, dtype=BF16):
        y = qt.grouped_mm(CASE.x.float(), CASE.w.float(), CASE.lengths)
    assert y.dtype == BF16 and torch.equal(
        y[:48], qt.grouped_mm(CASE.x, CASE.w, CASE.lengths)[:48])


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("recipe", ["bf16", "fp8_block"])
def test_without_gradients(kind, recipe):
    module = make(kind, recipe=recipe)
    expected = step(module)[0]
    for mode in (torch.no_grad, torch.inference_mode):
        with mode():
            y = module(CASE.x, CASE.sizes()["sizes"])
        assert torch.equal(y[:48], expected) and not y.requires_grad


@pytest.mark.parametrize("kind", KINDS)
def test_frozen_weights(kind):
    module = make(kind, recipe="fp8_block")
    expected = step(module)
    module.zero_grad()
    for p in module.parameters():
        p.requires_grad_(False)
    x = CASE.x.clone().requires_grad_()
    module(x, CASE.lengths).backward(CASE.dy)
    assert torch.equal(x.grad[:48], expected[1]) and all(p.grad is None for p in
                                                         module.parameters())


@pytest.mark.parametrize("kind", KINDS)
def test_sizes_of_all_kinds(kind):
    module = make(kind)
    expected = step(module)[0]
    for sizes in (CASE.lengths, tuple(CASE.lengths), torch.tensor(CASE.lengths),
                  torch.tensor(CASE.lengths, dtype=torch.int32),
                  torch.tensor(CASE.lengths, device="cpu")):
        assert torch.equal(module(CASE.x, sizes)[:48], expected)


@pytest.mark.parametrize("kind", KINDS)
def test_more_axes(kind):
    module = make(kind, recipe="fp8_block")
    x = torch.randn(2, 3, 8, 64, dtype=BF16, requires_grad=True)
    y = module(x, CASE.lengths)
    flat = x.detach().reshape(48, 64).requires_grad_()
    z = module(flat, CASE.lengths)
    assert y.shape == (2, 3, 8, 64) and torch.equal(y.reshape(48, 64), z)
    y.sum().backward()
    z.sum().backward()
    assert torch.equal(x.grad.reshape(48, 64), flat.grad)
    wide = torch.randn(49, 81, dtype=BF16)
    for odd in (wide[:48, 16:80], wide[1:, 3:67], torch.randn(64, 48, dtype=BF16).T,
                wide.flatten()[5:5 + 48 * 64].view(48, 64)):
        leaf = odd.detach().requires_grad_()
        y = module(leaf, CASE.lengths)
        assert torch.equal(y, module(odd.contiguous().clone(), CASE.lengths))
        y.backward(odd)
        assert leaf.grad.isfinite().all()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("recipe", ["bf16", "fp8_block"])
def test_nan_tail(kind, recipe):
    """NaN after the last expert's rows stays out of every gradient; with outside, of y and dx."""
    module = make(kind, recipe=recipe, outside="zero")
    x = CASE.x.clone().requires_grad_()
    y = module(x, CASE.lengths)
    y.backward(CASE.dy)  # its tail is NaN too
    assert not y[48:].any() and not x.grad[48:].any()
    assert all(p.grad.isfinite().all() for p in module.parameters())


# ---------------------------------------------------------------------------------- distributed


@pytest.fixture(scope="module")
def group():
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "0"}
    store = dist.HashStore()
    dist.init_process_group("gloo" if DEVICE == "cpu" else "nccl", store=store, rank=0,
                            world_size=1)
    yield
    dist.destroy_process_group()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("recipe", ["bf16", "fp8_block"])
def test_ddp(group, kind, recipe):
    module = make(kind, recipe=recipe)
    expected = step(module)
    parallel = torch.nn.parallel.DistributedDataParallel(module)
    for _ in range(2):
        assert all(map(torch.equal, step(module, parallel), expected))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("recipe", ["bf16", "fp8_block"])
def test_fsdp2(group, kind, recipe):
    from torch.distributed.fsdp import fully_shard

    module = make(kind, recipe=recipe)
    expected = step(module)
    fully_shard(module, mesh=torch.distributed.init_device_mesh(DEVICE, (1,)))
    for _ in range(2):
        module.zero_grad()
        x = CASE.x.clone().requires_grad_()
        y = module(x, CASE.sizes()["sizes"])
        y.backward(CASE.dy)
        found = [y[:48], x.grad[:48], *[p.grad.to_local() for p in module.parameters()]]
        assert all(map(torch.equal, found, expected))


@pytest.mark.parametrize("kind", ["single", "mlp"])
def test_dtensor_parameters(group, kind):
    """Experts that are sharded over an expert-parallel mesh: each process has its own."""
    from torch.distributed.tensor import Shard, distribute_tensor

    module = make(kind, recipe="fp8_block")
    expected = step(module)
    mesh = torch.distributed.init_device_mesh(DEVICE, (1,))
    for name, p in list(module.named_parameters()):
        module.register_parameter(name, torch.nn.Parameter(
            distribute_tensor(p.detach(), mesh, [Shard(0)])))
    module.zero_grad()
    x = CASE.x.clone().requires_grad_()
    y = module(x, CASE.sizes()["sizes"])
    y.backward(CASE.dy)
    found = [y[:48], x.grad[:48], *[p.grad.to_local() for p in module.parameters()]]
    assert all(map(torch.equal, found, expected))


# -------------------------------------------------------------------------------- memory, threads


def use_counts(t):
    return sys.getrefcount(t), uses(t)


@pytest.mark.parametrize("kind", KINDS)
def test_errors_keep_no_memory(kind):
    module = make(kind, recipe="fp8_block")
    x = CASE.x.clone().requires_grad_()
    sizes = CASE.sizes()["sizes"]
    for _ in range(3):
        step(module)
    gc.collect()
    kept = [t for t in (x, sizes, *module.parameters())]
    bad = [{"sizes": sizes.float()}, {"out": torch.empty(3, 3)}, {"x": x[:, :8]},
           {"sizes": sizes[:2]}, {"x": x.int()}]
    if DEVICE == "cpu":  # a GPU reports these to check()
        bad.append({"sizes": torch.full((4,), 1 << 20)})
    counts = [use_counts(t) for t in kept]
    for i in range(1000):
        given = {"x": x, "sizes": sizes} | bad[i % len(bad)]
        with pytest.raises((ValueError, TypeError, RuntimeError)):
            module(given.pop("x"), given.pop("sizes"), **given)
    gc.collect()
    del given
    assert counts == [use_counts(t) for t in kept]


def test_threads():
    """Six threads with modules of their own, and one that they share."""
    shared = make("mlp", recipe="fp8_block")
    with torch.no_grad():
        y = shared(CASE.x, CASE.lengths)[:48]
    expected = step(make("mlp", recipe="fp8_block"))
    lock, original = threading.Lock(), make("mlp", recipe="fp8_block")

    def work():
        with lock:
            own = copy.deepcopy(original)
        for _ in range(10):
            assert all(map(torch.equal, step(own), expected))
            with torch.no_grad():
                assert torch.equal(shared(CASE.x, CASE.lengths)[:48], y)

    in_threads(work)


# ------------------------------------------------------------------------------------- functions


@pytest.mark.parametrize("m, k, n", [(16, 16, 32), (17, 18, 33), (16, 18, 33), (17, 16, 33)])
@pytest.mark.parametrize("recipe", ["bf16", "fp8_row", "mxfp8", "fp8_block", "nvfp4"])
def test_lengths_that_are_no_multiple_of_16(m, k, n, recipe):
    case = Case([m, m], n=n, k=k)
    x, w = (t.clone().requires_grad_() for t in (case.x, case.w))
    qt.grouped_mm(x, w, case.lengths, recipe=recipe).backward(case.dy)
    tolerance = {"bf16": 2**-7, "nvfp4": 0.6}.get(recipe, 2**-3)
    assert_near(x.grad[:2 * m], case.dgrad(case.dy, case.w), tolerance)
    assert_near(w.grad, case.wgrad(case.dy, case.x), tolerance)


def test_gradients_of_bias_and_prob():
    case = Case([10, 0, 33, 5], n=48, k=64)
    rows = torch.arange(4).repeat_interleave(torch.tensor(case.lengths))
    for recipe in ("bf16", "fp8_block"):
        for dtype in (torch.float32, BF16):
            bias = torch.randn(4, 48).to(dtype).requires_grad_()
            prob = torch.rand(case.rows).to(dtype).requires_grad_()
            y = qt.grouped_mm(case.x, case.w, case.lengths, recipe=recipe, bias=bias, prob=prob)
            y.backward(case.dy)
            dy, p = case.dy[:48].double(), prob[:48].detach().double()
            db = torch.zeros(4, 48, dtype=torch.float64).index_add(0, rows, dy * p[:, None])
            assert bias.grad.dtype == prob.grad.dtype == dtype
            assert_near(bias.grad, db, 2**-8)
            assert_near(prob.grad[:48], (dy * bias.detach().double()[rows]).sum(1), 2**-8)


def test_quantized_weights():
    case = Case([10, 0, 33, 5], n=48, k=64)
    for recipe in ("fp8_block", "mxfp8"):
        x = case.x.clone().requires_grad_()
        expected = qt.grouped_mm(x, case.w, case.lengths, recipe=recipe)
        expected.backward(case.dy)
        q, again = qt.quantize(case.w, recipe=recipe, of="w"), case.x.clone().requires_grad_()
        y = qt.grouped_mm(again, q, case.lengths, recipe=recipe)
        y.backward(case.dy)
        assert torch.equal(y[:48], expected[:48]) and torch.equal(again.grad[:48], x.grad[:48])
        row = qt.quantize(case.w, recipe=recipe, of="w", copies="rowwise")
        assert torch.equal(qt.grouped_mm(case.x, row, case.lengths, recipe=recipe)[:48], y[:48])
        with pytest.raises(ValueError, match="w has no columnwise tensor"):
            qt.grouped_mm(again, row, case.lengths, recipe=recipe)
        column = qt.quantize(case.w, recipe=recipe, of="w", copies="columnwise")
        with pytest.raises(ValueError, match="w has no rowwise tensor"):
            qt.grouped_mm(case.x, column, case.lengths, recipe=recipe)
        assert_near(qt.dequantize(q), case.w.double(), 2**-3)
    for recipe in ("w8a8_int8", "w4a8_mxfp4"):
        row = qt.quantize(case.w, recipe=recipe, of="w", copies="rowwise")
        with pytest.raises(ValueError, match=f"recipe {recipe} has no dy: it is for inference"):
            qt.grouped_mm(case.x.clone().requires_grad_(), row, case.lengths, recipe=recipe)


@pytest.mark.parametrize("leaf", ["x", "w1", "w2"])
@pytest.mark.parametrize("recipe", ["w8a8_int8", "w4a8_mxfp4"])
def test_recipes_for_inference(recipe, leaf):
    """The call itself refuses gradients of x and of weights that are not quantized."""
    t = {"x": torch.randn(48, 64).bfloat16(), "w1": torch.randn(4, 64, 64).bfloat16(),
         "w2": torch.randn(4, 64, 32).bfloat16()}
    indices, probs = torch.randint(4, (48, 2)), torch.rand(48, 2)
    linear, mlp = (kind(4, 64, out, recipe=recipe, params_dtype=BF16, device=DEVICE)
                   for kind, out in ((qt.GroupedLinear, 64), (qt.GroupedMLP, 32)))
    sizes = CASE.sizes()["sizes"]
    calls = [lambda: qt.grouped_mm(t["x"], t["w1"], sizes, recipe=recipe),
             lambda: qt.grouped_mlp(t["x"], t["w1"], t["w2"], sizes, recipe=recipe),
             lambda: qt.moe(t["x"], indices, probs, t["w1"], t["w2"], recipe=recipe)]
    expected = [call() for call in calls]
    t[leaf].requires_grad_()
    modules = [lambda: linear(t["x"], sizes), lambda: mlp(t["x"], sizes)]
    for call in calls[leaf == "w2":] + modules:
        with pytest.raises(ValueError, match=f"recipe {recipe} has no dy: it is for inference"):
            call()
    with torch.no_grad():
        assert all(map(torch.equal, [call() for call in calls], expected))
        assert all(call().isfinite().all() for call in modules)


def test_gradient_of_a_bias_next_to_a_recipe_for_inference():
    bias, sizes = torch.zeros(4, 64, requires_grad=True), CASE.sizes()["sizes"]
    qt.grouped_mm(CASE.x, CASE.w, sizes, recipe="w8a8_int8", bias=bias).backward(CASE.dy)
    assert_near(bias.grad, torch.stack([part.sum(0) for part in CASE.parts(CASE.dy)]))


def test_main_grad_without_a_backward_pass():
    main_grad = torch.zeros(4, 64, 64)
    with pytest.raises(ValueError, match="main_grad: neither x nor w requires a gradient"):
        qt.grouped_mm(CASE.x, CASE.w, CASE.lengths, main_grad=main_grad)
    with torch.no_grad():
        qt.grouped_mm(CASE.x, CASE.w, CASE.lengths, main_grad=main_grad)
    x = CASE.x.clone().requires_grad_()
    qt.grouped_mm(x, CASE.w, CASE.lengths, main_grad=main_grad).backward(CASE.dy)
    assert_near(main_grad, CASE.wgrad(CASE.dy, CASE.x), 1e-4)


def test_outside_without_rows():
    y = qt.grouped_mm(CASE.x, CASE.w, [0, 0, 0, 0], outside="zero")
    assert y.shape == (CASE.rows, 64) and not y.any()


def test_check_reports_sizes_that_pass_the_rows():
    with pytest.raises(RuntimeError, match="group"):  # the host checks each run
        qt.grouped_mm(CASE.x, CASE.w, torch.tensor([10, 0, 3300, 5]))
        qt.check()
    qt.check()


def test_tools():
    assert {"bf16", "fp8_block", "mxfp8"} <= set(qt.recipes())
    assert qt.version().count(".") == 2
    with pytest.raises(RuntimeError, match="in use already"):
        qt.add_specs(ROOT)
    with pytest.raises(ValueError, match="folder: /nowhere is no folder"):
        qt.add_specs("/nowhere")


@pytest.mark.skipif(DEVICE != "cpu", reason="needs a machine without a GPU")
def test_tune_needs_a_gpu():
    with pytest.raises(RuntimeError, match="."):
        qt.tune("fprop bf16 g=1 m=64 n=64 k=64", seconds=0.1)


@pytest.mark.parametrize("name, line", [
    ("linear", "main_grad of 4 microbatches"), ("wgrad_queue", "flushed, 0 products wait"),
    ("cuda_graph", "0 tokens: same bits as eager"), ("recipe", "mxfp6 errors: y 0.0")])
def test_examples(name, line):
    path = os.path.join(ROOT, "examples", f"torch_{name}.py")
    made = subprocess.run([sys.executable, path], capture_output=True, text=True, env=os.environ | {
        "PYTHONPATH": os.path.join(ROOT, "runtime", "python")})
    assert made.returncode == 0 and line in made.stdout, made.stdout + made.stderr


@pytest.mark.parametrize("recipe", qt.recipes())
def test_inference_in_every_recipe(recipe):
    """Lines of inference have no random numbers, whatever those of training have."""
    x, sizes = torch.randn(12, 128, device=DEVICE).bfloat16(), torch.tensor([5, 0, 7])
    module = qt.GroupedMLP(3, 128, 128, recipe=recipe, params_dtype=torch.float16
                           if recipe.endswith("fp16") else BF16, device=DEVICE)
    with torch.no_grad():
        y = module(x.to(module.w1.dtype), sizes.to(DEVICE))
    assert y.shape == x.shape and torch.isfinite(y).all()


@pytest.mark.parametrize("kind, frozen, trained", [
    (qt.GroupedLinear, "weight0", "weight2"), (qt.GroupedMLP, "w1", "w2"),
    (qt.GroupedMLP, "w2", "w1")])
def test_one_frozen_weight_of_many(kind, frozen, trained):
    """They get no gradient later; main_grad takes those of all weights or of none."""
    x, sizes = torch.randn(12, 64, device=DEVICE).bfloat16(), torch.tensor([5, 0, 7])
    for more in (dict(delay_wgrad_compute=True), dict(fuse_wgrad_accumulation=True)):
        module = kind(3, 64, 64, params_dtype=BF16, device=DEVICE, **more)
        getattr(module, frozen).requires_grad_(False)
        for p in module.parameters():
            p.main_grad = torch.zeros(p.shape, device=DEVICE)
        if "fuse_wgrad_accumulation" in more:
            with pytest.raises(ValueError, match="fuse_wgrad_accumulation: .* all or none"):
                module(x, sizes.to(DEVICE))
            continue
        module(x.requires_grad_(), sizes.to(DEVICE)).sum().backward()
        module.backward_dw()
        assert getattr(module, frozen).grad is None
        assert getattr(module, trained).grad.abs().sum() > 0


@pytest.mark.parametrize("kind", [qt.GroupedLinear, qt.GroupedMLP])
def test_state_of_delayed_scaling_stays_fp32(kind):
    module = kind(3, 64, 64, recipe="fp8_tensor_delayed", device=DEVICE).to(BF16)
    x, sizes = torch.randn(12, 64, device=DEVICE).bfloat16(), torch.tensor([5, 0, 7])
    module.scaling_history.fill_(1 / 3)
    module.to(torch.float16).to(BF16)
    assert module.scaling_scale.dtype == module.scaling_history.dtype == torch.float32
    assert (module.scaling_history == 1 / 3).all()
    assert torch.isfinite(module(x, sizes.to(DEVICE))).all()


@pytest.mark.parametrize("is_fused", [False, True])
def test_a_change_of_one_weight_before_the_backward_pass(is_fused):
    """Separate weights that were copied have a version each; the gradient of x reads all."""
    fc1, fc2 = (copy.deepcopy(make("linear", bias=False)) for _ in range(2))
    sizes, x = CASE.sizes()["sizes"], CASE.x.clone().requires_grad_(not is_fused)
    if is_fused:
        modules = qt.Sequential(fc1, qt.Activation("relu"), fc2)
        y = modules(x, sizes, sizes)
    else:
        y = fc2(x, sizes)
    with torch.no_grad():
        fc2.weight2.add_(1)
    with pytest.raises(RuntimeError, match="the weights of expert 2 were changed in place"):
        y.backward(CASE.dy)


@pytest.mark.parametrize("recipe", ["bf16", "fp8_block"])
def test_fake_tensors(recipe):
    """Modules are made and functions called without memory, with a warning as an error."""
    with FakeTensorMode(), warnings.catch_warnings():
        warnings.simplefilter("error")
        for kind in KINDS:
            y = make(kind, recipe=recipe)(torch.empty(48, 64, dtype=BF16, requires_grad=True),
                                          [10, 0, 33, 5])
            y.sum().backward()
            assert y.shape == (48, 64)
        w1, w2 = torch.empty(4, 64, 64, dtype=BF16), torch.empty(4, 64, 32, dtype=BF16)
        y = qt.moe(torch.empty(9, 64, dtype=BF16, requires_grad=True), torch.zeros(9, 2).long(),
                   torch.empty(9, 2), w1, w2, recipe=recipe)
        y.sum().backward()
        assert y.shape == (9, 64)


@pytest.mark.parametrize("recipe", ["bf16", "fp8_block"])
@pytest.mark.parametrize("mode", ["real", "fake", "symbolic"])
def test_make_fx(recipe, mode):
    """The graph has the operators, and serves the sizes that it was traced with."""
    w2, x, sizes = torch.randn(4, 64, 32).bfloat16(), CASE.x[:48], CASE.sizes()["sizes"]

    def function(x, w1, w2, sizes):
        return qt.grouped_mlp(qt.grouped_mm(x, w1, sizes, recipe=recipe), w1, w2, sizes,
                              recipe=recipe)

    graph = make_fx(function, tracing_mode=mode)(x, CASE.w, w2, sizes)
    assert "quern.mlp_forward" in graph.code
    assert torch.equal(graph(x, CASE.w, w2, sizes), function(x, CASE.w, w2, sizes))
