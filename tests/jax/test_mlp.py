# SPDX-License-Identifier: Apache-2.0
"""grouped_mlp against the same in jax's operations."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from conftest import assert_near, assert_near_in_norm, same

import quern.jax as qj
from quern import GATED, PLAIN
from quern.jax import _call

LENGTHS, HIDDEN, FFN, ROWS = [10, 0, 33, 5], 48, 32, 55


def arrays(activation="swiglu", layout="kn", dtype=jnp.bfloat16, seed=2):
    keys = jax.random.split(jax.random.key(seed), 7)
    wide = FFN if activation in PLAIN else 2 * FFN
    normal = lambda i, *shape, dtype=dtype: jax.random.normal(keys[i], shape, dtype)
    w1 = normal(1, 4, HIDDEN, wide) / 4
    w2 = normal(2, 4, FFN, HIDDEN) / 4
    if layout == "nk":
        w1, w2 = jnp.swapaxes(w1, 1, 2), jnp.swapaxes(w2, 1, 2)
    tokens = sum(LENGTHS)
    return dict(x=normal(0, ROWS, HIDDEN).at[tokens:].set(jnp.nan), w1=w1, w2=w2,
                prob=jax.random.uniform(keys[3], (ROWS,)).at[tokens:].set(jnp.nan),
                b1=normal(4, 4, wide, dtype=jnp.float32), b2=normal(5, 4, HIDDEN, dtype=jnp.float32)
                ), normal(6, ROWS, HIDDEN).at[tokens:].set(jnp.nan)


def activate(name, pre):
    if name in PLAIN:
        return {"squared_relu": jnp.maximum(pre, 0)**2, "relu": jnp.maximum(pre, 0),
                "silu": jax.nn.silu(pre), "gelu": jax.nn.gelu(pre, approximate=False),
                "gelu_tanh": jax.nn.gelu(pre, approximate=True)}[name]
    a, b = jnp.split(pre, 2, -1)
    if name == "clamped_swiglu":
        a, b = jnp.minimum(a, 7), jnp.clip(b, -7, 7)
        return a * jax.nn.sigmoid(1.702 * a) * (b + 1)
    if name == "geglu":
        return jax.nn.gelu(a, approximate=True) * b
    if name == "reglu":
        return jnp.maximum(a, 0) * b
    if name == "situ":
        return 4 * jnp.tanh(a / 4) * jax.nn.sigmoid(a) * 25 * jnp.tanh(b / 25)
    return jax.nn.silu(a) * b


def dense(activation, layout, x, w1, w2, prob=None, b1=None, b2=None):
    tokens = sum(LENGTHS)
    owner = np.repeat(np.arange(4), LENGTHS)
    x, w1, w2 = (a.astype(jnp.float32) for a in (x[:tokens], w1, w2))
    spec = "mk,mkn->mn" if layout == "kn" else "mk,mnk->mn"
    pre = jnp.einsum(spec, x, w1[owner]) + (0 if b1 is None else b1[owner])
    h = activate(activation, pre) * (1 if prob is None else prob[:tokens, None])
    y = jnp.einsum(spec, h, w2[owner])
    if b2 is not None:
        y += b2[owner] * (1 if prob is None else prob[:tokens, None])
    return jnp.concatenate([y, jnp.zeros((ROWS - tokens, y.shape[1]))])


def compare(given, dy, tolerance, activation="swiglu", layout="kn", **more):
    near, more_error = (assert_near, 2) if more.get("recipe", "bf16") == "bf16" else \
        (assert_near_in_norm, 1.2)
    sizes = jnp.array(LENGTHS)

    @jax.jit
    def found(given):
        y, back = jax.vjp(lambda given: qj.grouped_mlp(
            group_sizes=sizes, activation=activation, layout=layout, **given, **more), given)
        return y, back(dy)[0]

    y, back = jax.vjp(lambda given: dense(activation, layout, **given), given)
    expected = back(jnp.nan_to_num(dy).astype(jnp.float32))[0]
    z, gradients = found(given)
    near(z, y, tolerance)
    for name, gradient in gradients.items():
        assert gradient.dtype == given[name].dtype
        near(gradient, expected[name], more_error * tolerance)


@pytest.mark.parametrize("activation", GATED + PLAIN)
def test_activations(activation):
    given, dy = arrays(activation)
    compare(given, dy, 0.01, activation)


@pytest.mark.parametrize("recompute", [False, True])
def test_biases_without_probabilities(recompute):
    """The backward pass reads no bias then, and has the gradients of both."""
    given, dy = arrays()
    del given["prob"]
    compare(given, dy, 0.01, recompute=recompute)


@pytest.mark.parametrize("layout", ["kn", "nk"])
@pytest.mark.parametrize("recipe", ["bf16", "fp8_block", "mxfp8"])
@pytest.mark.parametrize("recompute", [False, True])
def test_recipes(recipe, layout, recompute):
    given, dy = arrays(layout=layout)
    for name in ("b1", "b2"):
        del given[name]
    compare(given, dy, 0.01 if recipe == "bf16" else 0.08, layout=layout, recipe=recipe,
            recompute=recompute)


def test_random_rounding():
    given, dy = arrays()
    compare(dict(x=given["x"], w1=given["w1"], w2=given["w2"]), dy, 0.35, recipe="nvfp4",
            key=jax.random.key(0))


@pytest.mark.parametrize("recipe", ["fp8_block", "mxfp8"])
def test_quantized_weights(recipe):
    given, dy = arrays()
    x, w1, w2, sizes = given["x"], given["w1"], given["w2"], jnp.array(LENGTHS)
    mlp = functools.partial(qj.grouped_mlp, group_sizes=sizes, recipe=recipe)
    q = [qj.grouped_quantize(w, recipe, of="w") for w in (w1, w2)]
    y, back = jax.vjp(lambda *a: mlp(*a), x, w1, w2)
    z, other = jax.vjp(lambda *a: mlp(*a, quantized=q), x, w1, w2)
    assert same(y, z) and all(map(same, back(dy), other(dy)))
    z, other = jax.vjp(lambda x: mlp(x, *q), x)
    assert same(y, z) and same(back(dy)[0], other(dy)[0])
    half = [qj.grouped_quantize(w, recipe, of="w", copies="columnwise") for w in (w1, w2)]
    assert same(mlp(x, *half), y)
    with pytest.raises(ValueError, match="w1, w2 have no rowwise tensor, which the backward pass"):
        jax.vjp(lambda x: mlp(x, *half), x)
    half = [qj.grouped_quantize(w, recipe, of="w", copies="rowwise") for w in (w1, w2)]
    with pytest.raises(ValueError, match="w1 has no columnwise tensor, which the product reads"):
        jax.eval_shape(lambda x: mlp(x, *half), x)


@pytest.mark.parametrize("recipe", ["bf16", "fp8_block"])
def test_vmap_is_one_launch(recipe):
    given, dy = arrays()
    sizes = jnp.array([LENGTHS, [1, 2, 3, 40]])
    x = jnp.stack([jnp.nan_to_num(given["x"])] * 2) * jnp.array([1, 2], jnp.bfloat16)[:, None, None]

    def both(x, w1, w2, sizes):
        y, back = jax.vjp(lambda *a: qj.grouped_mlp(*a, sizes, recipe=recipe), x, w1, w2)
        return (y, *back(dy))

    def forward(x, w1, w2, sizes):
        return (qj.grouped_mlp(x, w1, w2, sizes, recipe=recipe),)

    for function, is_merged in ((forward, True), (both, False)):  # nothing that is kept is merged
        one = jax.jit(function)
        expected = jax.block_until_ready([one(x[i], given["w1"], given["w2"], sizes[i])
                                          for i in range(2)])
        before = _call.counts()["runs"]
        jax.block_until_ready(one(x[0], given["w1"], given["w2"], sizes[0]))
        alone = _call.counts()["runs"] - before
        found = jax.block_until_ready(jax.jit(jax.vmap(function, (0, None, None, 0)))(
            x, given["w1"], given["w2"], sizes))
        count = _call.counts()["runs"] - before - alone
        assert count == alone if is_merged else alone < count <= 2 * alone
        for i in range(2):
            for a, b in zip(found, expected[i]):
                assert same(a[i], b)


@pytest.mark.parametrize("recipe", ["bf16", "mxfp8", "w4a16_mxfp4"])
def test_recompute_without_gradients(recipe):
    given, _ = arrays()
    x, sizes = jnp.nan_to_num(given["x"]), jnp.array(LENGTHS)

    def mlp(recompute):
        return qj.grouped_mlp(x, given["w1"], given["w2"], sizes, recipe=recipe,
                              recompute=recompute)

    assert same(mlp(True), mlp(False)) and same(jax.jit(lambda: mlp(True))(), mlp(True))


@pytest.mark.parametrize("layout", ["kn", "nk"])
@pytest.mark.parametrize("recipe", ["w4a16_mxfp4", "w8a8_int8"])
def test_packed_weights(recipe, layout):
    given, dy = arrays(layout=layout)
    values, copies = [given[w] for w in ("w1", "w2")], "columnwise" if layout == "kn" else "rowwise"
    packed = [qj.grouped_quantize(w, recipe, of="w", copies=copies) for w in values]

    def mlp(x, *w):
        return qj.grouped_mlp(x, *w, jnp.array(LENGTHS), recipe=recipe, layout=layout)

    assert same(mlp(given["x"], *packed), mlp(given["x"], *values))
    if recipe == "w8a8_int8":
        with pytest.raises(ValueError, match="recipe w8a8_int8 has no dy: it is for inference"):
            jax.vjp(lambda x: mlp(x, *packed), given["x"])
        return
    dx = [jax.vjp(lambda x: mlp(x, *w), given["x"])[1](dy)[0] for w in (packed, values)]
    assert same(*dx) and np.asarray(dx[0], np.float32).any()


class Variable:
    """As libraries of layers have parameters."""

    def __init__(self, value):
        self.value = value

    def __jax_array__(self):
        return self.value


@pytest.mark.parametrize("interleave", [3, 24])
def test_any_run_that_divides_ffn(interleave):
    """Next to an activation in the product's launch, which reads sums before they are rounded."""
    given, _ = arrays()
    x, w1, w2 = given["x"], given["w1"][:, :, :48], given["w2"][:, :24]
    sizes = jnp.array(LENGTHS)
    runs = w1.reshape(4, HIDDEN, 2, -1, interleave).swapaxes(2, 3).reshape(w1.shape)
    found, expected = (qj.grouped_mlp(x, w, w2, sizes, interleave=run)
                       for w, run in ((runs, interleave), (w1, 0)))
    assert_near(found, expected, 2**-6)


def test_objects_that_are_arrays():
    given, _ = arrays()
    x, (w1, w2) = given["x"], (given["w1"], given["w2"])
    found, expected = (qj.grouped_mlp(x, *w, jnp.array(LENGTHS))
                       for w in ((Variable(w1), Variable(w2)), (w1, w2)))
    assert same(found, expected)
    x, indices, probs = x[:6], jnp.zeros((6, 2), jnp.int32), jnp.ones((6, 2))
    found, expected = (qj.moe(x, indices, probs, *w)
                       for w in ((Variable(w1), Variable(w2)), (w1, w2)))
    assert same(found, expected)


@pytest.mark.parametrize("change, error, sentence", [
    (dict(activation="mish"), ValueError, "activation is 'mish': 'swiglu', "),
    (dict(layout="nm"), ValueError, "layout is 'nm'"),
    (dict(w2=jnp.zeros((4, HIDDEN, FFN), jnp.bfloat16)), ValueError, r"w2 has the shape"),
    (dict(x=jnp.zeros((ROWS, 8), jnp.bfloat16)), ValueError, "48 columns of x are expected"),
    (dict(b1=jnp.zeros((4, 2 * FFN))), ValueError, "b1, b2: both or none"),
    (dict(prob=jnp.zeros((3,))), ValueError, r"prob has the shape \[3\]: \[55\] is expected"),
    (dict(w1=jnp.zeros((4, HIDDEN, 2 * FFN))), TypeError, "w1 is float32: bfloat16 is expected"),
    (dict(x=jnp.zeros((ROWS, HIDDEN))), NotImplementedError, "x is float32: .* need a recipe"),
    (dict(group_sizes=jnp.zeros(3, jnp.int32)), ValueError, r"group_sizes has the shape \[3\]"),
    (dict(interleave=7), Exception, "interleave"),
    (dict(interleave="1"), TypeError, "interleave is str: an integer from 0"),
    (dict(recompute="yes"), TypeError, "recompute is str: True or False is expected"),
    (dict(limit="7"), TypeError, "limit is str: a number is expected"),
    (dict(w1=None), TypeError, "w1 is NoneType: an array is expected"),
    (dict(lora1=(jnp.zeros((4, HIDDEN, 2), jnp.bfloat16), None)), TypeError,
     r"lora1\[1\] is NoneType: an array is expected"),
    *[({name: qj.grouped_quantize(jnp.ones((4, 8, 8)), "mxfp8", of="w")}, ValueError,
       "w1, w2: both or none a Quantized are expected") for name in ("w1", "w2")],
    (dict(recipe="fp8_tensor_delayed"), ValueError, "delayed scaling"),
    (dict(activation="clamped_swiglu", limit=float("nan")), ValueError, "limit is nan: a number"),
])
def test_bad_arguments(change, error, sentence):
    given, _ = arrays()
    given = dict(x=given["x"], w1=given["w1"], w2=given["w2"], group_sizes=jnp.array(LENGTHS))
    with pytest.raises(error, match=sentence):
        jax.eval_shape(functools.partial(qj.grouped_mlp, **(given | change)))
