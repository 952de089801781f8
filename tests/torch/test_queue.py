# SPDX-License-Identifier: Apache-2.0
"""WgradQueue: deferred weight gradients equal those that are computed at once."""

import gc
import weakref

import pytest
import torch
from conftest import DEVICE, Case, assert_near, shifted

import quern.torch as qt

CASE = Case([10, 0, 33, 5], n=48, k=64)


def backward(queue, layer=0, case=CASE, recipe="bf16", **more):
    w = case.w.clone().requires_grad_()
    y = qt.grouped_mm(case.x, w, case.sizes()["sizes"], recipe=recipe, queue=queue, layer=layer,
                      **more)
    y.backward(case.dy)
    return w


@pytest.mark.parametrize("recipe", ["bf16", "fp8_block", "mxfp8"])
@pytest.mark.parametrize("fuse", [False, True])
def test_flush(recipe, fuse):
    queue = qt.WgradQueue()
    main = [torch.zeros(4, 48, 64) for _ in range(2)]
    now, later = (backward(q, recipe=recipe, main_grad=m if fuse else None)
                  for q, m in zip((None, queue), main))
    assert len(queue) == 1 and later.grad is None and not main[1].any()
    queue.flush()
    assert len(queue) == 0
    assert torch.equal(*main) and (main[0].any() if fuse else torch.equal(now.grad, later.grad))


def test_microbatches_accumulate_in_order():
    queue, main, expected = qt.WgradQueue(), torch.zeros(4, 48, 64), torch.zeros(4, 48, 64)
    for seed in range(5):
        case = Case([seed, 7, 0, 20 - seed], n=48, k=64, seed=seed)
        backward(queue, case=case, main_grad=main)
        backward(None, case=case, main_grad=expected)
    queue.flush(most=2)
    assert len(queue) == 3 and main.any()
    queue.flush()
    assert torch.equal(main, expected)


def test_layers_and_drop():
    queue = qt.WgradQueue()
    weights = [backward(queue, layer) for layer in (0, 1, 2)]
    queue.flush(1)
    assert len(queue) == 2 and weights[1].grad is not None and weights[0].grad is None
    with pytest.raises(RuntimeError, match="layer"):
        queue.flush(1)
    queue.drop(0)
    assert len(queue) == 1
    queue.flush()
    assert weights[0].grad is None and torch.equal(weights[2].grad, weights[1].grad)
    queue.flush()  # nothing to do
    queue.drop()


def test_tensors_live_until_the_launch():
    queue = qt.WgradQueue()

    def one():
        x = CASE.x.clone()
        w = CASE.w.clone().requires_grad_()
        qt.grouped_mm(x, w, CASE.lengths, main_grad=main, queue=queue).backward(CASE.dy)
        return weakref.ref(x)

    main = torch.zeros(4, 48, 64)
    references = [one() for _ in range(3)]
    gc.collect()
    assert all(r() is not None for r in references)
    queue.flush(most=1)
    assert [r() is not None for r in references] == [False, True, True]
    queue.drop()
    assert [r() is not None for r in references] == [False] * 3


@pytest.mark.parametrize("recipe", ["bf16", "fp8_block"])
def test_mlps(recipe):
    def make():
        torch.manual_seed(1)
        return (torch.randn(4, 64, 64).bfloat16().requires_grad_(),
                torch.randn(4, 64, 32).bfloat16().requires_grad_())

    queue, dy = qt.WgradQueue(), torch.randn(CASE.rows, 64).bfloat16()
    (now1, now2), (later1, later2) = make(), make()
    for w1, w2, q in ((now1, now2, None), (later1, later2, queue)):
        qt.grouped_mlp(CASE.x, w1, w2, CASE.lengths, recipe=recipe, queue=q).backward(dy)
    assert len(queue) == 2 and later1.grad is None
    queue.flush(most=1)
    assert len(queue) == 1 and later2.grad is None  # both or none
    queue.flush()
    assert torch.equal(now1.grad, later1.grad) and torch.equal(now2.grad, later2.grad)


def test_modules_share_a_queue():
    queue = qt.WgradQueue()
    layers = [qt.GroupedLinear(4, 64, 64, bias=False, params_dtype=torch.bfloat16, device=DEVICE,
                               delay_wgrad_compute=True, wgrad_queue=queue, layer=i)
              for i in range(2)]
    y = layers[1](layers[0](CASE.x, CASE.lengths), CASE.lengths)
    y.backward(torch.ones_like(y))
    assert len(queue) == 2
    layers[1].backward_dw()
    assert layers[1].weight0.grad is not None and layers[0].weight0.grad is None
    layers[0].backward_dw()
    assert layers[0].weight0.grad is not None and len(queue) == 0


@pytest.mark.parametrize("capacity", [0, 65537, 1.0, None])
def test_bad_capacity(capacity):
    with pytest.raises((TypeError, ValueError), match="capacity is .*: an integer from 1 to 65536"):
        qt.WgradQueue(capacity)


@pytest.mark.parametrize("function, more, sentence", [
    ("flush", {"layer": "a"}, "layer is str"), ("flush", {"layer": -1}, "layer is -1"),
    ("flush", {"most": -1}, "most is -1"), ("flush", {"most": 1.5}, "most is float"),
    ("drop", {"layer": "a"}, "layer is str")])
def test_bad_arguments(function, more, sentence):
    with pytest.raises((TypeError, ValueError), match=f"{sentence}: an integer from 0 to"):
        getattr(qt.WgradQueue(), function)(**more)


def test_a_full_queue():
    queue = qt.WgradQueue(1)
    backward(queue)
    with pytest.raises(RuntimeError, match="queue"):
        backward(queue)
    assert len(queue) == 1
    queue.flush()


def test_weights_that_are_no_leaves():
    w = CASE.w.clone().requires_grad_() * 1
    with pytest.raises(ValueError, match="queue: weights must be leaves of autograd"):
        qt.grouped_mm(CASE.x, w, CASE.lengths, queue=qt.WgradQueue())


@pytest.mark.parametrize("change", [
    shifted, torch._neg_view, lambda t: t.transpose(-1, -2).contiguous().transpose(-1, -2)])
@pytest.mark.parametrize("kind", ["mm", "mlp"])
def test_operands_that_are_copied(kind, change):
    """The copies of x live until the flush, and gradients reach the weights themselves."""
    w2, found = torch.randn(4, 64, 24).bfloat16(), []
    for queue in (None, qt.WgradQueue()):
        x, *weights = (change(t).detach().requires_grad_() for t in (CASE.x, CASE.w, w2))
        sizes = CASE.sizes()["sizes"]
        y = qt.grouped_mm(x, weights[0], sizes, queue=queue) if kind == "mm" else \
            qt.grouped_mlp(x, *weights, sizes, queue=queue)
        y.backward(torch.ones_like(y))
        del x, y
        noise = torch.full((4, *CASE.x.shape), 7.0).bfloat16()  # where a copy was
        if queue is not None:
            queue.flush()
        found.append([w.grad for w in weights[:1 if kind == "mm" else 2]])
        del noise
    assert all(map(torch.equal, *found))


def test_autocast_of_leaves():
    w, queue = CASE.w.float().requires_grad_(), qt.WgradQueue()
    with torch.autocast(DEVICE, torch.bfloat16):
        y = qt.grouped_mm(CASE.x, w, CASE.sizes()["sizes"], queue=queue)
    y.backward(CASE.dy)
    queue.flush()
    assert torch.equal(w.grad, backward(None).grad.float())


def test_many_queues():
    for _ in range(5000):
        qt.WgradQueue(1)
    queue, w = qt.WgradQueue(2), None
    w = backward(queue)
    queue.flush()
    assert_near(w.grad, CASE.wgrad(CASE.dy, CASE.x))


@pytest.mark.parametrize("kind", ["mm", "mlp"])
@pytest.mark.parametrize("name", ["x", "dy", "lengths"])
def test_a_change_in_place_before_the_flush(kind, name):
    """autograd raises the same of tensors that it saved."""
    queue, w1 = qt.WgradQueue(), CASE.w.clone().requires_grad_()
    x, sizes = CASE.x.clone(), CASE.sizes()["sizes"]
    if kind == "mm":
        y = qt.grouped_mm(x, w1, sizes, queue=queue, layer=3)
    else:
        w2 = torch.randn(4, 64, 24).bfloat16().requires_grad_()
        y = qt.grouped_mlp(x, w1, w2, sizes, queue=queue, layer=3)
    dy = torch.zeros_like(y)
    y.backward(dy)
    {"x": x, "dy": dy, "lengths": sizes}[name].add_(0)
    with pytest.raises(RuntimeError, match=f"flush: {name} of layer 3 was changed in place"):
        queue.flush()
    assert len(queue) > 0
    queue.drop()
    queue.flush()


def test_a_change_in_place_before_backward_dw():
    module = qt.GroupedLinear(4, 64, 48, bias=False, params_dtype=torch.bfloat16, device=DEVICE,
                              delay_wgrad_compute=True)
    x = CASE.x.clone()
    module(x, CASE.sizes()["sizes"]).backward(CASE.dy)
    x.add_(0)
    with pytest.raises(RuntimeError, match="backward_dw: x of layer 0 was changed in place"):
        module.backward_dw()


def test_only_work_that_is_launched_is_checked():
    queue, x = qt.WgradQueue(), CASE.x.clone()
    first = backward(queue, 0)
    w = CASE.w.clone().requires_grad_()
    qt.grouped_mm(x, w, CASE.sizes()["sizes"], queue=queue, layer=1).backward(CASE.dy)
    x.add_(0)
    queue.flush(most=1)
    assert first.grad is not None
    with pytest.raises(RuntimeError, match="x of layer 1"):
        queue.flush()
