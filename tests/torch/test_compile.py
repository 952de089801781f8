# SPDX-License-Identifier: Apache-2.0
"""Modules and functions under torch.compile and torch.export: the bits of eager mode."""

import os
import subprocess
import sys
import warnings
import zlib

import pytest
import torch
from conftest import DEVICE, ROOT, Case, assert_near, shifted
from torch._dynamo.testing import CompileCounterWithBackend
from torch.fx.experimental.proxy_tensor import make_fx

import quern
import quern.torch as qt
from quern.torch import _compile

BF16 = torch.bfloat16
CASE = Case([10, 0, 33, 5], n=64, k=64)


@pytest.fixture(autouse=True)
def fresh():
    torch._dynamo.reset()
    _compile._said.clear()


class Setting:
    """A module, its caller, and its buffers."""

    def __init__(self, kind, recipe, *, buffers=False, main_grad=False, first=None, **more):
        torch.manual_seed(0)
        if kind == "linear":
            self.module = qt.GroupedLinear(4, 64, 64, params_dtype=BF16, device=DEVICE,
                                           recipe=recipe, fuse_wgrad_accumulation=main_grad, **more)
        else:
            self.module = qt.GroupedMLP(4, 64, 32, params_dtype=BF16, device=DEVICE, recipe=recipe,
                                        fuse_wgrad_accumulation=main_grad, **more)
        self.fused = [p for n, p in self.module.named_parameters() if n[0] == "w" and main_grad]
        for p in self.fused:
            p.main_grad = torch.zeros(p.shape)
        self.kind, self.first, self.sizes = kind, first, CASE.sizes()["sizes"]
        self.out, self.dgrad_out = (torch.full((2, CASE.rows, 64), 7.0, dtype=BF16) if buffers
                                    else (None, None))
        self.prob = torch.rand(CASE.rows)

    def __call__(self, x, prob):
        if self.kind == "linear":
            return self.module(x * 1, self.sizes, self.first, self.out, self.dgrad_out) * 1
        return self.module(x * 1, self.sizes, prob, self.first, self.out, self.dgrad_out) * 1

    def step(self, function):
        """Two steps; all that they make."""
        for p in self.fused:
            p.main_grad.zero_()
        self.module.zero_grad()
        for buffer in (self.out, self.dgrad_out):
            if buffer is not None:
                buffer.fill_(7)
        for _ in range(2):
            x, prob = CASE.x.clone().requires_grad_(), self.prob.clone().requires_grad_()
            y = function(x, prob)
            y.backward(CASE.dy)
        made = [y[:48], x.grad[:48]] + ([] if self.kind == "linear" else [prob.grad[:48]])
        made += [getattr(p, "main_grad", None) if p.grad is None else p.grad
                 for p in self.module.parameters()]
        return [t.detach().clone() for t in made + [self.out, self.dgrad_out] if t is not None]


@pytest.mark.parametrize("backend, recipe", [("aot_eager", "bf16"), ("aot_eager", "fp8_block"),
                                             ("inductor", "fp8_block")])
@pytest.mark.parametrize("more", [
    {}, {"single_grouped_weight": True, "single_grouped_bias": True}, {"buffers": True},
    {"main_grad": True, "single_grouped_weight": True}, {"first": True},
    {"first": torch.tensor([1])}, {"save_original_input": True}], ids=str)
def test_linear(backend, recipe, more):
    setting = Setting("linear", recipe, **more)
    expected = setting.step(setting)
    found = setting.step(torch.compile(setting, fullgraph=True, backend=backend))
    assert all(map(torch.equal, found, expected)) and len(found) == len(expected)
    assert setting.out is None or (setting.out[48:] == 7).all() and not setting.out.requires_grad


@pytest.mark.parametrize("backend, recipe", [("aot_eager", "bf16"), ("aot_eager", "fp8_block"),
                                             ("inductor", "fp8_block")])
@pytest.mark.parametrize("more", [{"bias": True}, {"recompute": True}, {"buffers": True},
                                  {"main_grad": True}, {"first": True}, {"outside": "zero"}],
                         ids=str)
def test_mlp(backend, recipe, more):
    setting = Setting("mlp", recipe, **more)
    expected = setting.step(setting)
    found = setting.step(torch.compile(setting, fullgraph=True, backend=backend))
    assert all(map(torch.equal, found, expected)) and len(found) == len(expected)


@pytest.mark.parametrize("bias", [False, True])
def test_sequential(bias):
    linear = {"params_dtype": BF16, "device": DEVICE, "single_grouped_weight": True, "bias": bias}
    fc1, fc2 = qt.GroupedLinear(4, 64, 64, **linear), qt.GroupedLinear(4, 32, 64, **linear)
    modules = qt.Sequential(fc1, qt.SwiGLU(), fc2)
    sizes = CASE.sizes()["sizes"]
    results = []
    for function in (modules, torch.compile(modules, fullgraph=True, backend="aot_eager")):
        modules.zero_grad()
        x = CASE.x.clone().requires_grad_()
        y = function(x, sizes, sizes)
        y.backward(CASE.dy)
        results.append([y[:48], x.grad[:48], *[p.grad for p in modules.parameters()]])
    assert all(map(torch.equal, *results))


@pytest.mark.parametrize("kind", ["linear", "mlp"])
@pytest.mark.parametrize("backend, recipe", [
    ("aot_eager", "nvfp4"), ("aot_eager", "fp8_tensor_delayed"),
    ("inductor", "fp8_tensor_delayed")])
def test_state(kind, backend, recipe):
    """Scales of delayed scaling, and seeds, over three steps."""
    results, sizes = [], CASE.sizes()["sizes"]
    for is_compiled in (False, True):
        module = Setting(kind, recipe).module
        function = torch.compile(module, fullgraph=True, backend=backend) if is_compiled else module
        for seed in range(3):
            torch.manual_seed(seed)
            module.zero_grad()
            x = CASE.x.clone().requires_grad_()
            y = function(x, sizes)
            y.backward(CASE.dy)
        results.append([y[:48], x.grad[:48], *[p.grad for p in module.parameters()],
                        *module.buffers()])
    assert all(map(torch.equal, *results))


@pytest.mark.parametrize("kind", ["linear", "mlp"])
@pytest.mark.parametrize("backend, recipe", [
    ("aot_eager", "fp8_block"), ("aot_eager", "fp8_tensor_delayed"), ("inductor", "fp8_block")])
def test_quantized_weights_are_kept_over_microbatches(kind, backend, recipe):
    results, sizes = [], CASE.sizes()["sizes"]
    for is_compiled in (False, True):
        module, made = Setting(kind, recipe).module, []
        function = torch.compile(module, fullgraph=True, backend=backend) if is_compiled else module
        for is_first in (True, False, True, False):
            module.zero_grad()
            x = CASE.x.clone().requires_grad_()
            y = function(x, sizes, is_first_microbatch=is_first)
            y.backward(CASE.dy)
            made += [y[:48].detach(), x.grad[:48], *[p.grad for p in module.parameters()],
                     *[b.clone() for b in module.buffers()]]
            with torch.no_grad():
                for p in module.parameters():
                    p.mul_(1.5)
        results.append(made)
    assert all(map(torch.equal, *results)) and not torch.equal(results[0][0], results[0][-1])
    kept = [t for q in module._cache.values() for t in q[:6] if t is not None]
    assert kept and all(t._dynamo_static_input_type for t in kept)


def cases(counts):
    for i, count in enumerate(counts):
        first = count // 3
        yield Case([first, 0, 0, count - first], n=64, k=64, rows=count or None, seed=i), count


@pytest.mark.parametrize("kind", ["linear", "mlp"])
@pytest.mark.parametrize("recipe", ["bf16", "fp8_block"])
@pytest.mark.parametrize("marked, graphs", [("unbacked", 1), ("dynamic", 1), ("", 3)])
def test_token_counts(kind, recipe, marked, graphs):
    setting = Setting(kind, recipe)
    counter = CompileCounterWithBackend("aot_eager")

    def step(x, sizes):
        return setting.module(x, sizes)

    compiled = torch.compile(step, fullgraph=True, backend=counter)
    counts = [100, 77, 300, 2, 511, 64] + ([0, 1] if marked == "unbacked" else [])
    if not marked:
        counts += [0, *range(30, 67)]
    for case, count in cases(counts):
        sizes = case.sizes()["sizes"]
        x = case.x[:count].clone().requires_grad_(marked != "unbacked")
        if marked:
            getattr(torch._dynamo.decorators, f"mark_{marked}")(x, 0)
        y = compiled(x, sizes)
        assert torch.equal(y, step(x, sizes)) and y.shape == (count, 64)
        if x.requires_grad:
            y.sum().backward()
            assert x.grad.isfinite().all()
    assert counter.frame_count <= graphs


@pytest.mark.parametrize("kind", ["linear", "mlp"])
def test_all_shapes_dynamic(kind):
    setting = Setting(kind, "bf16")
    compiled = torch.compile(setting.module, fullgraph=True, dynamic=True, backend="aot_eager")
    for case, count in cases([10, 3, 1, 0]):
        x, sizes = case.x[:count], case.sizes()["sizes"]
        assert torch.equal(compiled(x, sizes), setting.module(x, sizes))


@pytest.mark.parametrize("kind", ["linear", "mlp"])
@pytest.mark.parametrize("recipe", ["bf16", "fp8_block"])
def test_export(kind, recipe):
    setting = Setting(kind, recipe, bias=True)
    x, sizes = CASE.x[:48], CASE.sizes()["sizes"]
    rows = torch.export.Dim("rows", min=2, max=1 << 20)
    with torch.no_grad():
        arguments = (x, sizes)
        names = ("inp", "m_splits") if kind == "linear" else ("x", "sizes")
        program = torch.export.export(setting.module, arguments,
                                      dynamic_shapes={names[0]: {0: rows}, names[1]: None})
        names = {str(node.target) for node in program.graph.nodes}
        assert f"quern.{'product' if kind == 'linear' else 'mlp_forward'}.default" in names
        for case, count in cases([48, 200]):
            x, sizes = case.x[:count], case.sizes()["sizes"]
            assert torch.equal(program.module()(x, sizes), setting.module(x, sizes))


def layer(count):
    """The arguments of moe for so many tokens in two axes: the experts are the same for any."""
    torch.manual_seed(0)
    weights = [torch.randn(shape).to(BF16) for shape in ((4, 64, 64), (4, 64, 32), (4, 8, 64),
                                                         (4, 64, 8))]
    x = torch.randn(count, 1, 64).to(BF16)
    return x, torch.randint(4, (count, 2)), torch.rand(count, 2), *weights


LAYERS = {
    "moe": lambda x, indices, probs, w1, w2, a, b: qt.moe(x, indices, probs, w1, w2),
    "residual": lambda x, indices, probs, w1, w2, a, b: qt.moe(
        x, indices, probs, w1, w2, residual=x * 2, first=1, experts=6),
    "adapters": lambda x, indices, probs, w1, w2, a, b: qt.moe(
        x, indices, probs, w1, w2, residual=x * 2, lora1=(a, b)),
}


@pytest.mark.parametrize("kind", LAYERS)
def test_all_shapes_dynamic_of_moe(kind):
    compiled = torch.compile(LAYERS[kind], fullgraph=True, dynamic=True, backend="aot_eager")
    for count in (10, 3, 200):
        assert torch.equal(compiled(*layer(count)), LAYERS[kind](*layer(count)))


@pytest.mark.parametrize("kind", LAYERS)
@pytest.mark.parametrize("how", ["make_fx", "export", "strict export"])
def test_program_of_moe_has_any_token_count(kind, how):
    if how == "make_fx":
        program = make_fx(LAYERS[kind], tracing_mode="symbolic")(*layer(10))
    else:
        module, rows = torch.nn.Module(), torch.export.Dim("rows", min=2, max=1 << 20)
        module.forward = LAYERS[kind]
        program = torch.export.export(
            module, layer(10), strict=how == "strict export",
            dynamic_shapes=[{0: rows}] * 3 + [None] * 4).module()
    for count in (10, 3, 200):
        assert torch.equal(program(*layer(count)), LAYERS[kind](*layer(count)))


SIZES = torch.tensor([3, 0, 5, 2])
INTEGERS = {
    "first": lambda n, x, indices, probs, w1, w2, a, b: qt.moe(
        x, indices, probs, w1, w2, first=n, experts=12),
    "experts": lambda n, x, indices, probs, w1, w2, a, b: qt.moe(
        x, indices, probs, w1, w2, experts=n + 4),
    "interleave": lambda n, x, indices, probs, w1, w2, a, b: qt.moe(
        x, indices, probs, w1, w2, interleave=n),
    "interleave of an MLP": lambda n, x, indices, probs, w1, w2, a, b: qt.grouped_mlp(
        x, w1, w2, SIZES, interleave=n),
    "interleave next to adapters": lambda n, x, indices, probs, w1, w2, a, b: qt.grouped_mlp(
        x, w1, w2, SIZES, interleave=n, lora1=(a, b)),
    "route": lambda n, x, indices, *rest: qt.route(indices, 3, first=n, total=12)[1],
}


@pytest.mark.parametrize("name", INTEGERS)
def test_integers_that_vary(name):
    """torch.compile makes an integer symbolic once it has two values; a line needs each value."""
    compiled = torch.compile(INTEGERS[name], fullgraph=True, backend="aot_eager")
    for n in (0, 2, 4, 8):
        assert torch.equal(compiled(n, *layer(10)), INTEGERS[name](n, *layer(10)))


@pytest.mark.parametrize("name, reason", [
    ("list", "the sizes are a list"), ("queue", "a queue of weight gradients is filled"),
    ("delay", "delay_wgrad_compute keeps"), ("separate", "main_grad of separate weights"),
    ("megatron", "grad_added_to_main_grad is set")])
def test_what_cannot_be_compiled_runs_after_one_warning(name, reason):
    linear = {"params_dtype": BF16, "device": DEVICE, "bias": False}
    more = {"delay": {"delay_wgrad_compute": True}, "separate": {"fuse_wgrad_accumulation": True},
            "megatron": {"fuse_wgrad_accumulation": True, "single_grouped_weight": True}}
    layer = qt.GroupedLinear(4, 64, 64, **linear, **more.get(name, {}))
    queue, w = qt.WgradQueue(), CASE.w.clone().requires_grad_()
    for p in layer.parameters():
        p.main_grad = torch.zeros(p.shape)
        if name == "megatron":
            p.grad_added_to_main_grad = False
    sizes = CASE.lengths if name == "list" else CASE.sizes()["sizes"]

    def step(x):
        if name == "queue":
            return qt.grouped_mm(x * 1, w, sizes, queue=queue) * 1
        return layer(x * 1, sizes) * 1

    compiled = torch.compile(step, backend="aot_eager")
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        for _ in range(2):
            x = CASE.x.clone().requires_grad_()
            y = compiled(x)
            y.backward(CASE.dy)
    ours = [str(w.message) for w in said if "quern.torch" in str(w.message)]
    assert len(ours) == 1 and reason in ours[0]
    assert torch.equal(y[:48], step(CASE.x)[:48])
    if name == "queue":
        assert len(queue) == 2
        queue.flush()
    if name == "delay":
        layer.backward_dw()
        assert layer.weight0.grad is not None
    if name in ("separate", "megatron"):
        assert all(p.main_grad.any() or i == 1 for i, p in enumerate(layer.parameters()))
    torch._dynamo.reset()
    with pytest.raises(Exception, match="quern.torch|in_eager|disable"):
        torch.compile(step, backend="aot_eager", fullgraph=True)(CASE.x)


@pytest.mark.parametrize("kind", ["mm", "mlp", "moe"])
@pytest.mark.parametrize("backend, recipe", [("aot_eager", "bf16"), ("inductor", "fp8_block")])
def test_slices_that_are_not_aligned(kind, backend, recipe):
    """Arguments, and slices that the graph makes, begin one element after memory of torch's."""
    w2, prob, sizes = torch.randn(4, 64, 32).bfloat16(), torch.rand(48, 2), CASE.sizes()["sizes"]
    indices = torch.randint(4, (48, 2))
    given = (CASE.x[:48], CASE.w, w2, prob)

    def inner(t):
        return torch.cat([t.flatten()[:1], t.flatten()])[1:].view(t.shape)

    def function(cut, *leaves):
        x, w1, w2, prob = map(cut, leaves)
        if kind == "mm":
            return qt.grouped_mm(x, w1, sizes, recipe=recipe)
        if kind == "mlp":
            return qt.grouped_mlp(x, w1, w2, sizes, recipe=recipe, prob=prob[:, 1])
        return qt.moe(x, indices, prob, w1, w2, recipe=recipe)

    def step(function, change, cut):
        leaves = [change(t).detach().requires_grad_() for t in given]
        y = function(cut, *leaves)
        y.backward(change(CASE.dy[:48]))
        return [y, *[t.grad for t in leaves if t.grad is not None]]

    same = torch.nn.Identity()
    expected = step(function, torch.clone, same)
    compiled = torch.compile(function, fullgraph=True, backend=backend)
    for change, cut in ((shifted, same), (torch.clone, inner)):
        assert all(map(torch.equal, step(compiled, change, cut), expected))


def test_quantized_weights():
    q = qt.quantize(CASE.w, recipe="mxfp8", of="w")
    main_grad = torch.zeros(4, 64, 64)

    def step(x, sizes):
        return qt.grouped_mm(x * 1, q, sizes, recipe="mxfp8", main_grad=main_grad) * 1

    results = []
    for function in (step, torch.compile(step, fullgraph=True, backend="aot_eager")):
        main_grad.zero_()
        x = CASE.x.clone().requires_grad_()
        y = function(x, CASE.sizes()["sizes"])
        y.backward(CASE.dy)
        results.append((y[:48], x.grad[:48], main_grad.clone()))
    assert all(map(torch.equal, *results))
    assert_near(main_grad, CASE.wgrad(CASE.dy, CASE.x), 2**-3)


def test_autocast():
    w = CASE.w.float().requires_grad_()

    def step(x, sizes):
        with torch.autocast(DEVICE, dtype=BF16):
            return qt.grouped_mm(x, w, sizes)

    sizes = CASE.sizes()["sizes"]
    y = torch.compile(step, fullgraph=True, backend="aot_eager")(CASE.x.float(), sizes)
    assert y.dtype == BF16 and torch.equal(y[:48], step(CASE.x.float(), sizes)[:48])


def test_graphs_on_disk_are_those_of_this_build():
    """A graph that another build of the library left has the shapes of its operators."""
    with open(quern.find("libquern.so.0"), "rb") as library:  # COUPLED: soname
        build = zlib.crc32(library.read())
    assert f"quern {build}" in torch.compiler.config.cache_key_tag


def test_graphs_on_disk_are_those_of_these_specs(tmp_path):
    code = f"import quern; quern.add_specs({str(tmp_path)!r}); import quern.torch, torch; " \
        "print(torch.compiler.config.cache_key_tag)"
    env = os.environ | {"PYTHONPATH": os.path.join(ROOT, "runtime", "python")}
    tags = set()
    (tmp_path / "recipes").mkdir()
    for text in ("-- one", "-- two"):
        (tmp_path / "recipes" / "mine.lua").write_text(text)
        tags.add(subprocess.run([sys.executable, "-c", code], env=env, check=True, text=True,
                                capture_output=True).stdout)
    assert len(tags) == 2
