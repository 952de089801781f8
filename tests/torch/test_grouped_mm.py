# SPDX-License-Identifier: Apache-2.0
"""Values and gradients of the public functions, against float64."""

import os

import pytest
import torch
import torch.utils.checkpoint
from conftest import DEVICE, Case, assert_near, in_threads, shifted

import quern
import quern.torch as qt

SCALED = ("fp8_block", "mxfp8", "fp8_row", "fp8_tensor", "mxfp4")


def run(case, recipe="bf16", sizes=None, **more):
    x, w = (t.clone().requires_grad_() for t in (case.x, case.w))
    y = qt.grouped_mm(x, w, **(sizes or case.sizes()), recipe=recipe, **more)
    y.backward(case.dy.to(y.dtype))
    return y.detach()[:case.tokens], x.grad[:case.tokens], w.grad


@pytest.mark.parametrize("name", ["sizes", "offs"])
@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
def test_bf16_equals_float64(case, name, dtype):
    y, dx, dw = run(case, sizes=case.sizes(name, dtype))
    assert_near(y, case.fprop(case.x, case.w))
    assert_near(dx, case.dgrad(case.dy, case.w))
    assert_near(dw, case.wgrad(case.dy, case.x))
    assert not dw[1].any()  # the expert without tokens


@pytest.mark.parametrize("lengths, n, k", [([0, 0, 0], 16, 16), ([1], 8, 8), ([17, 16], 33, 18),
                                           ([127, 1, 128, 129], 40, 72)])
@pytest.mark.parametrize("recipe", ["bf16", "fp8_block", "mxfp8"])
def test_odd_shapes(lengths, n, k, recipe):
    case = Case(lengths, n, k)
    y, dx, dw = run(case, recipe)
    tolerance = 2**-8 if recipe == "bf16" else 2**-3
    assert_near(y, case.fprop(case.x, case.w), tolerance)
    assert_near(dx, case.dgrad(case.dy, case.w), tolerance)
    assert_near(dw, case.wgrad(case.dy, case.x), tolerance)


def test_no_rows():
    w = torch.randn(2, 8, 16, dtype=torch.bfloat16, requires_grad=True)
    x = torch.empty(0, 16, dtype=torch.bfloat16, requires_grad=True)
    y = qt.grouped_mm(x, w, torch.zeros(2, dtype=torch.int32))
    assert y.shape == (0, 8)
    y.sum().backward()
    assert x.grad.shape == (0, 16) and not w.grad.any()


def values(case, t, of, recipe, copies):
    """The values of a tensor that the product reads: quantized and back."""
    sizes = {} if of == "w" else case.sizes()
    quantized = qt.quantize(t, **sizes, recipe=recipe, of=of, copies=copies)
    return qt.dequantize(quantized, **sizes, copies=copies, dtype=torch.float32)


@pytest.mark.parametrize("recipe", SCALED)
def test_scaled_products_read_the_right_tensors(recipe):
    case = Case([70, 0, 130, 5], n=128, k=256)
    y, dx, dw = run(case, recipe)
    read = {(of, copies): values(case, t, of, recipe, copies)
            for of, t in (("x", case.x), ("w", case.w), ("dy", case.dy))
            for copies in ("rowwise", "columnwise")}
    assert_near(y, case.fprop(read["x", "rowwise"], read["w", "rowwise"]))
    assert_near(dx, case.dgrad(read["dy", "rowwise"], read["w", "columnwise"]))
    assert_near(dw, case.wgrad(read["dy", "columnwise"], read["x", "columnwise"]))


PACKED = ("w4a16_mxfp4", "w4a16_nvfp4", "w4a16_int4", "w4a16_int4_zeros", "w4a16_int4_fp16",
          "w4a16_int4_zeros_fp16", "w8a16_fp8_block")


@pytest.mark.parametrize("recipe", PACKED)
@pytest.mark.parametrize("is_quantized", [False, True])
def test_packed_weights_have_one_tensor_for_both_products(recipe, is_quantized):
    dtype = torch.float16 if recipe.endswith("_fp16") else torch.bfloat16
    tolerance = 2**-10 if recipe.endswith("_fp16") else 2**-8
    # square: a wrong tensor would have the right size
    case = Case([70, 0, 130, 5], n=128, k=128, dtype=dtype)
    quantized = qt.quantize(case.w, recipe=recipe, of="w", copies="rowwise")
    exact = torch.float32 if recipe == "w4a16_nvfp4" else dtype  # in two levels, or one
    w = qt.dequantize(quantized, dtype=exact).float()
    x, trained = case.x.clone().requires_grad_(), case.w.clone().requires_grad_()
    y = qt.grouped_mm(x, quantized if is_quantized else trained, **case.sizes(), recipe=recipe)
    y.backward(case.dy)
    assert y.dtype == x.grad.dtype == dtype
    assert_near(y[:case.tokens], case.fprop(case.x, w), tolerance)
    assert_near(x.grad[:case.tokens], case.dgrad(case.dy, w), tolerance)
    if not is_quantized:
        assert_near(trained.grad, case.wgrad(case.dy, case.x), tolerance)


@pytest.mark.parametrize("recipe, other", [("w4a16_int4", "w4a16_int4_fp16"),
                                           ("w4a16_int4_zeros_fp16", "w4a16_int4_zeros")])
def test_packed_weights_serve_both_types(recipe, other):
    """The same bytes, and an error that names the recipe for the type of x."""
    types = {False: torch.bfloat16, True: torch.float16}
    dtype, wrong = (types[name.endswith("_fp16")] for name in (recipe, other))
    case = Case([3, 4], n=32, k=256, dtype=wrong)
    packed = qt.quantize(case.w, recipe=recipe, of="w", copies="rowwise")
    again = qt.quantize(case.w, recipe=other, of="w", copies="rowwise")
    assert torch.equal(packed.rowwise, again.rowwise)
    assert torch.equal(packed.rowwise_sf, again.rowwise_sf)
    with pytest.raises(TypeError, match=f"x is {wrong}: {dtype} is expected; recipe {other} has "
                                        f"the same weights next to {wrong}"):
        qt.grouped_mm(case.x, packed, **case.sizes(), recipe=recipe)
    y = qt.grouped_mm(case.x, packed, **case.sizes(), recipe=other)
    assert torch.equal(y[:7], qt.grouped_mm(case.x, again, **case.sizes(), recipe=other)[:7])
    with pytest.raises(ValueError, match=f"of recipe {recipe}: of=w of w4a16_mxfp4 is expected"):
        qt.grouped_mm(case.x.bfloat16(), packed, **case.sizes(), recipe="w4a16_mxfp4")


@pytest.mark.parametrize("recipe, decibels", [("fp8_block", 28), ("mxfp8", 28), ("nvfp4", 14)])
def test_signal_to_noise(recipe, decibels):
    case = Case([128, 100, 300], n=128, k=512)
    expected = (case.fprop(case.x, case.w), case.dgrad(case.dy, case.w),
                case.wgrad(case.dy, case.x))
    for found, reference in zip(run(case, recipe), expected):
        noise = (found.double() - reference).norm()
        assert 20 * torch.log10(reference.norm() / noise) > decibels


def test_random_rounding_follows_the_seed():
    case = Case([40, 24], n=64, k=64)
    results = []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        results.append(run(case, "nvfp4")[1])
    assert torch.equal(results[0], results[1]) and not torch.equal(results[0], results[2])


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32])
@pytest.mark.parametrize("recipe", ["fp8_block", "mxfp8"])
def test_types_of_values(dtype, recipe):
    case = Case([30, 9], n=32, k=64, dtype=dtype)
    y, dx, dw = run(case, recipe)
    assert y.dtype == dx.dtype == dw.dtype == dtype
    assert_near(y, case.fprop(case.x, case.w), 2**-4)
    assert_near(dw, case.wgrad(case.dy, case.x), 2**-4)


def test_fp32_result(case):
    y, dx, dw = run(case, out_dtype=torch.float32)
    assert y.dtype == torch.float32 and dx.dtype == dw.dtype == torch.bfloat16
    assert_near(y, case.fprop(case.x, case.w), 1e-5)
    assert_near(dw, case.wgrad(case.dy, case.x))


@pytest.mark.parametrize("recipe", ["bf16", "fp8_block"])
@pytest.mark.parametrize("wanted", [(True, False), (False, True), (False, False)])
def test_only_wanted_gradients(case, recipe, wanted):
    x, w = (t.clone().requires_grad_(r) for t, r in zip((case.x, case.w), wanted))
    y = qt.grouped_mm(x, w, recipe=recipe, **case.sizes())
    assert y.requires_grad == any(wanted)
    if any(wanted):
        y.backward(case.dy)
    both = run(case, recipe)
    for t, full in zip((x, w), both[1:]):
        assert t.grad is None if not t.requires_grad else torch.equal(t.grad[:len(full)], full)


def test_axes_and_strides(case):
    wide = torch.randn(6, 5, 80).to(torch.bfloat16)
    lengths = torch.tensor([3, 7, 12, 8])
    y = qt.grouped_mm(wide[..., :64].contiguous(), case.w, lengths)
    assert y.shape == (6, 5, 48)
    rows = wide.reshape(30, 80)[:, :64]  # 80 apart
    assert torch.equal(qt.grouped_mm(rows, case.w, lengths), y.reshape(30, 48))


@pytest.mark.parametrize("experts, tokens, n, k", [
    (1, 127, 128, 512), (8, 15, 128, 512), (8, 1027, 128, 512),
    pytest.param(16, 10027, 128, 512, marks=pytest.mark.skipif(
        DEVICE == "cpu", reason="needs a GPU to be done soon"))])
@pytest.mark.parametrize("accumulate", [False, True])
def test_transformer_engines_shapes(experts, tokens, n, k, accumulate):
    torch.manual_seed(0)
    cuts = torch.randint(tokens + 1, (experts - 1,)).sort().values.tolist()
    case = Case([b - a for a, b in zip([0, *cuts], [*cuts, tokens])], n=n, k=k)
    x, w = (t.clone().requires_grad_() for t in (case.x, case.w))
    main_grad = torch.ones(experts, n, k) if accumulate else None
    y = qt.grouped_mm(x, w, **case.sizes(), main_grad=main_grad)
    y.backward(case.dy)
    assert_near(y[:tokens], case.fprop(case.x, case.w))
    assert_near(x.grad[:tokens], case.dgrad(case.dy, case.w))
    assert_near(main_grad - 1 if accumulate else w.grad, case.wgrad(case.dy, case.x))


def test_main_grad(case):
    """product_ adds a weight gradient to memory of the caller's."""
    main_grad = torch.ones(4, 48, 64)
    torch.ops.quern.product_("wgrad bf16 d=f32 beta=1", 4, 48, 64, case.rows, case.dy, None, None,
                             case.x, None, None, case.sizes()["sizes"], None, None, None,
                             main_grad)
    assert_near(main_grad, case.wgrad(case.dy, case.x) + 1, 1e-5)


def test_a_second_derivative_is_refused(case):
    """Also by a tensor that backward only read, and together with a first one."""
    x, w = (t.clone().requires_grad_() for t in (case.x, case.w))
    for function in (torch.sum, lambda y: y.square().sum()):
        loss = function(qt.grouped_mm(x, w, **case.sizes()))
        (dx,) = torch.autograd.grad(loss, x, create_graph=True)
        for of in (dx.sum(), loss + dx.square().sum()):
            with pytest.raises(RuntimeError, match="second derivative"):
                torch.autograd.grad(of, w, retain_graph=True)
        with pytest.raises(RuntimeError, match="second derivative"):
            dx.square().sum().backward()


@pytest.mark.parametrize("size", [1e5, 1e-8])
def test_prob_of_any_bias_in_fp16(size):
    """Values of the bias that FP16 does not have."""
    x, w = (torch.ones(shape, dtype=torch.float16, device=DEVICE) for shape in ((4, 16), (1, 8, 16)))
    prob = torch.ones(4, device=DEVICE, requires_grad=True)
    bias = torch.full((1, 8), size, device=DEVICE)
    y = qt.grouped_mm(x, w, [4], recipe="fp16", bias=bias, prob=prob)
    y.backward(torch.full_like(y, 2**-9))
    torch.testing.assert_close(prob.grad, torch.full_like(prob, size * 2**-6), rtol=2**-15, atol=0)


def test_checkpoint(case):
    def layer(x, w):
        return qt.grouped_mm(x, w, **case.sizes(), recipe="fp8_block")

    x, w = (t.clone().requires_grad_() for t in (case.x, case.w))
    torch.utils.checkpoint.checkpoint(layer, x, w, use_reentrant=False).backward(case.dy)
    _, dx, dw = run(case, "fp8_block")
    assert torch.equal(x.grad[:case.tokens], dx) and torch.equal(w.grad, dw)


def test_threads(case):
    expected = run(case, "fp8_block")

    def work():
        for _ in range(20):
            assert all(map(torch.equal, run(case, "fp8_block"), expected))

    in_threads(work)


@pytest.mark.skipif(DEVICE != "cpu", reason="CUDA does not survive fork()")
def test_a_child_of_fork_works(case):
    expected = qt.grouped_mm(case.x, case.w, **case.sizes())[:case.tokens]
    child = os.fork()
    if not child:
        y = qt.grouped_mm(case.x, case.w, **case.sizes())[:case.tokens]
        text = quern.why("fprop bf16 g=1 m=1 n=8 k=8", "host")
        os._exit(0 if torch.equal(y, expected) and text else 1)
    assert os.waitpid(child, 0)[1] == 0


def test_why_names_the_kernel():
    assert "fprop" in qt.why("fprop bf16 g=8 m=4096 n=2048 k=7168", backend="host")
    with pytest.raises(quern.Error, match="bf17.*did you mean 'bf16'"):
        qt.why("fprop bf17 g=8 m=4096 n=2048 k=7168")


def test_unknown_words():
    for function in (qt.why, qt.tune):
        with pytest.raises(ValueError, match="backend is 'cpu': one of auto, host, jit"):
            function("fprop bf16 g=1 m=1 n=8 k=8", backend="cpu")
    with pytest.raises(ValueError, match="name is 'foo': .*'torchtitan', 'torchao' or 'megatron'"):
        qt.install("foo")


def test_expanded_values_and_strided_sizes():
    """A stride of 0 is no word for rows without gaps: those tensors are copied."""
    sizes = torch.tensor([5, 9, 0, 9, 7, 9], dtype=torch.int32, device=DEVICE)[::2]
    one = torch.randn(40, 16, device=DEVICE).bfloat16()
    for x, w in ((one[:1].expand(12, 16), torch.stack([one[:24]] * 3)),
                 (one[:12], one[None, :24].expand(3, 24, 16)),
                 (one[:12], one[:3, None].expand(3, 24, 16)),
                 (one.flatten().unfold(0, 16, 8)[:12], torch.stack([one[:24]] * 3))):
        x, w = (t.detach().requires_grad_() for t in (x, w))
        y = qt.grouped_mm(x, w, sizes)
        expected = qt.grouped_mm(x.contiguous(), w.contiguous(), sizes.contiguous())
        with torch.no_grad():
            assert torch.equal(qt.grouped_mm(x, w, sizes), y)
        assert torch.equal(y, expected)
        for a, b in zip(torch.autograd.grad(y.sum(), (x, w)),
                        torch.autograd.grad(expected.sum(), (x, w))):
            assert torch.equal(a, b)


def test_values_of_fp32_that_are_not_aligned(case):
    """Views at a multiple of 4 bytes, such as a slice of a flat parameter, are copied."""
    bias, b2 = torch.randn(4, 48), torch.randn(4, 64)
    w2, prob = torch.randn(4, 64, 24).bfloat16(), torch.rand(case.rows)
    for function, weights, more in ((qt.grouped_mm, (case.w,), dict(bias=bias, prob=prob)),
                                    (qt.grouped_mlp, (case.w, w2),
                                     dict(b1=bias, b2=b2, prob=prob))):
        found, expected = (function(case.x, *weights, case.lengths, **{
            name: change(t) for name, t in more.items()}) for change in (shifted, torch.clone))
        assert torch.equal(found[:case.tokens], expected[:case.tokens])


def batched_functions():
    w2, sizes = torch.randn(4, 64, 24).bfloat16(), torch.tensor([10, 0, 33, 5])
    a, b = torch.randn(4, 8, 64).bfloat16(), torch.randn(4, 48, 8).bfloat16()
    pairs = torch.randint(4, (48, 2))
    return {"mm": lambda x, w: qt.grouped_mm(x, w, sizes),
            "mm fp8": lambda x, w: qt.grouped_mm(x, w, sizes, recipe="fp8_block"),
            "mlp": lambda x, w: qt.grouped_mlp(x, w, w2, sizes),
            "moe": lambda x, w: qt.moe(x, pairs, None, w, w2),
            "lora": lambda x, w: qt.grouped_mm(x, w, sizes, lora=(a, b)),
            "permute": lambda x, w: qt.permute(x, pairs.int()),
            "combine": lambda x, w: qt.combine(x, torch.arange(48, dtype=torch.int32).view(24, 2))}


@pytest.mark.parametrize("name", batched_functions())
def test_batched_gradients_are_refused(case, name):
    x = case.x[:48].clone().requires_grad_()
    y = batched_functions()[name](x, case.w)
    dy = torch.ones(3, *y.shape, dtype=y.dtype)
    for call in (lambda: torch.autograd.grad(y, x, dy, is_grads_batched=True, retain_graph=True),
                 lambda: torch.func.vmap(lambda d: torch.autograd.grad(y, x, d)[0])(dy)):
        with pytest.raises(NotImplementedError, match="is_grads_batched=True, and torch.func"):
            call()


@pytest.mark.parametrize("kind", ["mm", "mlp"])
def test_out_without_a_graph_has_another_version(case, kind):
    """Who saved its old values must not compute a gradient with the new ones."""
    factor, w2 = torch.ones((), requires_grad=True), torch.randn(4, 64, 24).bfloat16()
    out = torch.zeros(case.rows, 48 if kind == "mm" else 64, dtype=torch.bfloat16)
    saved = factor * out
    with torch.no_grad():
        if kind == "mm":
            qt.grouped_mm(case.x, case.w, **case.sizes(), out=out)
        else:
            qt.grouped_mlp(case.x, case.w, w2, **case.sizes(), out=out)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        saved.sum().backward()


@pytest.mark.parametrize("recipe", ["bf16", "mxfp8"])
def test_transformations_of_torch_func_are_refused(case, recipe):
    """Their tensors have no memory; a gradient through vmap would be left out without a word."""
    def function(x):
        return qt.grouped_mm(x, case.w, **case.sizes(), recipe=recipe)

    bias = torch.zeros(4, 48)
    for call in (lambda: torch.func.grad(lambda x: function(x).sum())(case.x),
                 lambda: torch.func.jvp(function, (case.x,), (case.x,)),
                 lambda: torch.func.vmap(function)(torch.stack([case.x] * 2)),
                 lambda: torch.func.vmap(lambda s: qt.grouped_mm(case.x, case.w, s, recipe=recipe))(
                     torch.stack([case.sizes()["sizes"]] * 2)),
                 lambda: torch.func.vmap(lambda q: q * function(case.x))(torch.ones(2, 1)),
                 lambda: torch.func.grad(lambda b: qt.grouped_mm(
                     case.x, case.w, **case.sizes(), recipe=recipe, bias=b).sum())(bias)):
        with pytest.raises(NotImplementedError, match="(x|bias|sizes): the transformations of"):
            call()


def test_forward_mode_is_refused(case):
    with torch.no_grad(), torch.autograd.forward_ad.dual_level():
        x = torch.autograd.forward_ad.make_dual(case.x.detach(), case.x.detach())
        with pytest.raises(NotImplementedError, match="jvp"):
            qt.grouped_mm(x, case.w, **case.sizes())
        with pytest.raises(NotImplementedError, match="jvp"):
            qt.grouped_mlp(x, case.w, torch.zeros(4, 64, 24).bfloat16(), **case.sizes())
