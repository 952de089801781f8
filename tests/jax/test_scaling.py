# SPDX-License-Identifier: Apache-2.0
"""Delayed scaling: the state goes in, the next one comes out as its gradient."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.sharding import Mesh, PartitionSpec as P

from conftest import Case, assert_near, assert_near_in_norm, same
from test_mlp import LENGTHS, arrays, dense

import quern.jax as qj

RECIPE = "fp8_tensor_delayed"
LARGEST = [448, 448, 57344]  # of e4m3, e4m3 and e5m2


def peak(a):
    return float(np.abs(np.nan_to_num(np.asarray(a, np.float64))).max())


def step(case, dot=qj.ragged_dot, **more):
    """One step of training: y, dx, dw and the next state."""
    @jax.jit
    def run(x, w, dy, state):
        state = qj.rescale(state, RECIPE)
        y, back = jax.vjp(lambda x, w, state: dot(x, w, case.sizes, recipe=RECIPE, state=state,
                                                  **more), x, w, state)
        return y, *back(dy)
    return run


def test_steps():
    """As torch's modules: scales follow from the largest magnitudes of the steps before."""
    case, run, peaks = Case([10, 0, 33, 5], n=48, k=64), step(Case([10, 0, 33, 5], n=48, k=64)), []
    state = qj.scaling_state(RECIPE, 3)
    assert state.scale.shape == (3, 2) and state.history.shape[0] == 3
    for factor in (4, 1, 2):
        x, dy = case.x * jnp.bfloat16(factor), case.dy * jnp.bfloat16(factor)
        expected = [1] * 3 if not peaks else [
            most / max(p[i] for p in peaks) for i, most in enumerate(LARGEST)]
        y, dx, dw, state = run(x, case.w, dy, state)
        assert_near(state.scale[:, 0], expected, 1e-6)
        assert_near(state.scale[:, 0] * state.scale[:, 1], [1] * 3, 1e-6)
        peaks.append([peak(x), peak(case.w), peak(dy)])
        assert_near(state.history[:, 0], peaks[-1], 1e-6)
        if len(peaks) > 1:
            assert_near(state.history[:, -1], peaks[-2], 1e-6)
    assert_near(y, 2 * case.y(), 0.06)
    assert_near(dx, 2 * case.dx(), 0.12)
    assert_near(dw, 4 * case.dw(), 0.12)


def test_without_gradients_nothing_is_collected(case):
    state = qj.scaling_state(RECIPE, 3)
    before = jax.tree.map(np.asarray, state)
    f = functools.partial(qj.ragged_dot, recipe=RECIPE)
    y = f(case.x, case.w, case.sizes, state=state)
    back = jax.vjp(lambda x: f(x, case.w, case.sizes, state=state), case.x)[1]
    z = jax.vjp(lambda s: f(case.x, case.w, case.sizes, state=s), state)[0]
    assert same(y, z) and back(case.dy)[0].shape == case.x.shape
    assert all(map(same, before, state))


def test_bias_and_quantized_weights(case):
    state = qj.scaling_state(RECIPE, 3)
    bias = jax.random.normal(jax.random.key(3), (4, case.n))
    one = qj.ScalingState(state.scale[1], state.history[1])
    q, one = qj.grouped_quantize(case.w, RECIPE, of="w", state=one)
    f = lambda x, w, b, s, **more: qj.grouped_dense(x, w, case.sizes, bias=b, recipe=RECIPE,
                                                    state=s, **more)
    y, back = jax.vjp(f, case.x, case.w, bias, state)
    z, other = jax.vjp(functools.partial(f, quantized=q), case.x, case.w, bias, state)
    dy = case.dy
    (dx, dw, db, s), (dx2, dw2, db2, s2) = back(dy), other(dy)
    assert same(y, z) and same(dx, dx2) and same(dw, dw2) and same(db, db2)
    assert_near(one.history[0], s.history[1, 0], 1e-7)
    assert float(s2.history[1, 0]) == 0 and same(s.history[::2], s2.history[::2])
    assert_near(db, np.stack([p.sum(0) for p in case.parts(case.dy)]), 0.02)


def test_quantize(case):
    state = qj.scaling_state(RECIPE)._replace(scale=jnp.array([8, 1 / 8], jnp.float32))
    q, dbias, after = qj.grouped_quantize(case.x, RECIPE, case.sizes, of="dy", dbias=True,
                                          state=state)
    assert_near(after.history[0], peak(case.x), 1e-7)
    assert same(after.scale, state.scale)
    values = qj.dequantize(q, case.sizes)[:case.tokens]
    assert_near(values, np.asarray(case.x, np.float64)[:case.tokens], 0.1)
    assert same(state.history, 0 * state.history)
    larger = qj.grouped_quantize(2 * case.x, RECIPE, case.sizes, of="dy", state=after)[1]
    smaller = qj.grouped_quantize(case.x, RECIPE, case.sizes, of="dy", state=larger)[1]
    assert_near(smaller.history[0], 2 * peak(case.x), 1e-7)
    moved = qj.rescale(smaller, RECIPE, of="dy")
    assert float(moved.history[0]) == 0 and float(moved.history[-1]) == float(smaller.history[0])
    assert_near(moved.scale[0], 57344 / (2 * peak(case.x)), 1e-6)


@pytest.mark.parametrize("recompute", [False, True])
def test_mlp(recompute):
    given, dy = arrays()
    for name in ("b1", "b2"):
        del given[name]
    state, sizes = qj.scaling_state(RECIPE, 6), jnp.array(LENGTHS)

    @jax.jit
    def run(given, state):
        state = qj.rescale(state, RECIPE)
        y, back = jax.vjp(lambda given, state: qj.grouped_mlp(
            group_sizes=sizes, recipe=RECIPE, recompute=recompute, state=state, **given), given,
            state)
        return y, *back(dy)

    for _ in range(3):
        z, gradients, state = run(given, state)
    y, back = jax.vjp(lambda given: dense("swiglu", "kn", **given), given)
    expected = back(jnp.nan_to_num(dy).astype(jnp.float32))[0]
    assert_near_in_norm(z, y, 0.1)
    for name, gradient in gradients.items():
        assert_near_in_norm(gradient, expected[name], 0.12)
    assert (state.scale[:, 0] > 1).all()
    for i, name in ((0, "x"), (2, "w1"), (3, "w2")):
        assert_near(state.history[i, 0], peak(given[name]), 1e-6)
    assert_near(state.history[4, 0], peak(dy), 1e-6)
    assert (state.history[1::4, 0] > 0).all()


def test_moe():
    from test_moe import draw, operands
    given, indices, state = operands(), draw("dropped"), qj.scaling_state(RECIPE, 6)
    y, back = jax.vjp(lambda x, s: qj.moe(**given | dict(x=x), indices=indices, recipe=RECIPE,
                                          state=s), given["x"], state)
    state = qj.rescale(back(jnp.ones_like(y))[1], RECIPE)
    assert (state.scale[:, 0] != 1).all()
    z = qj.moe(**given, indices=indices, recipe=RECIPE, state=state)
    assert_near_in_norm(z, qj.moe(**given, indices=indices), 0.1)


def layers(case, block, x, w1, w2, states):
    def loss(x, w1, w2, states):
        def body(h, layer):
            return block(h, *layer), None
        return (lax.scan(body, x, (w1, w2, *states))[0].astype(jnp.float32)**2).sum()
    return jax.jit(jax.grad(loss, (0, 1, 2, 3)))(x, w1, w2, states)


def test_scan_and_remat(case):
    """Each layer of a scan has its own state."""
    dot = functools.partial(qj.ragged_dot, recipe=RECIPE)
    w1 = jax.random.normal(jax.random.key(1), (3, 4, case.k, case.n), jnp.bfloat16) / 8
    w2 = jax.random.normal(jax.random.key(2), (3, 4, case.n, case.k), jnp.bfloat16) / 8
    x, one = jnp.nan_to_num(case.x), qj.scaling_state(RECIPE, 3)
    states = [jax.tree.map(lambda a: jnp.stack([a] * 3), one) for _ in range(2)]

    def block(h, w1, w2, s1, s2):
        return dot(jax.nn.silu(dot(h, w1, case.sizes, state=s1)), w2, case.sizes, state=s2)

    expected = layers(case, block, x, w1, w2, states)
    found = layers(case, jax.checkpoint(block), x, w1, w2, states)
    assert all(map(same, jax.tree.leaves(expected), jax.tree.leaves(found)))
    h = x
    for i in range(3):
        assert_near(expected[3][0].history[i, 0, 0], peak(h), 1e-6)
        assert_near(expected[3][0].history[i, 1, 0], peak(w1[i]), 1e-6)
        h = block(h, w1[i], w2[i], one, one)
    moved = jax.vmap(lambda s: qj.rescale(s, RECIPE))(expected[3][0])
    assert_near(moved.scale[:, 1, 0], [448 / peak(w) for w in w1], 1e-6)


def test_vmap(case):
    state = qj.scaling_state(RECIPE, 3)
    dot = lambda x, state: qj.ragged_dot(x, case.w, case.sizes, recipe=RECIPE, state=state)
    x = jnp.stack([jnp.nan_to_num(case.x), 2 * jnp.nan_to_num(case.x)])
    grad = jax.grad(lambda x, s: dot(x, s).astype(jnp.float32).sum(), 1)
    two = jax.vmap(grad)(x, jax.tree.map(lambda a: jnp.stack([a] * 2), state))
    for i in range(2):
        assert same(two.history[i], grad(x[i], state).history)
    with pytest.raises(NotImplementedError, match="vmap: delayed scaling needs a state for each"):
        jax.vmap(dot, (0, None))(x, state)


@pytest.mark.skipif(len(jax.devices()) < 4, reason="needs 4 devices")
@pytest.mark.parametrize("check_vma", [True, False])
def test_shard_map(case, check_vma):
    mesh, state = Mesh(np.array(jax.devices()[:4]), ("d",)), qj.scaling_state(RECIPE, 3)
    x = jnp.concatenate([jnp.nan_to_num(case.x) * f for f in (1, 2, 4, 8)])
    sizes, states = jnp.concatenate([case.sizes] * 4), jax.tree.map(
        lambda a: jnp.stack([a] * 4), state)

    def dot(x, w, sizes, state):
        return qj.ragged_dot(x, w, sizes, recipe=RECIPE, state=state)

    def part(x, w, sizes, states):
        return dot(x, w, sizes, jax.tree.map(lambda a: a[0], states))

    f = functools.partial(jax.shard_map, mesh=mesh, out_specs=P("d"), check_vma=check_vma)
    y, back = jax.vjp(f(part, in_specs=(P("d"), P(), P("d"), P("d"))), x, case.w, sizes, states)
    found = back(jnp.ones_like(y))[3]
    assert_near(found.history[:, 0, 0], [peak(case.x) * i for i in (1, 2, 4, 8)], 1e-6)
    assert_near(found.history[:, 1, 0], [peak(case.w)] * 4, 1e-6)
    if check_vma:
        with pytest.raises(ValueError, match="state does not vary over d"):
            f(dot, in_specs=(P("d"), P(), P("d"), P()))(x, case.w, sizes, state)


def ragged_dot(case, **more):
    return qj.ragged_dot(case.x, case.w, case.sizes, **dict(dict(recipe=RECIPE), **more))


@pytest.mark.parametrize("run, error, sentence", [
    (lambda c: ragged_dot(c), ValueError,
     r"state: recipe .*scaling_state\('fp8_tensor_delayed', 3\)"),
    (lambda c: ragged_dot(c, state=qj.scaling_state(RECIPE, 6)), ValueError,
     r"state.scale has the shape \[6, 2\]: \[3, 2\] is expected"),
    (lambda c: ragged_dot(c, state=(jnp.ones((3, 2)), jnp.zeros((3, 8)))), ValueError,
     r"state.history has the shape \[3, 8\]"),
    (lambda c: ragged_dot(c, state=jax.tree.map(
        lambda a: a.astype(jnp.bfloat16), qj.scaling_state(RECIPE, 3))), TypeError,
     "state.scale is bfloat16: float32"),
    (lambda c: ragged_dot(c, state=qj.scaling_state(RECIPE, 3), recipe="fp8_block"), ValueError,
     "state: recipe fp8_block has no delayed scaling"),
    (lambda c: ragged_dot(c, state=3), TypeError, "state: a ScalingState, .* is expected"),
    (lambda c: qj.rescale(3, RECIPE), TypeError, "state: a ScalingState, .* is expected"),
    (lambda c: qj.wgrad(c.x, c.dy, c.sizes, recipe=RECIPE), NotImplementedError,
     "delayed scaling, whose state ragged_dot"),
    (lambda c: qj.scaling_state("bf16"), ValueError, "recipe bf16 has no delayed scaling"),
    (lambda c: qj.scaling_state(RECIPE, 4), ValueError, "tensors is 4: None, 3 or 6"),
    (lambda c: qj.rescale(qj.scaling_state(RECIPE), RECIPE), ValueError, "of is None: 'x', "),
    (lambda c: qj.rescale(qj.scaling_state(RECIPE, 3), RECIPE, of="x"), ValueError,
     "state is of 3 tensors, and of is 'x'"),
    (lambda c: qj.rescale(qj.scaling_state(RECIPE, 3), "bf16"), ValueError, "recipe bf16"),
    (lambda c: qj.grouped_quantize(c.x, RECIPE, c.sizes), ValueError, "state: recipe"),
])
def test_bad_arguments(case, run, error, sentence):
    with pytest.raises(error, match=sentence):
        run(case)
