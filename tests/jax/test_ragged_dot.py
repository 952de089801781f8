# SPDX-License-Identifier: Apache-2.0
"""ragged_dot against jax.lax's, on the shapes that jax, Tokamax and MaxText test."""

import contextlib
import functools
import itertools
import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from conftest import DEVICE, Case, assert_near, assert_near_in_norm, error, same

import quern
import quern.jax as qj

RECIPES = {"fp8_block": 0.06, "fp8_row": 0.06, "fp8_tensor": 0.06, "mxfp8": 0.06, "nvfp4": 0.2,
           "mxfp4": 0.2}


def random(m, k, n, g, dtype=jnp.bfloat16, seed=0):
    keys = jax.random.split(jax.random.key(seed), 2)
    return jax.random.normal(keys[0], (m, k), dtype), jax.random.normal(keys[1], (g, k, n), dtype)


@pytest.mark.parametrize("dtype", [jnp.bfloat16, jnp.float16])
@pytest.mark.parametrize("m, k, n, sizes", [
    (64, 4, 3, [64]), (64, 9, 8, [10, 54]), (5, 4, 3, [3]), (5, 4, 3, [3, 1]), (9, 4, 3, [1]),
    (10, 9, 8, [5, 0]), (16, 128, 256, [8, 8]), (8, 64, 32, [0, 0, 8, 0])])
def test_as_lax(m, k, n, sizes, dtype):
    x, w = random(m, k, n, len(sizes), dtype)
    sizes = jnp.array(sizes, jnp.int32)
    found = jax.jit(qj.ragged_dot)(x, w, sizes)
    assert found.dtype == dtype
    assert_near(found, lax.ragged_dot(x.astype(jnp.float32), w.astype(jnp.float32), sizes))


@pytest.mark.parametrize("kind", ["int16", "uint32", "int32"])
def test_types_of_sizes(case, kind):
    found = qj.ragged_dot(case.x, case.w, np.array(case.lengths, kind))
    assert same(found, qj.ragged_dot(case.x, case.w, case.sizes))


@pytest.mark.parametrize("out", [jnp.bfloat16, jnp.float32])
def test_values_and_gradients(case, out):
    dot = functools.partial(qj.ragged_dot, preferred_element_type=out)
    y = dot(case.x, case.w, case.sizes)
    assert y.dtype == out
    assert_near(y, case.y(), 2**-8 if out == jnp.bfloat16 else 1e-6)
    dx, dw = case.gradients(dot)  # rows outside are NaN, and reach nothing
    assert dx.dtype == dw.dtype == jnp.bfloat16
    assert_near(dx, case.dx())
    assert_near(dw, case.dw())
    assert not np.asarray(dw[1], np.float32).any()  # an empty group's


@pytest.mark.parametrize("recipe", RECIPES)
def test_recipes(case, recipe):
    dot = functools.partial(qj.ragged_dot, recipe=recipe, key=jax.random.key(0))
    assert_near_in_norm(dot(case.x, case.w, case.sizes), case.y(), RECIPES[recipe])
    for found, expected in zip(case.gradients(dot), (case.dx(), case.dw())):
        assert_near_in_norm(found, expected, RECIPES[recipe])


def test_every_recipe_is_served_or_refused(case):
    weights = {"w4a16_int4": 0.15, "w4a16_int4_zeros": 0.15, "w4a16_mxfp4": 0.15, "w4a16_nvfp4": 0.15,
               "w4a8_mxfp4": 0.15,
               "w8a16_fp8_block": 0.06, "w8a8_int8": 0.06}
    known = {"bf16": 2**-8, "fp8_block_any": 0.06, "mxfp8_ocp": 0.06, **weights, **RECIPES}
    for recipe in quern.recipes():
        dot = functools.partial(qj.ragged_dot, recipe=recipe, key=jax.random.key(0))
        if recipe in known:
            assert_near_in_norm(dot(case.x, case.w, case.sizes), case.y(), known[recipe])
        else:
            assert recipe in ("fp16", "fp8_tensor_delayed", "w4a16_int4_fp16",
                              "w4a16_int4_zeros_fp16")
            with pytest.raises((TypeError, ValueError), match="float16|state: recipe"):
                dot(case.x, case.w, case.sizes)


PACKED = {"w4a16_int4": "bfloat16", "w4a16_int4_zeros": "bfloat16", "w4a16_mxfp4": "bfloat16",
          "w4a16_nvfp4": "bfloat16", "w8a16_fp8_block": "bfloat16", "w4a16_int4_fp16": "float16",
          "w4a16_int4_zeros_fp16": "float16"}


@pytest.mark.parametrize("layout", ["kn", "nk"])
@pytest.mark.parametrize("recipe", PACKED)
def test_packed_weights(case, recipe, layout):
    """One tensor of w for the product and for the gradient of x, whose values are those of
    dequantize; the gradient of values is that of a product of x's type."""
    dtype, tolerance = PACKED[recipe], 2**-10 if PACKED[recipe] == "float16" else 2**-7
    x, dy, w = (a.astype(dtype) for a in (case.x, case.dy, case.w))
    w = w if layout == "kn" else jnp.swapaxes(w, 1, 2)
    copies = "columnwise" if layout == "kn" else "rowwise"
    packed = qj.grouped_quantize(w, recipe, of="w", copies=copies)
    dot = functools.partial(qj.ragged_dot, layout=layout)
    y, back = jax.vjp(lambda x: dot(x, packed, case.sizes), x)
    values, back_of_values = jax.vjp(lambda x, w: dot(x, w, case.sizes, recipe=recipe), x, w)
    dx, dw = back_of_values(dy)
    assert y.dtype == dx.dtype == dtype and same(y, values)
    assert same(back(dy)[0], dx)
    whole = qj.dequantize(packed, copies=copies, dtype=jnp.float32)
    plain, back = jax.vjp(lambda x, w: dot(x, w, case.sizes), x, whole.astype(dtype))
    assert_near(y, plain, tolerance)  # nvfp4's values have more digits than bf16
    assert_near(dx, back(dy)[0], tolerance)
    assert same(dw, back(dy)[1])


@pytest.mark.parametrize("recipe, other", [("w4a16_int4", "w4a16_int4_fp16"),
                                           ("w4a16_int4_zeros_fp16", "w4a16_int4_zeros")])
def test_packed_weights_serve_both_types(case, recipe, other):
    """The same bytes; without a name the recipe is the one for the type of x."""
    dtype, wrong = PACKED[recipe], PACKED[other]
    packed, again = (qj.grouped_quantize(case.w, name, of="w", copies="columnwise")
                     for name in (recipe, other))
    assert same(packed.columnwise, again.columnwise)
    assert same(packed.columnwise_sf, again.columnwise_sf)
    x = case.x.astype(wrong)
    with pytest.raises(TypeError, match=f"lhs is {wrong}: {dtype} is expected; recipe {other} has "
                                        f"the same weights next to {wrong}"):
        qj.ragged_dot(x, packed, case.sizes, recipe=recipe)
    y = qj.ragged_dot(x, packed, case.sizes)
    assert y.dtype == wrong and same(y, qj.ragged_dot(x, again, case.sizes, recipe=other))
    assert same(y, qj.ragged_dot(x, packed, case.sizes, recipe=other))
    assert not same(y, qj.ragged_dot(case.x.astype(dtype), packed, case.sizes))


def test_layout(case):
    w = jnp.swapaxes(case.w, 1, 2)
    assert same(qj.ragged_dot(case.x, w, case.sizes, layout="nk"),
                qj.ragged_dot(case.x, case.w, case.sizes))
    with pytest.raises(ValueError, match="layout is 'mk': 'kn' or 'nk' is expected"):
        qj.ragged_dot(case.x, w, case.sizes, layout="mk")
    with pytest.raises(ValueError, match="64 columns of lhs|48 columns of lhs"):
        qj.ragged_dot(case.x, case.w, case.sizes, layout="nk")


def test_recipes_for_inference(case):
    for w in case.w, qj.grouped_quantize(case.w, "w8a8_int8", of="w"):
        dot = functools.partial(qj.ragged_dot, recipe="w8a8_int8")
        assert_near_in_norm(dot(case.x, w, case.sizes), case.y(), 0.06)
        with pytest.raises(ValueError, match="recipe w8a8_int8 has no dy: it is for inference"):
            jax.vjp(lambda x: dot(x, w, case.sizes), case.x)


def test_f32_operands_of_a_recipe():
    case = Case([10, 0, 33, 5], n=48, k=64, dtype=jnp.float32)
    dot = functools.partial(qj.ragged_dot, recipe="mxfp8")
    y = dot(case.x, case.w, case.sizes)
    assert y.dtype == jnp.float32
    assert_near_in_norm(y, case.y(), 0.06)
    dx, dw = case.gradients(dot)
    assert dx.dtype == dw.dtype == jnp.float32
    assert_near_in_norm(dx, case.dx(), 0.06)
    assert_near_in_norm(dw, case.dw(), 0.06)


@pytest.mark.parametrize("recipe", ["bf16", "fp8_block"])
def test_outside_is_zero(case, recipe):
    dot = functools.partial(qj.ragged_dot, recipe=recipe)
    assert same(dot(case.x, case.w, case.sizes)[case.tokens:], 0)
    assert same(case.gradients(dot)[0][case.tokens:], 0)
    free = functools.partial(dot, outside=None)
    assert same(free(case.x, case.w, case.sizes)[:case.tokens],
                dot(case.x, case.w, case.sizes)[:case.tokens])


# 256 patterns in few compiled programs: the sizes are operands.
def test_all_patterns_of_empty_groups():
    m, k, n, g = 64, 16, 24, 8
    x, w = random(m, k, n, g)
    dy = jax.random.normal(jax.random.key(5), (m, n), jnp.bfloat16)

    @jax.jit
    def both(sizes):
        y, back = jax.vjp(lambda x, w: qj.ragged_dot(x, w, sizes), x, w)
        expected, other = jax.vjp(lambda x, w: lax.ragged_dot(x, w, sizes),
                                  x.astype(jnp.float32), w.astype(jnp.float32))
        return (y, *back(dy)), (expected, *other(dy.astype(jnp.float32)))

    for pattern in itertools.product((0, 1), repeat=g):
        sizes = np.zeros(g, np.int32)
        some = np.flatnonzero(pattern)
        if len(some):
            sizes[some] = m // len(some)
        for found, expected in zip(*both(jnp.array(sizes))):
            assert_near(found, expected)


def test_no_rows(case):
    none = jnp.zeros((0, case.k), jnp.bfloat16)
    sizes = jnp.zeros(4, jnp.int32)
    y, back = jax.vjp(lambda x, w: qj.ragged_dot(x, w, sizes), none, case.w)
    dx, dw = back(y)
    assert y.shape == (0, case.n) and dx.shape == none.shape and same(dw, jnp.zeros_like(case.w))


@pytest.mark.parametrize("m, k, n, g", [(5, 0, 8, 2), (5, 16, 0, 2), (5, 16, 8, 0), (0, 0, 0, 0)])
def test_axes_without_values(m, k, n, g):
    x, w = jnp.ones((m, k), jnp.bfloat16), jnp.ones((g, k, n), jnp.bfloat16)
    sizes = jnp.full(g, m // max(g, 1), jnp.int32)

    def run(dot, out):
        y, back = jax.vjp(lambda x, w: dot(x, w, sizes, preferred_element_type=out), x, w)
        return y, *back(y)

    for out in (None, jnp.float32):
        expected = (jnp.zeros((m, n), out or x.dtype), jnp.zeros_like(x), jnp.zeros_like(w))
        if DEVICE == "cpu":  # XLA has no such product of its own for GPUs
            expected = run(lax.ragged_dot, out)
        for found, zeros in zip(run(qj.ragged_dot, out), expected):
            assert found.dtype == zeros.dtype and found.shape == zeros.shape
            assert not found.any()
    batch = jax.vmap(qj.ragged_dot)(*(jnp.stack([a] * 3) for a in (x, w, sizes)))
    assert batch.shape == (3, m, n) and not batch.any()


@pytest.mark.parametrize("recipe", ["bf16", "fp8_block"])
@pytest.mark.parametrize("first, count", [(0, 4), (1, 2), (2, 2), (3, 1)])
def test_group_offset(case, recipe, first, count):
    x, dy = (jnp.nan_to_num(a) for a in (case.x, case.dy))
    begin, end = case.offsets[first], case.offsets[first + count]

    @jax.jit
    def run(x, w, offset):
        y, back = jax.vjp(lambda x, w: qj.ragged_dot(x, w, case.sizes, group_offset=offset,
                                                     recipe=recipe), x, w)
        return (y, *back(dy))

    w = case.w[first:first + count]
    y, dx, dw = run(x, w, jnp.array([first]))
    near, tolerance = (assert_near, 2**-8) if recipe == "bf16" else (assert_near_in_norm, 0.06)
    inside = np.zeros((case.rows, 1))
    inside[begin:end] = 1
    near(y, case.y(x) * inside, tolerance)
    near(dx, case.dx() * inside, tolerance)
    near(dw, case.dw()[first:first + count], tolerance)


def test_second_derivatives():
    case = Case([10, 0, 6], n=16, k=8)
    x, w = jnp.nan_to_num(case.x) / 4, case.w / 4

    def dense(x, w, sizes):  # with jax's own derivatives
        owner = jnp.repeat(jnp.arange(3), sizes, total_repeat_length=16)
        y = jnp.einsum("mk,mkn->mn", x[:16], w[owner])
        return jnp.concatenate([y, jnp.zeros((case.rows - 16, case.n), y.dtype)])

    @functools.partial(jax.jit, static_argnums=0)
    def twice(dot, x, w):
        loss = lambda x, w: jnp.sin(dot(x, w, case.sizes).astype(jnp.float32)).sum()
        inner = jax.grad(loss, (0, 1))
        return jax.grad(lambda x, w: sum((d.astype(jnp.float32)**2).sum() for d in inner(x, w)),
                        (0, 1))(x, w)

    expected = twice(dense, x.astype(jnp.float32), w.astype(jnp.float32))
    for a, b in zip(twice(qj.ragged_dot, x, w), expected):
        assert_near(a, b, 0.03)
    with pytest.raises(NotImplementedError, match="recipe fp8_block: second derivatives"):
        twice(functools.partial(qj.ragged_dot, recipe="fp8_block"), x, w)


@pytest.mark.parametrize("m, k, n, sizes", [
    (128, 128, 256, [32] * 4), (128, 128, 256, [100, 0, 20, 0]), (96, 128, 128, [96] + [0] * 7),
    (8, 64, 128, [1] * 8), (1024, 64, 32, [1000, 24])])
@pytest.mark.parametrize("out", [None, jnp.float32])
def test_shapes_of_tokamax(m, k, n, sizes, out):
    x, w = random(m, k, n, len(sizes))
    sizes = jnp.array(sizes)

    def gradients(dot, x, w):
        y, back = jax.vjp(lambda x, w: dot(x, w, sizes, preferred_element_type=out), x, w)
        return y, *back(y)

    expected = gradients(lax.ragged_dot, x.astype(jnp.float32), w.astype(jnp.float32))
    for a, b in zip(gradients(qj.ragged_dot, x, w), expected):
        assert error(a, b) < 0.02


@pytest.mark.parametrize("sizes", [[2, 3, -1, 4], [1022, 1, 1, 1]])
def test_invalid_sizes(case, sizes):
    sizes = jnp.array(sizes, jnp.int32)
    dot = jax.jit(qj.ragged_dot)
    if DEVICE != "cpu":  # a GPU stays within the buffers and goes on
        assert dot(case.x, case.w, sizes).shape == (case.rows, case.w.shape[2])
        assert jnp.isfinite(dot(case.x, case.w, case.sizes)[:case.tokens]).all()
        return
    with pytest.raises(Exception, match="quern: group .*(lengths|rows)"):
        jax.block_until_ready(dot(case.x, case.w, sizes))


@pytest.mark.parametrize("offset", [-2**31, -3, -1, 2, 3, 5, 2**31 - 1])
def test_group_offset_beyond_the_groups(offset):
    """Groups that do not exist have no rows."""
    x, w = random(12, 16, 24, 2)
    y = jax.jit(lambda i: qj.ragged_dot(x, w, jnp.array([4, 4, 4]), group_offset=i))(offset)
    for group in range(3):
        rows, here = slice(4 * group, 4 * group + 4), group - offset
        if 0 <= here < 2:
            alone = qj.ragged_dot(x[rows], w[here:here + 1], jnp.array([4]))
            assert same(y[rows], alone)
        else:
            assert not y[rows].any()


def test_integers_that_int32_lacks():
    x, w = random(12, 16, 24, 3)
    for sizes in ([2**32 + 5, 0, 7], np.array([5, -2**32, 7])):
        with pytest.raises(ValueError, match="group_sizes has integers beyond int32"):
            qj.ragged_dot(x, w, sizes)


UNSIGNED = {
    "indices": lambda t, v: qj.route(t[:, None], 2),
    "indices of a layer": lambda t, v: qj.moe(
        v[:, 0], t[:, None], None, v, v[:, :32]),
    "group_sizes": lambda t, v: qj.ragged_dot(v[0], v, t),
    "group_sizes in general": lambda t, v: qj.ragged_dot_general(
        v[0], v, t, lax.RaggedDotDimensionNumbers((((1,), (1,)), ((), ())), [0], [0])),
    "group_sizes of an MLP": lambda t, v: qj.grouped_mlp(v[0], v, v[:, :32], t),
    "group_sizes of a cast": lambda t, v: qj.grouped_quantize(v[0], "mxfp8", t, of="x").rowwise,
}


@pytest.mark.parametrize("name", UNSIGNED)
def test_unsigned_integers_that_int32_lacks(name):
    """Errors have the value that was given, without a 64-bit type of jax's, too."""
    values = random(4, 64, 64, 4)[1]
    function = jax.jit(UNSIGNED[name])
    with pytest.raises(Exception, match="is 4294967295") if DEVICE == "cpu" else \
            contextlib.nullcontext():
        jax.block_until_ready(function(jnp.array([0, 1, 2**32 - 1, 0], jnp.uint32), values))
    given = np.array([0, 1, 0, 1])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for one, two in zip(*(jax.tree.leaves(function(jnp.array(given, kind), values))
                              for kind in (jnp.uint32, jnp.int32))):
            assert same(one[:2], two[:2])


COMPUTED = {
    "vmap": lambda t, v: jax.vmap(qj.ragged_dot)(v[:2], v[:2, None], t[1:3, None]),
    "vmap of route": lambda t, v: jax.vmap(lambda i: qj.route(i[:, None], 2))(t.reshape(2, 2)),
    "group_offset": lambda t, v: qj.ragged_dot(v[0], v[1:3], t, group_offset=1, outside="zero"),
    "first": lambda t, v: qj.moe(v[:, 0], t[:, None], None, v, v[:, :32],
                                 first=jnp.asarray(t[0], jnp.int32), experts=4),
    "zeros outside": lambda t, v: jax.grad(lambda p: qj.grouped_mlp(
        v[0], v, v[:, :32], t, prob=p, outside="zero").astype(jnp.float32).sum())(jnp.ones(64)),
    "more axes": lambda t, v: qj.ragged_dot_general(
        v[:2], v, t, lax.RaggedDotDimensionNumbers((((2,), (1,)), ((), ())), [0], [0])),
}


@pytest.mark.parametrize("name", COMPUTED)
def test_unsigned_integers_that_are_computed_with(name):
    values = random(4, 64, 64, 4)[1]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for one, two in zip(*(jax.tree.leaves(jax.jit(COMPUTED[name])(
                jnp.array([0, 1, 0, 1], kind), values)) for kind in (jnp.uint32, jnp.int32))):
            assert same(jnp.nan_to_num(one), jnp.nan_to_num(two))
