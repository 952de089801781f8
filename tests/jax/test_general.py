# SPDX-License-Identifier: Apache-2.0
"""ragged_dot_general against jax.lax's: modes, axes, errors, batches; and wgrad."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from conftest import Case, assert_near, same

import quern.jax as qj
from quern.jax import _call

ROWS = [  # lhs, rhs, sizes, ((sums), (batches)), ragged, group
    ((11, 5), (3, 5, 7), [4, 2, 5], (((1,), (1,)), ((), ())), 0, 0),
    ((5, 11), (3, 7, 5), [4, 2, 3], (((0,), (2,)), ((), ())), 1, 0),
    ((2, 11, 5), (3, 2, 5, 7), [4, 2, 5], (((2,), (2,)), ((0,), (1,))), 1, 0),
    ((11, 2, 5), (2, 5, 3, 7), [4, 2, 5], (((2,), (1,)), ((1,), (0,))), 0, 2),
    ((11, 4, 5, 2), (3, 2, 5, 7, 2), [4, 2, 5], (((2, 3), (2, 1)), ((), ())), 0, 0),
    ((4, 11, 5), (3, 5, 7), [4, 2, 5], (((2,), (1,)), ((), ())), 1, 0),
    ((4, 11, 5), (3, 5, 7), [[4, 2, 5], [1, 0, 1], [0, 0, 0], [11, 0, 0]],
     (((2,), (1,)), ((), ())), 1, 0),
    ((2, 3, 11, 5), (3, 2, 5, 7), np.arange(18).reshape(2, 3, 3) // 5,
     (((3,), (2,)), ((0,), (1,))), 2, 0)]
SUMS = [
    ((11, 5), (11, 7), [4, 2, 5], (((0,), (0,)), ((), ())), 0, None),
    ((5, 11), (7, 11), [4, 2, 3], (((1,), (1,)), ((), ())), 1, None),
    ((2, 11, 5), (11, 2, 7), [4, 2, 5], (((1,), (0,)), ((0,), (1,))), 1, None),
    ((11, 3, 5, 4), (3, 7, 11), [4, 0, 5], (((0, 1), (2, 0)), ((), ())), 0, None)]


def numbers(dims, ragged, group):
    return lax.RaggedDotDimensionNumbers(dims, [ragged], [] if group is None else [group])


def arrays(lhs, rhs, sizes, dtype=jnp.bfloat16):
    keys = jax.random.split(jax.random.key(3), 2)
    return (jax.random.normal(keys[0], lhs, dtype), jax.random.normal(keys[1], rhs, dtype),
            jnp.array(sizes, jnp.int32))


def dense(lhs, rhs, sizes, dims, ragged, group):
    """In float64, by masks."""
    lhs, rhs, sizes = (np.asarray(a, np.float64) for a in (lhs, rhs, sizes))
    (lhs_sum, rhs_sum), (lhs_batch, rhs_batch) = dims
    free = [i for i in range(lhs.ndim) if i not in (*lhs_batch, *lhs_sum)]
    before = list(lhs_batch) + (free[:free.index(ragged)] if ragged in free else
                                list(lhs_sum)[:list(lhs_sum).index(ragged)])
    sizes = np.broadcast_to(sizes, [lhs.shape[i] for i in before] + [sizes.shape[-1]])
    results = []
    for g in range(sizes.shape[-1]):
        end = sizes[..., :g + 1].sum(-1)
        row = np.arange(lhs.shape[ragged])
        mask = (row >= (end - sizes[..., g])[..., None]) & (row < end[..., None])
        shape = [1] * lhs.ndim
        for i in (*before, ragged):
            shape[i] = lhs.shape[i]
        mask = np.transpose(mask, np.argsort([*before, ragged])).reshape(shape)
        w = rhs if group is None else np.take(rhs, g, group)
        fix = lambda axes: tuple(i - (group is not None and i > group) for i in axes)
        results.append(np.asarray(lax.dot_general(
            jnp.array(lhs * mask, jnp.float32), jnp.array(w, jnp.float32),
            ((lhs_sum, fix(rhs_sum)), (lhs_batch, fix(rhs_batch))),
            precision="highest")))
    return np.stack(results) if group is None else sum(results)


@pytest.mark.parametrize("lhs, rhs, sizes, dims, ragged, group", ROWS + SUMS)
def test_modes(lhs, rhs, sizes, dims, ragged, group):
    x, w, sizes = arrays(lhs, rhs, sizes)
    found = jax.jit(functools.partial(
        qj.ragged_dot_general, ragged_dot_dimension_numbers=numbers(dims, ragged, group)))(
            x, w, sizes)
    assert_near(found, dense(x, w, sizes, dims, ragged, group))


@pytest.mark.parametrize("recipe", ["fp8_block"])
@pytest.mark.parametrize("lhs, rhs, sizes, dims, ragged, group", [ROWS[2], SUMS[0]])
def test_recipes(lhs, rhs, sizes, dims, ragged, group, recipe):
    x, w, sizes = arrays(lhs, rhs, sizes, jnp.float32)
    found = qj.ragged_dot_general(x, w, sizes, numbers(dims, ragged, group), recipe=recipe)
    assert_near(found, dense(x, w, sizes, dims, ragged, group), 0.1)


@pytest.mark.parametrize("index", [0, 1, 2])
def test_gradients(index):
    lhs, rhs, sizes, dims, ragged, group = (ROWS[0], ROWS[2], SUMS[0])[index]
    x, w, sizes = arrays(lhs, rhs, sizes)
    dnums = numbers(dims, ragged, group)

    def both(x, w):
        y, back = jax.vjp(lambda x, w: qj.ragged_dot_general(x, w, sizes, dnums), x, w)
        return back(y)

    y, back = jax.vjp(lambda x, w: _masked(x, w, sizes, dims, group), x.astype(jnp.float32),
                      w.astype(jnp.float32))
    for found, expected in zip(jax.jit(both)(x, w), back(y)):
        assert_near(found, expected, 0.02)


def _masked(x, w, sizes, dims, group):
    """The same by dense products of jax's, for lhs [.., m, k] or lhs [k, m]."""
    owner = jnp.repeat(jnp.arange(sizes.shape[0]), sizes, total_repeat_length=11)
    hot = jax.nn.one_hot(owner, sizes.shape[0])
    if group is None:
        return jnp.einsum("km,kn,kg->gmn", x, w, hot)
    return jnp.einsum("bmk,gbkn,mg->bmn" if x.ndim == 3 else "mk,gkn,mg->mn", x, w, hot)


def test_batch_axis_is_jax_own():
    x, w, sizes = arrays((3, 11, 5), (3, 5, 7), [2, 1])
    dims = numbers((((2,), (1,)), ((0,), (0,))), 0, None)
    expected = lax.ragged_dot_general(x, w, sizes, dims)
    assert same(qj.ragged_dot_general(x, w, sizes, dims), expected)
    with pytest.raises(NotImplementedError, match="recipe, group_offset"):
        qj.ragged_dot_general(x, w, sizes, dims, recipe="fp8_block")


@pytest.mark.parametrize("dims, ragged, group, sentence", [
    ((((1,), (1,)), ((), ())), 0, None, "exactly one rhs group dimension"),
    ((((1,), (0,)), ((), ())), 0, 0, "distinct from contracting and batch"),
    ((((1,), (1,)), ((), ())), 3, 0, "lhs ragged dimension"),
    ((((0,), (1,)), ((), ())), 0, None, "shapes|contracting")])
def test_jax_own_errors(dims, ragged, group, sentence):
    x, w, sizes = arrays((11, 5), (3, 5, 7), [4, 2, 5])
    with pytest.raises((TypeError, AssertionError), match=sentence):
        qj.ragged_dot_general(x, w, sizes, numbers(dims, ragged, group))
    with pytest.raises(TypeError, match="ragged_dot_dimension_numbers is NoneType: jax.lax.Ragg"):
        qj.ragged_dot_general(x, w, sizes, None)


@pytest.mark.parametrize("batch", [3, 5])
@pytest.mark.parametrize("which", [(0, 0, 0), (0, None, 0), (None, 0, None), (0, 0, None)])
def test_vmap_is_one_launch(batch, which):
    x, w, sizes = arrays((batch, 16, 8), (batch, 2, 8, 24), [[3, 9]] * batch)
    given = [a if axis == 0 else a[0] for a, axis in zip((x, w, sizes), which)]
    before = _call.counts()["runs"]
    found = jax.block_until_ready(jax.jit(jax.vmap(qj.ragged_dot, which))(*given))
    assert _call.counts()["runs"] == before + 1
    for i in range(batch):
        one = [a[i] if axis == 0 else a for a, axis in zip(given, which)]
        assert same(found[i], qj.ragged_dot(*one))


@pytest.mark.parametrize("recipe", ["bf16", "fp8_block", "mxfp8", "fp8_tensor"])
def test_vmap_of_gradients(recipe):
    cases = [Case([10, 0, 33, 5], 48, 64, rows=55, seed=1), Case([1, 50, 3, 0], 48, 64, rows=55)]
    dot = functools.partial(qj.ragged_dot, recipe=recipe)

    def gradients(x, w, sizes, dy):
        return jax.vjp(lambda x, w: dot(x, w, sizes), x, w)[1](dy)

    one = jax.jit(gradients)
    stack = lambda name: jnp.stack([getattr(case, name) for case in cases])
    before = _call.counts()["runs"]
    found = jax.block_until_ready(jax.jit(jax.vmap(gradients, (0, None, 0, 0)))(
        stack("x"), cases[0].w, stack("sizes"), stack("dy")))
    runs = _call.counts()["runs"] - before
    for i, case in enumerate(cases):
        for a, b in zip(found, one(case.x, cases[0].w, case.sizes, case.dy)):
            assert same(a[i], b)
    alone = (_call.counts()["runs"] - before - runs) // 2
    if recipe == "bf16":
        assert runs == alone
    else:  # no quantized tensors of tokens are merged
        assert alone < runs <= 2 * alone


def test_vmap_of_vmap(case):
    x = jnp.stack([jnp.stack([case.x, case.x + 1])] * 2)
    found = jax.vmap(jax.vmap(lambda x: qj.ragged_dot(x, case.w, case.sizes)))(x)
    assert same(found[1, 0], qj.ragged_dot(case.x, case.w, case.sizes))
    assert same(found[0, 1], qj.ragged_dot(case.x + 1, case.w, case.sizes))


def test_vmap_of_more_groups_than_a_line_may_have():
    x, w, sizes = arrays((5, 4, 8), (256, 8, 8), [[1] * 4 + [0] * 252] * 5)
    before = _call.counts()["runs"]
    found = jax.block_until_ready(jax.jit(jax.vmap(qj.ragged_dot, (0, None, 0)))(x, w, sizes))
    assert _call.counts()["runs"] == before + 5
    assert same(found[4], qj.ragged_dot(x[4], w, sizes[4]))


@pytest.mark.parametrize("recipe", ["bf16", "fp8_block", "fp8_tensor", "nvfp4"])
def test_wgrad_accumulates_in_place(case, recipe):
    main_grad = jax.random.normal(jax.random.key(7), case.w.shape, jnp.float32)
    add = jax.jit(functools.partial(qj.wgrad, recipe=recipe, key=jax.random.key(0)),
                  donate_argnames="accumulate")
    alone = qj.wgrad(case.x, case.dy, case.sizes, recipe=recipe, key=jax.random.key(0),
                     preferred_element_type=jnp.float32)
    assert alone.dtype == jnp.float32
    assert_near(alone, case.dw(), {"bf16": 1e-5, "nvfp4": 0.35}.get(recipe, 0.09))
    expected = np.asarray(main_grad + alone)
    at = main_grad.unsafe_buffer_pointer()
    found = add(case.x, case.dy, case.sizes, accumulate=main_grad)
    assert_near(found, expected, 1e-6)
    assert found.unsafe_buffer_pointer() == at and main_grad.is_deleted()


def test_what_wgrad_refuses_with_a_sum(case):
    added = jnp.zeros(case.w.shape)

    def add(x, out=None):
        return qj.wgrad(x, case.dy, case.sizes, accumulate=added, preferred_element_type=out)

    assert add(case.x, jnp.float32).dtype == jnp.float32
    with pytest.raises(ValueError, match="preferred_element_type is bfloat16: .* float32, is"):
        add(case.x, jnp.bfloat16)
    with pytest.raises(NotImplementedError, match="wgrad with accumulate has no derivative"):
        jax.grad(lambda x: add(x).sum())(case.x)


def test_wgrad_of_some_groups(case):
    found = qj.wgrad(jnp.nan_to_num(case.x), jnp.nan_to_num(case.dy), case.sizes, group_offset=2,
                     accumulate=jnp.zeros((2, case.k, case.n)))
    assert_near(found, case.dw()[2:], 1e-5)
