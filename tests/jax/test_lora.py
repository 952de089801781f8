# SPDX-License-Identifier: Apache-2.0
"""ragged_dot and grouped_dense with low-rank adapters: y and the gradients of lhs, a, b and rhs against float64,
through packed weights, too; vmap, jit, and arguments that are refused."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from conftest import Case, same

import quern.jax as qj

DTYPES = {"bf16": jnp.bfloat16, "fp16": jnp.float16, "w4a16_mxfp4": jnp.bfloat16,
          "w4a16_int4": jnp.bfloat16}


def adapters(case, rank, layout, dtype=jnp.bfloat16):
    g, keys = len(case.lengths), jax.random.split(jax.random.key(5))
    a = (jax.random.normal(keys[0], (g, case.k, rank)) / case.k**.5).astype(dtype)
    b = (jax.random.normal(keys[1], (g, rank, case.n)) / rank**.5).astype(dtype)
    return (a, b) if layout == "kn" else (a.swapaxes(1, 2), b.swapaxes(1, 2))


def weights_of(case, recipe, layout):
    """rhs, and its values [g, k, n] in float64."""
    w = case.w if layout == "kn" else case.w.swapaxes(1, 2)
    if recipe.startswith("w"):
        copies = "columnwise" if layout == "kn" else "rowwise"
        w = qj.grouped_quantize(w, recipe, of="w", copies=copies)
        values = np.asarray(qj.dequantize(w, copies=copies, dtype=jnp.float32), np.float64)
    else:
        values = np.asarray(w, np.float64)
    return w, values if layout == "kn" else values.swapaxes(1, 2)


def near(found, expected, tolerance=2**-7):
    found, expected = np.asarray(found, np.float64), np.asarray(expected)
    assert found.shape == expected.shape and np.isfinite(found).all()
    assert abs(found - expected).max(initial=0) <= tolerance * max(abs(expected).max(initial=0),
                                                                   1e-6)


@pytest.mark.parametrize("layout", ["kn", "nk"])
@pytest.mark.parametrize("recipe", DTYPES)
@pytest.mark.parametrize("rank", [1, 8, 65])
def test_gradients(recipe, layout, rank):
    case = Case([5, 0, 70, 1], n=128, k=256, dtype=DTYPES[recipe])
    a, b = adapters(case, rank, layout, case.x.dtype)
    w, values = weights_of(case, recipe, layout)

    @jax.jit
    def dot(x, a, b, *w_):
        return qj.ragged_dot(x, *(w_ or (w,)), case.sizes, recipe=recipe, layout=layout,
                             lora=(a, b), lora_scaling=0.5)

    given = (case.x, a, b) if recipe.startswith("w") else (case.x, a, b, w)
    y, back = jax.vjp(dot, *given)
    dx, da, db, *dw = back(case.dy)
    a64, b64 = (np.asarray(t, np.float64) if layout == "kn" else
                np.asarray(t, np.float64).swapaxes(1, 2) for t in (a, b))
    xs, dys = case.parts(case.x), case.parts(case.dy)
    merged = [e + 0.5 * p @ q for e, p, q in zip(values, a64, b64)]
    near(y, case.whole([x @ w for x, w in zip(xs, merged)]))
    near(dx, case.whole([d @ w.T for d, w in zip(dys, merged)]))

    def turned(parts):
        made = np.stack(parts)
        return made if layout == "kn" else made.swapaxes(1, 2)

    near(da, turned([0.5 * x.T @ (d @ q.T) for x, d, q in zip(xs, dys, b64)]), 2**-6)
    near(db, turned([0.5 * (x @ p).T @ d for x, d, p in zip(xs, dys, a64)]), 2**-6)
    if dw:
        near(dw[0], turned([x.T @ d for x, d in zip(xs, dys)]))


@pytest.mark.parametrize("scaling", [0.3, 1e-8])
@pytest.mark.parametrize("recipe", ["bf16", "fp16"])
def test_gradient_of_adapters_without_that_of_lhs(recipe, scaling):
    """The bits of both are equal. With the least factor dy @ b exceeds the range of FP16."""
    case = Case([5, 0, 70, 1], n=128, k=256, dtype=DTYPES[recipe])
    pair = adapters(case, 8, "kn", case.x.dtype)

    def dot(x, pair):
        return qj.ragged_dot(x, case.w, case.sizes, recipe=recipe, lora=pair, lora_scaling=scaling)

    dy = case.dy * (2**12 if scaling == 1e-8 else 1)
    _, *expected = jax.jit(lambda: jax.vjp(dot, case.x, pair)[1](dy))()
    found = jax.jit(lambda: jax.vjp(lambda pair: dot(case.x, pair), pair)[1](dy))()
    for one, other in zip(jax.tree.leaves(found), jax.tree.leaves(expected)):
        assert jnp.isfinite(one).all() and same(one, other)
    assert jax.tree.leaves(found)[0].any()


def test_dense_with_bias():
    """As the product of merged weights, a's gradient of x in any shape, the bias' in fp32."""
    case = Case([3, 0, 13], n=32, k=64, rows=16)
    a, b = adapters(case, 8, "nk")
    kernel, bias = case.w.swapaxes(1, 2), jax.random.normal(jax.random.key(1), (3, 32))

    def dense(x, kernel, bias, a, b):
        return qj.grouped_dense(x, kernel, case.sizes, ((2,), (2,)), bias, lora=(a, b))

    y, back = jax.vjp(dense, case.x.reshape(4, 4, 64), kernel, bias, a, b)
    dx, dw, dbias, da, db = back(case.dy.reshape(4, 4, 32))
    xs, dys = case.parts(case.x), case.parts(case.dy)
    a64, b64, w64 = (np.asarray(t, np.float64) for t in (a, b, kernel))
    merged = [w + q @ p for w, p, q in zip(w64, a64, b64)]
    near(y.reshape(16, 32), np.concatenate([x @ w.T + c for x, w, c in
                                            zip(xs, merged, np.asarray(bias, np.float64))]))
    near(dx.reshape(16, 64), np.concatenate([d @ w for d, w in zip(dys, merged)]))
    near(dbias, np.stack([d.sum(0) for d in dys]), 1e-5)
    near(dw, np.stack([d.T @ x for d, x in zip(dys, xs)]))
    near(da, np.stack([(d @ q).T @ x for d, q, x in zip(dys, b64, xs)]), 2**-6)
    near(db, np.stack([d.T @ (x @ p.T) for d, x, p in zip(dys, xs, a64)]), 2**-6)


def test_vmap():
    case = Case([9, 0, 20], n=32, k=64, rows=29)
    a, b = adapters(case, 8, "kn")
    many = [jnp.stack([t, t * 2]) for t in (case.x, case.w, a, b)]

    def dot(x, w, a, b):
        return qj.ragged_dot(x, w, case.sizes, lora=(a, b))

    found = jax.vmap(dot)(*many)
    for i in range(2):
        np.testing.assert_array_equal(found[i], dot(*[t[i] for t in many]))


@pytest.mark.parametrize("layout", ["kn", "nk"])
def test_values_of_packed_weights(layout):
    """They are quantized here or by the caller, and the gradient of rhs has its type."""
    case = Case([9, 0, 20], n=32, k=64, rows=29)
    copies, rhs = "columnwise", case.w.astype(jnp.float32)
    if layout == "nk":
        copies, rhs = "rowwise", jnp.swapaxes(rhs, 1, 2)
    packed = qj.grouped_quantize(rhs, "w4a16_mxfp4", of="w", copies=copies)
    dot = functools.partial(qj.ragged_dot, case.x, group_sizes=case.sizes, recipe="w4a16_mxfp4",
                            layout=layout, lora=adapters(case, 8, layout), lora_scaling=0.5)
    y, back = jax.vjp(lambda rhs: dot(rhs=rhs), rhs)
    z, other = jax.vjp(lambda rhs: dot(rhs=rhs, quantized=packed), rhs)
    assert same(y, z) and same(y, dot(rhs=packed))
    dw, again = back(case.dy)[0], other(case.dy)[0]
    assert dw.dtype == jnp.float32 and same(dw, again)
    near(dw if layout == "kn" else dw.swapaxes(1, 2), case.dw(), 1e-5)


@pytest.mark.parametrize("number", [np.float64, np.float32, np.int64])
def test_scaling_of_numpy(number):
    case = Case([9, 20], n=32, k=64, rows=29)
    found, expected = (qj.ragged_dot(case.x, case.w, case.sizes, lora=adapters(case, 8, "kn"),
                                     lora_scaling=scale) for scale in (number(2), 2.0))
    assert same(found, expected)


def test_no_second_derivative():
    case = Case([9, 20], n=32, k=64, rows=29)
    a, b = adapters(case, 8, "kn")

    def loss(a):
        return qj.ragged_dot(case.x, case.w, case.sizes, lora=(a, b)).astype(jnp.float32).sum()

    with pytest.raises(NotImplementedError, match="lora: second derivatives"):
        jax.grad(lambda a: jax.grad(loss)(a).astype(jnp.float32).sum())(a)


@pytest.mark.parametrize("change, error, text", [
    ({"lora": 3}, TypeError, "lora: a pair of arrays"),
    ({"lora_scaling": "x"}, TypeError, "lora_scaling is str"),
    ({"recipe": "fp8_block"}, ValueError, "lora: recipe fp8_block quantizes lhs"),
    ({"layout": "nk"}, ValueError, "rhs has the shape|lhs has the shape"),
    ({"rank": 257}, ValueError, "the rank is 257: 1 to 256"),
    ({"features": 63}, ValueError, r"lora\[0\] has the shape \[2, 63, 4\]"),
    ({"dtype": jnp.float16}, TypeError, r"lora\[0\]"),
])
def test_refused(change, error, text):
    case, change = Case([3, 4], n=32, k=64), dict(change)
    rank, dtype = change.pop("rank", 4), change.pop("dtype", jnp.bfloat16)
    a = jnp.zeros((2, change.pop("features", 64), rank), dtype)
    change.setdefault("lora", (a, jnp.zeros((2, rank, 32), dtype)))
    with pytest.raises(error, match=text):
        qj.ragged_dot(case.x, case.w, case.sizes, **change)
