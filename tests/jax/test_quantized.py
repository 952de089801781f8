# SPDX-License-Identifier: Apache-2.0
"""grouped_quantize, dequantize, and products of what they make."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from conftest import assert_near, same

import quern.jax as qj

RECIPES = ["fp8_block", "fp8_row", "fp8_tensor", "mxfp8", "nvfp4", "mxfp4"]
WIDE = ("nvfp4", "mxfp4")


# nvfp4 transforms the values of columnwise x and dy, which dequantize leaves so.
@pytest.mark.parametrize("recipe, copies, of", [
    (recipe, copies, of) for recipe in RECIPES for copies in ("rowwise", "columnwise")
    for of in ("x", "w", "dy") if recipe != "nvfp4" or copies == "rowwise" or of == "w"])
def test_round_trip(case, recipe, copies, of):
    values = {"x": case.x, "w": case.w, "dy": case.dy}[of]
    sizes = None if of == "w" else case.sizes
    q = qj.grouped_quantize(values, recipe, sizes, of=of, copies=copies, key=jax.random.key(1))
    found = qj.dequantize(q, sizes, copies=copies)
    end = values.shape[0] if of == "w" else case.tokens
    assert found.dtype == values.dtype and found.shape == values.shape
    assert_near(found[:end], values[:end], 0.35 if recipe in WIDE else 0.08)
    assert (q.rowwise is None) == (copies == "columnwise")


# XLA's threads flush subnormal numbers, which the casts of small values need.
@pytest.mark.parametrize("recipe, codes", [
    ("mxfp4", [0, 0.5, 1, 1.5, 2, 3, 4, 6]),
    ("mxfp8", [2.0**-9, 2.0**-8, 3 * 2.0**-9, 2.0**-7, 2.0**-6, 1, 256, 448])])
def test_small_values_are_exact(recipe, codes):
    x = jnp.tile(jnp.array([*codes, *[-c for c in codes]], jnp.bfloat16), 2)[None]
    q = jax.jit(lambda x: qj.grouped_quantize(x, recipe, jnp.array([1]), copies="rowwise"))(x)
    assert same(jax.jit(qj.dequantize)(q, jnp.array([1])), x)


# The columnwise tensor of [k, n] is the rowwise one of its transpose, so that nothing is
# transposed before it is quantized.
@pytest.mark.parametrize("recipe", RECIPES + ["fp8_block_any", "mxfp8_ocp"])
def test_columnwise_is_rowwise_of_the_transpose(case, recipe):
    one = qj.grouped_quantize(case.w, recipe, of="w", copies="columnwise")
    other = qj.grouped_quantize(jnp.swapaxes(case.w, 1, 2), recipe, of="w", copies="rowwise")
    assert len(one.arrays("columnwise")) == len(other.arrays("rowwise")) > 1
    for a, b in zip(one.arrays("columnwise"), other.arrays("rowwise")):
        assert same(a, b)


@pytest.mark.parametrize("recipe", ["fp8_block", "mxfp8", "fp8_tensor"])
def test_quantized_weights_are_those_of_the_product(case, recipe):
    dot = functools.partial(qj.ragged_dot, recipe=recipe)
    q = jax.jit(lambda w: qj.grouped_quantize(w, recipe, of="w"))(case.w)
    y, back = jax.vjp(lambda x, w: dot(x, w, case.sizes), case.x, case.w)
    assert same(qj.ragged_dot(case.x, q, case.sizes), y)
    z, other = jax.vjp(lambda x, w: dot(x, w, case.sizes, quantized=q), case.x, case.w)
    assert same(z, y)
    for a, b in zip(other(case.dy), back(case.dy)):
        assert same(a, b)
    alone = jax.vjp(lambda x: qj.ragged_dot(x, q, case.sizes), case.x)[1](case.dy)[0]
    assert same(alone, back(case.dy)[0])


def test_it_is_a_pytree(case):
    q = qj.grouped_quantize(case.w, "fp8_block", of="w")
    leaves, tree = jax.tree.flatten(q)
    assert len(leaves) == 4 and all(leaf.dtype == jnp.uint8 for leaf in leaves)
    again = jax.tree.unflatten(tree, leaves)
    assert (again.recipe, again.shape, again.of) == ("fp8_block", case.w.shape, "w")
    stacked = jax.tree.map(lambda *a: jnp.stack(a), q, q)  # two layers, as scan takes them

    def layer(x, q):
        return qj.ragged_dot(x, q, case.sizes)[:, :1] + x, None

    found = jax.lax.scan(layer, case.x, stacked)[0]
    expected = layer(layer(case.x, q)[0], q)[0]
    assert same(found[:case.tokens], expected[:case.tokens])


def test_dbias(case):
    q, dbias = qj.grouped_quantize(case.dy, "fp8_block", case.sizes, of="dy", dbias=True)
    assert_near(dbias, np.stack([rows.sum(0) for rows in case.parts(case.dy)]), 1e-5)
    assert q.shape == case.dy.shape


@pytest.mark.parametrize("recipe", ["fp8_block", "nvfp4"])
def test_vmap(case, recipe):
    both = jnp.stack([case.w, case.w * 3])
    q = jax.vmap(lambda w: qj.grouped_quantize(w, recipe, of="w"))(both)
    one = qj.grouped_quantize(both[1], recipe, of="w")
    for a, b in zip(q.arrays("columnwise"), one.arrays("columnwise")):
        assert same(a[1], b)


@pytest.mark.parametrize("recipe", ["fp8_block", "mxfp8", "fp8_row"])
@pytest.mark.parametrize("copies", ["rowwise", "columnwise"])
def test_vmap_of_activations(case, recipe, copies):
    x = jnp.nan_to_num(case.x)
    both = jnp.stack([x, x * 3])

    def there(x):
        return qj.grouped_quantize(x, recipe, case.sizes, copies=copies)

    def back(q):
        return qj.dequantize(q, case.sizes, copies=copies)[:case.tokens]

    wanted = [back(there(a)) for a in both]
    many = jax.vmap(there)(both)
    for i, found in enumerate(jax.vmap(lambda a: back(there(a)))(both)):
        assert same(found, wanted[i])
        assert same(back(jax.tree.map(lambda a: a[i], many)), wanted[i])


@pytest.mark.parametrize("arguments, error, sentence", [
    (dict(recipe="fp8_blok"), Exception, "did you mean 'fp8_block'"),
    (dict(recipe="bf16"), ValueError, "recipe bf16 does not scale x"),
    (dict(recipe="fp8_block", of="y"), ValueError, "of is 'y': 'x', 'w' or 'dy' is expected"),
    (dict(recipe="fp8_block", copies="row"), ValueError, "copies is 'row'"),
    (dict(recipe="fp8_block", group_sizes=None), ValueError, "group_sizes: the rows"),
    (dict(recipe="fp8_block", group_sizes=3), ValueError, "group_sizes has 0 axes: 1 is expected"),
    (dict(recipe="fp8_block", of="w"), ValueError, "x has 2 axes: 3 are expected"),
    (dict(recipe="nvfp4", of="dy"), ValueError, "key: recipe nvfp4 rounds at random"),
    (dict(recipe="fp8_tensor_delayed"), ValueError, "state: recipe fp8_tensor_delayed has delayed"),
])
def test_bad_arguments(case, arguments, error, sentence):
    given = dict(group_sizes=case.sizes, **arguments) if "group_sizes" not in arguments else \
        arguments
    with pytest.raises(error, match=sentence):
        jax.jit(lambda x: qj.grouped_quantize(x, **given))(case.x)


def test_no_derivative(case):
    with pytest.raises(NotImplementedError, match="recipe fp8_block: .*derivatives"):
        jax.grad(lambda w: qj.grouped_quantize(w, "fp8_block", of="w").columnwise_sf.astype(
            jnp.float32).sum())(case.w)
