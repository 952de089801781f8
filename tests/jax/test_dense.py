# SPDX-License-Identifier: Apache-2.0
"""grouped_gemm and grouped_dense, on TransformerEngine's shapes."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from conftest import Case, assert_near, assert_near_in_norm, same

import quern.jax as qj
from quern.jax import GroupedTensor as T

SIZES = [10, 0, 33, 5]


def normal(*shape, seed=0):
    return jax.random.normal(jax.random.key(seed), shape, jnp.bfloat16)


def dense(a, b, split_a, split_b, sum_a, sum_b):
    """In float64: [a's other axis, b's other axis]; split is the axis, None: matrices [g, ..]."""
    a, b = np.asarray(a, np.float64), np.asarray(b, np.float64)
    ends = np.cumsum([0, *SIZES])
    groups = []
    for g in range(4):
        left, right = (x[g] if split is None else np.take(x, range(*ends[g:g + 2]), split)
                       for x, split in ((a, split_a), (b, split_b)))
        groups.append(np.tensordot(left, right, ((sum_a,), (sum_b,))))
    if split_a == sum_a and split_b == sum_b or split_a is split_b is None:
        return np.stack(groups)
    axis = 1 if split_a is None else 0
    found = np.concatenate(groups, axis)
    pad = [(0, 0), (0, 0)]
    pad[axis] = (0, (a if split_a is not None else b).shape[
        split_a if split_a is not None else split_b] - ends[-1])
    return np.pad(found, pad)


M, K, N = 55, 24, 40
FORMS = [  # shapes, axes that are split, axes that are summed, of lhs and rhs
    ((M, K), (4, K, N), 0, None, 1, 0), ((M, K), (4, N, K), 0, None, 1, 1),
    ((K, M), (4, K, N), 1, None, 0, 0), ((K, M), (4, N, K), 1, None, 0, 1),
    ((4, M, K), (N, K), None, 0, 1, 1), ((4, K, M), (N, K), None, 0, 0, 1),
    ((4, M, K), (K, N), None, 1, 1, 0), ((4, K, M), (K, N), None, 1, 0, 0),
    ((M, K), (M, N), 0, 0, 0, 0), ((K, M), (N, M), 1, 1, 1, 1), ((M, K), (N, M), 0, 1, 0, 1),
    ((4, M, K), (4, K, N), None, None, 1, 0), ((4, K, M), (4, N, K), None, None, 0, 1)]


def tensor(data, split):
    sizes = jnp.array(SIZES)
    return T(data) if split is None else T(data, **{("first_dims", "last_dims")[split]: sizes})


@pytest.mark.parametrize("a, b, split_a, split_b, sum_a, sum_b", FORMS)
def test_first_dims_and_last_dims(a, b, split_a, split_b, sum_a, sum_b):
    b = tuple(55 if split_b == i and b[i] == N else length for i, length in enumerate(b))
    x, w = normal(*a), normal(*b, seed=1)
    dims = ((sum_a + (split_a is None),), (sum_b + (split_b is None),))

    @jax.jit
    def both(x, w):
        y, back = jax.vjp(lambda x, w: qj.grouped_gemm(
            tensor(x, split_a), tensor(w, split_b), dims), x, w)
        return y, *back(y)

    y, dx, dw = both(x, w)
    assert_near(y, dense(x, w, split_a, split_b, sum_a, sum_b))
    _, back = jax.vjp(lambda x, w: _masked(x, w, split_a, split_b, sum_a, sum_b),
                      x.astype(jnp.float32), w.astype(jnp.float32))
    for found, expected in zip((dx, dw), back(y.astype(jnp.float32))):
        assert found.dtype == jnp.bfloat16
        assert_near(found, expected, 0.01)


def _masked(x, w, split_a, split_b, sum_a, sum_b):
    """The same by jax, whose derivatives are the reference."""
    owner = jnp.repeat(jnp.arange(4), jnp.array(SIZES), total_repeat_length=48)
    hot = jnp.concatenate([jax.nn.one_hot(owner, 4), jnp.zeros((7, 4))])
    a, b = ("ki", "ik")[sum_a], ("kj", "jk")[sum_b]
    if split_a is split_b is None:
        return jnp.einsum(f"g{a},g{b}->gij", x, w)
    letter = b[split_b] if split_a is None else a[split_a]
    a, b = ("g" * (split is None) + axes for split, axes in ((split_a, a), (split_b, b)))
    out = "gij" if letter == "k" else "ij"
    return jnp.einsum(f"{a},{b},{letter}g->{out}", x, w, hot)


@pytest.mark.parametrize("g, m, n, k", [(5, 32, 128, 64), (8, 64, 32, 128), (4, 4, 128, 128)])
@pytest.mark.parametrize("recipe", [None, "fp8_block", "mxfp8", "fp8_tensor"])
def test_grouped_dense(g, m, n, k, recipe):
    rng = np.random.default_rng(g)
    lengths = [int(i) for i in rng.multinomial(m * 4, [1 / g] * g)]
    lengths[1] = 0
    case = Case(lengths, n, k)
    bias = normal(g, n, seed=4).astype(jnp.float32)
    near, tolerance = (assert_near, 2**-8) if recipe is None else (assert_near_in_norm, 0.06)

    @jax.jit
    def both(x, w, bias):
        y, back = jax.vjp(lambda *a: qj.grouped_dense(*a[:2], case.sizes, bias=a[2], recipe=recipe),
                          x, w, bias)
        return (y, *back(case.dy))

    y, dx, dw, dbias = both(case.x, case.w, bias)
    added = np.concatenate([np.repeat(np.asarray(bias), lengths, 0), np.zeros((7, n))])
    near(y, case.y() + added, tolerance)
    near(dx, case.dx(), tolerance)
    near(dw, case.dw(), tolerance)
    assert_near(dbias, np.stack([rows.sum(0) for rows in case.parts(case.dy)]), 1e-4)


def kernel_of_out_features(case, recipe, **more):
    """y and gradients with a kernel [g, n, k], as those of [g, k, n]; and of whichever the program
    itself transposes."""
    turned = jnp.swapaxes(case.w, 1, 2)
    f = lambda dims, **more: jax.jit(lambda x, w: (lambda y, back: (y, *back(case.dy)))(*jax.vjp(
        lambda x, w: qj.grouped_dense(x, w, case.sizes, ((1,), (dims,)), recipe=recipe, **more),
        x, w)))
    text = f(2, **more).lower(case.x, turned).as_text()
    return f(1)(case.x, case.w), f(2, **more)(case.x, turned), text


@pytest.mark.parametrize("recipe", [None, "fp8_block", "mxfp8", "fp8_tensor"])
@pytest.mark.parametrize("is_quantized", [False, True])
def test_other_order_of_a_kernel(case, recipe, is_quantized):
    """Nothing is transposed with any recipe; the weights' gradient in the same order."""
    if is_quantized and recipe is None:
        pytest.skip("needs a recipe with scales")
    more = {}
    if is_quantized:
        more["quantized"] = qj.grouped_quantize(jnp.swapaxes(case.w, 1, 2), recipe, of="w")
    (y, dx, dw), (y2, dx2, dw2), text = kernel_of_out_features(case, recipe, **more)
    assert same(y, y2) and same(dx, dx2) and same(dw, jnp.swapaxes(dw2, 1, 2))
    assert "stablehlo.transpose" not in text and text.count("custom_call @quern") >= 3


# Transposes of XLA in a step of each recipe: docs/jax.md lists them.
@pytest.mark.parametrize("recipe, layout, dense, mlp", [
    ("bf16", "kn", 0, 6), ("fp8_block", "kn", 0, 2), ("fp8_tensor", "kn", 1, 2),
    ("bf16", "nk", 0, 0), ("fp8_block", "nk", 0, 0), ("fp8_tensor", "nk", 0, 0)])
def test_transposes(case, recipe, layout, dense, mlp):
    turn = (lambda a: a) if layout == "kn" else lambda a: jnp.swapaxes(a, 1, 2)
    w1, w2 = turn(normal(4, 64, 96)), turn(normal(4, 48, 64, seed=1))

    def count(function, *weights):
        def step(x, *weights):
            y, back = jax.vjp(function, x, *weights)
            return y, *back(y)
        return jax.jit(step).lower(case.x, *weights).as_text().count("stablehlo.transpose")

    dims = ((1,), (1 if layout == "kn" else 2,))
    assert count(lambda x, w: qj.grouped_dense(x, w, case.sizes, dims, recipe=recipe),
                 turn(case.w)) == dense
    assert count(lambda x, *w: qj.grouped_mlp(x, *w, case.sizes, recipe=recipe, layout=layout),
                 w1, w2) == mlp


def test_more_axes(case):
    x = case.x.reshape(11, 5, case.k)
    y = qj.grouped_dense(x, jnp.swapaxes(case.w, 1, 2), case.sizes, ((2,), (2,)))
    assert y.shape == (11, 5, case.n)
    assert same(y.reshape(55, -1), qj.ragged_dot(case.x, case.w, case.sizes))
    a, b = case.x.reshape(55, 4, 16), case.w.reshape(4, 4, 16, 6, 8)
    z = qj.grouped_gemm(T(a, first_dims=case.sizes), b, ((1, 2), (1, 2)))
    assert z.shape == (55, 6, 8) and same(z.reshape(55, -1), y.reshape(55, -1))


@pytest.mark.parametrize("split", [0, 1])
def test_vmap_is_one_launch(split):
    from quern.jax import _call
    x, w = normal(3, *((55, K) if split == 0 else (K, 55))), normal(4, K, N, seed=1)

    def one(x):
        return qj.grouped_gemm(tensor(x, split), w, ((1 - split,), (1,)))

    before = _call.counts()["runs"]
    found = jax.block_until_ready(jax.jit(jax.vmap(one))(x))
    assert _call.counts()["runs"] == before + 1
    for i in range(3):
        assert same(found[i], one(x[i]))


@pytest.mark.parametrize("recipe", ["fp8_block", "mxfp8", "fp8_tensor", "fp8_row"])
def test_quantized_operands(case, recipe):
    x = qj.grouped_quantize(case.x, recipe, case.sizes)
    w = qj.grouped_quantize(case.w, recipe, of="w")
    dy = qj.grouped_quantize(case.dy, recipe, case.sizes, of="dy")
    y, back = jax.vjp(lambda x, w: qj.ragged_dot(x, w, case.sizes, recipe=recipe), case.x, case.w)
    dx, dw = back(case.dy)
    rows = functools.partial(T, first_dims=case.sizes)
    assert same(qj.grouped_gemm(rows(x), w, ((1,), (1,))), y)
    assert same(qj.grouped_gemm(rows(dy), w, ((1,), (2,))), dx)
    assert same(qj.grouped_gemm(rows(x), rows(dy), ((0,), (0,))), dw)
    other = qj.grouped_quantize(case.w, "fp8_block_any", of="w")
    for lhs, rhs, sentence in ((rows(x), other, "rhs is quantized by recipe fp8_block_any"),
                               (rows(x), case.w, "rhs is .*: a Quantized is expected"),
                               (rows(dy), w, "contracting_dims are"), (T(x), w, "lhs.first_dims")):
        with pytest.raises(ValueError, match=sentence):
            qj.grouped_gemm(lhs, rhs, ((1,), (1,)))
    few = qj.grouped_quantize(case.dy[:10], recipe, case.sizes // 8, of="dy")
    for lhs, rhs, dim, sentence in (
            (T(x, case.sizes[:2]), w, 1, r"lhs.first_dims has the shape \[2\]: \[4\] is"),
            (T(x, case.sizes[0]), w, 1, "lhs.first_dims has 0 axes: 1 is expected"),
            (rows(x), rows(few), 0, "rhs has 10 rows and lhs 55"),
            (rows(x), T(dy, case.sizes[:3]), 0, r"rhs.first_dims has the shape \[3\]: \[4\] is")):
        with pytest.raises(ValueError, match=sentence):
            qj.grouped_gemm(lhs, rhs, ((dim,), (dim,)))


def rows(m=55, k=K):
    return T(jnp.zeros((m, k), jnp.bfloat16), first_dims=jnp.zeros(4, jnp.int32))


@pytest.mark.parametrize("lhs, rhs, dims, more, error, sentence", [
    (rows(), (4, K, N), ((1,), (2,)), {}, ValueError, "lhs sums 24 values and rhs 40"),
    (rows(), (4, N, K), ((1,), (0,)), {}, ValueError, "contracting_dims of rhs"),
    (rows(), (4, N, K), 3, {}, TypeError, "contracting_dims is 3: axes of both operands"),
    (rows(), (4, N, K), None, {}, TypeError, "contracting_dims is None: axes of both operands"),
    (rows(), (4, N, K), ((0, 1), (1, 2)), {}, ValueError, "contracting_dims of lhs"),
    (rows(), rows().data, ((1,), (1,)), {}, ValueError, "contracting_dims of rhs"),
    (rows(), rows(), ((1,), (1,)), {}, ValueError, "rhs: its axis that is split"),
    (T(rows().data, rows().first_dims, rows().first_dims), (4, N, K), ((1,), (2,)), {}, ValueError,
     "lhs has first_dims and last_dims"),
    (rows(), (3, N, K), ((1,), (2,)), {}, ValueError, r"first_dims or last_dims has the shape"),
    (rows(), (4, N, K), ((1,), (2,)), dict(recipe="fp16"), TypeError, "lhs is bfloat16"),
    (rows(), (4, N, K), ((1,), (2,)), dict(recipe="fp8"), Exception, "'fp8' is unknown"),
    (rows(), (4, N, K), ((1,), (2,)), dict(bias=jnp.zeros((4, 3))), ValueError,
     "bias has the shape"),
    (rows(), (4, N, K), ((1,), (2,)), dict(precision="highest"), NotImplementedError, "precision"),
    ((4, 8, K), (4, N, K), ((2,), (2,)), dict(recipe="mxfp8"), ValueError, "recipe mxfp8: lhs"),
    (T(rows().data, jnp.int32(3)), (4, N, K), ((1,), (2,)), {}, ValueError,
     "lhs.first_dims has 0 axes: 1 is expected"),
    (rows(), T(rows().data, jnp.zeros(3, jnp.int32)), ((0,), (0,)), dict(recipe="mxfp8"),
     ValueError, "rhs has 3 sizes and lhs 4"),
    ((4, 8, K), (3, N, K), ((2,), (2,)), {}, ValueError, "rhs has 3 matrices and lhs 4"),
])
def test_bad_arguments(lhs, rhs, dims, more, error, sentence):
    lhs, rhs = (jnp.zeros(a, jnp.bfloat16) if isinstance(a, tuple) else a for a in (lhs, rhs))
    with pytest.raises(error, match=sentence):
        jax.eval_shape(lambda a, b: qj.grouped_gemm(a, b, dims, **more), lhs, rhs)
