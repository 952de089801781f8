# SPDX-License-Identifier: Apache-2.0
"""moe, and its parts, against the same in jax's operations over pairs of a token and a choice."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.sharding import Mesh, PartitionSpec as P

from conftest import DEVICE, assert_near, assert_near_in_norm, same
from test_mlp import activate

import quern.jax as qj
from quern.jax import _call, layer, products

TOKENS, TOPK, EXPERTS, HIDDEN, FFN = 37, 3, 6, 64, 32


def operands(activation="swiglu", seed=2, tokens=TOKENS):
    keys = jax.random.split(jax.random.key(seed), 5)
    normal = lambda i, *shape: jax.random.normal(keys[i], shape, jnp.bfloat16)
    wide = FFN if activation == "squared_relu" else 2 * FFN
    return dict(x=normal(0, tokens, HIDDEN), probs=jax.random.uniform(keys[1], (tokens, TOPK)),
                w1=normal(2, EXPERTS, HIDDEN, wide) / 5, w2=normal(3, EXPERTS, FFN, HIDDEN) / 5,
                residual=normal(4, tokens, HIDDEN))


def draw(how, seed=3, kind=np.int32):
    indices = np.random.default_rng(seed).random((TOKENS, EXPERTS)).argsort(1)[:, :TOPK]
    if how == "one":
        indices[:] = 2
    elif how == "none":
        indices[:] = -1
    elif how == "dropped":
        indices[::3, 1] = EXPERTS
        indices[4] = -5
    return jnp.asarray(indices.astype(kind))


def upstream(seed=7, tokens=TOKENS):
    return jax.random.normal(jax.random.key(seed), (tokens, HIDDEN), jnp.bfloat16)


def dense(x, probs, w1, w2, residual, indices, first=0, activation="swiglu", prob="h"):
    x, w1, w2, residual = (a.astype(jnp.float32) for a in (x, w1, w2, residual))
    local = indices - first
    here = (local >= 0) & (local < w1.shape[0])
    owner = jnp.where(here, local, 0)
    factor = {where: probs[..., None] if where == prob else 1 for where in "xhy"}
    pre = jnp.einsum("tkh,tkhf->tkf", x[:, None] * factor["x"] * jnp.ones((TOPK, 1)), w1[owner])
    y = jnp.einsum("tkf,tkfh->tkh", activate(activation, pre) * factor["h"], w2[owner])
    return residual + jnp.where(here[..., None], y * factor["y"], 0).sum(1)


def both(function, given, dy):
    """y and the gradients, in one program."""
    @jax.jit
    def run(given):
        y, back = jax.vjp(lambda given: function(**given), given)
        return y, back(dy.astype(y.dtype))[0]
    return run(given)


def compare(given, indices, tolerance=0.02, first=0, reference={}, **more):
    near = assert_near if tolerance < 0.1 else assert_near_in_norm
    dy = upstream()
    y, grads = both(functools.partial(qj.moe, indices=indices, first=first, **more), given, dy)
    z, wanted = both(functools.partial(dense, indices=indices, first=first, **reference), given, dy)
    near(y, z, tolerance)
    for name, gradient in grads.items():
        assert gradient.dtype == given[name].dtype
        near(gradient, wanted[name], tolerance)


@pytest.mark.parametrize("how", ["even", "one", "none", "dropped"])
@pytest.mark.parametrize("where", ["h", "y"])
def test_layer(how, where):
    compare(operands(), draw(how), prob=where, reference=dict(prob=where))


@pytest.mark.parametrize("activation", ["squared_relu", "geglu"])
def test_prob_of_tokens(activation):
    given = operands(activation)
    given["probs"] = given["probs"].astype(jnp.bfloat16).astype(jnp.float32)
    compare(given, draw("even"), 0.03, prob="x", activation=activation,
            reference=dict(prob="x", activation=activation))


@pytest.mark.parametrize("recipe", ["fp8_block", "mxfp8"])
def test_recipes(recipe):
    compare(operands(), draw("dropped"), 0.12, recipe=recipe)


def test_layout_and_biases():
    given, indices, dy = operands(), draw("dropped"), upstream()
    given |= {"b1": jax.random.normal(jax.random.key(8), (EXPERTS, 2 * FFN)),
              "b2": jax.random.normal(jax.random.key(9), (EXPERTS, HIDDEN))}
    y, grads = both(functools.partial(qj.moe, indices=indices), given, dy)
    turned = given | {name: jnp.swapaxes(given[name], 1, 2) for name in ("w1", "w2")}
    z, others = both(functools.partial(qj.moe, indices=indices, layout="nk"), turned, dy)
    assert same(y, z)
    for name in given:
        other = jnp.swapaxes(others[name], 1, 2) if name[0] == "w" else others[name]
        assert_near(grads[name], other, 0.01)
    count = jnp.where(indices < EXPERTS, given["probs"], 0)  # b2's gradient, with its weights
    chosen = (indices[..., None] == jnp.arange(EXPERTS)) * count[..., None]
    assert_near(grads["b2"], jnp.einsum("tke,th->eh", chosen, dy.astype(jnp.float32)), 0.02)


@pytest.mark.parametrize("prob", ["x", "y", None])
def test_gradients_of_biases(prob):
    """The backward pass reads no bias unless probabilities multiply h, and has both gradients."""
    given, indices, dy = operands(), draw("dropped"), upstream()
    given["b1"] = jax.random.normal(jax.random.key(8), (EXPERTS, 2 * FFN))
    given["b2"] = jax.random.normal(jax.random.key(9), (EXPERTS, HIDDEN))
    probs = given["probs"] if prob == "y" else jnp.ones_like(given["probs"])
    if prob is None:
        given["probs"] = None
    _, grads = both(functools.partial(qj.moe, indices=indices, prob=prob or "h"), given, dy)
    chosen = (indices[..., None] == jnp.arange(EXPERTS)) * probs[..., None]
    assert_near(grads["b2"], jnp.einsum("tke,th->eh", chosen, dy.astype(jnp.float32)), 0.02)
    assert bool(jnp.isfinite(grads["b1"]).all()) and bool(grads["b1"].any())


def test_window_of_experts():
    """Two ranks with half of the experts each; also if `first` is an array."""
    given, indices = operands(), draw("dropped")
    for first in (0, 3):
        half = given | {name: given[name][first:first + 3] for name in ("w1", "w2")}
        compare(half, indices, first=first, experts=EXPERTS)
        layer = jax.jit(lambda first, experts=EXPERTS: qj.moe(
            **half, indices=indices, first=first, experts=experts))
        y = qj.moe(**half, indices=indices, first=first, experts=EXPERTS)
        assert same(layer(jnp.int32(first)), y)
        assert same(layer(jnp.int32(first), jnp.int32(EXPERTS)), y)


def test_quantized_weights():
    given, indices = operands(), draw("even")
    q = [qj.grouped_quantize(given[name], "fp8_block", of="w") for name in ("w1", "w2")]
    y = qj.moe(**given, indices=indices, recipe="fp8_block")
    assert same(qj.moe(given["x"], indices, given["probs"], *q, residual=given["residual"]), y)
    assert same(qj.moe(**given, indices=indices, recipe="fp8_block", quantized=q), y)


def test_tokens_do_not_depend_on_others():
    given, indices = operands(), draw("even")
    y = qj.moe(**given, indices=indices)
    few = {name: a if name[0] == "w" else a[5:9] for name, a in given.items()}
    assert same(y[5:9], qj.moe(**few, indices=indices[5:9]))
    shaped = {name: a if name[0] == "w" else a.reshape(37, 1, -1) if name != "probs" else a
              for name, a in given.items()}
    assert same(qj.moe(**shaped, indices=indices), y[:, None])


@pytest.mark.parametrize("how", ["even", "dropped", "none"])
def test_parts(how):
    indices = draw(how)
    sizes, inverse = qj.route(indices, EXPERTS)
    flat = np.asarray(indices).reshape(-1)
    order = [i for e in range(EXPERTS) for i, v in enumerate(flat) if v == e]
    assert sizes.tolist() == [int((flat == e).sum()) for e in range(EXPERTS)]
    rows = np.asarray(inverse).reshape(-1)
    assert rows[order].tolist() == list(range(len(order)))
    assert (rows < 0).sum() == TOKENS * TOPK - len(order)
    x = jax.random.normal(jax.random.key(0), (TOKENS, 40))
    moved = qj.permute(x, inverse)
    assert same(moved[:len(order)], x[np.array(order, int) // TOPK])
    total = np.zeros((TOKENS, 40), np.float64)
    np.add.at(total, np.array(order, int) // TOPK, np.asarray(moved)[:len(order)].astype(float))
    assert_near(qj.combine(moved.at[len(order):].set(jnp.nan), inverse), total, 1e-6)


def test_no_tokens():
    x, indices = jnp.zeros((0, 16), jnp.bfloat16), jnp.zeros((0, 2), jnp.int32)
    sizes, inverse = qj.route(indices, 4)
    assert sizes.tolist() == [0] * 4
    assert qj.combine(qj.permute(x, inverse), inverse).shape == (0, 16)


def test_vmap_is_one_launch():
    given = [operands(seed=i) for i in (2, 5)]
    indices = jnp.stack([draw("dropped"), draw("even", 4)])
    w1, w2, dy = given[0]["w1"], given[0]["w2"], upstream()

    def layer(x, probs, residual, indices, w1, w2):
        y, back = jax.vjp(lambda *a: qj.moe(a[0], indices, a[1], a[3], a[4], residual=a[2],
                                            prob="y"), x, probs, residual, w1, w2)
        return (y, *back(dy))

    def forward(x, probs, residual, indices, w1, w2):
        return (qj.moe(x, indices, probs, w1, w2, residual=residual, prob="y"),)

    # all of the layer is a run, forward and backward; nothing that is kept is merged
    for function, runs, many in ((forward, 1, 1), (layer, 2, 4)):
        one = jax.jit(function)
        alone = lambda i: one(*(given[i][n] for n in ("x", "probs", "residual")), indices[i], w1,
                              w2)
        expected = jax.block_until_ready([alone(i) for i in range(2)])
        before = _call.counts()["runs"]
        jax.block_until_ready(alone(0))
        assert _call.counts()["runs"] - before == runs
        stacked = [jnp.stack([g[name] for g in given]) for name in ("x", "probs", "residual")]
        batched = jax.jit(jax.vmap(function, (0, 0, 0, 0, None, None)))
        jax.block_until_ready(batched(*stacked, indices, w1, w2))
        before = _call.counts()["runs"]
        found = jax.block_until_ready(batched(*stacked, indices, w1, w2))
        # a GPU's later runs may be those of a graph that XLA captured
        assert _call.counts()["runs"] - before in ((many, 0) if DEVICE != "cpu" else (many,))
        for i in range(2):
            for a, b in zip(found, expected[i]):
                assert same(a[i], b)


def test_vmap_over_windows_of_experts():
    given, indices = operands(), draw("dropped")
    window = lambda first: qj.route(indices, 3, first=first, total=EXPERTS)
    sizes, inverse = jax.vmap(window)(jnp.array([0, 3]))
    for i, first in enumerate((0, 3)):
        one = window(first)
        assert same(sizes[i], one[0]) and same(inverse[i], one[1])
    rows = jax.vmap(qj.permute, (None, 0))(given["x"], inverse)
    assert same(rows[1][:int(sizes[1].sum())],
                qj.permute(given["x"], inverse[1])[:int(sizes[1].sum())])
    many = jax.vmap(lambda i: qj.route(i, 600))(jnp.stack([indices] * 2))  # one after the other
    assert same(many[1][1], qj.route(indices, 600)[1])


def test_scan_and_remat():
    given, indices = operands(), jnp.stack([draw("even"), draw("dropped"), draw("one")])
    x, more = given["x"], {name: given[name] for name in ("probs", "w1", "w2")}

    def block(x, indices, more):
        return qj.moe(x, indices, residual=x, **more)

    def loss(block, loop):
        def total(x, more):
            if loop:
                x = lax.scan(lambda x, i: (block(x, i, more), None), x, indices)[0]
            else:
                for i in indices:
                    x = block(x, i, more)
            return (x.astype(jnp.float32)**2).sum()
        return jax.jit(jax.grad(total, (0, 1)))

    dx, expected = loss(block, False)(x, more)
    for policy in (None, jax.checkpoint_policies.save_only_these_names(
            *products.RESIDUALS, "quern_saved", layer.RESIDUAL)):
        found, others = loss(jax.checkpoint(block, policy=policy), True)(x, more)
        assert same(dx, found)
        for name in more:
            assert_near(others[name], expected[name], 0.01)


@pytest.mark.skipif(len(jax.devices()) < 4, reason="needs 4 devices")
@pytest.mark.parametrize("check_vma", [True, False])
@pytest.mark.parametrize("recipe", ["bf16", "fp8_block"])
def test_shard_map(check_vma, recipe):
    """Each device has some of the experts and all tokens; the sum over the devices is the layer."""
    keys = jax.random.split(jax.random.key(4), 2)
    given, indices = operands(), draw("even")
    w1 = jax.random.normal(keys[0], (8, HIDDEN, 2 * FFN), jnp.bfloat16) / 5
    w2 = jax.random.normal(keys[1], (8, FFN, HIDDEN), jnp.bfloat16) / 5
    indices, dy = jnp.where(indices > 2, indices + 2, indices), upstream()
    mesh = Mesh(np.array(jax.devices()[:4]), ("d",))

    def part(x, probs, w1, w2):
        first = 2 * lax.axis_index("d")
        y = qj.moe(x, indices, probs, w1, w2, first=first, experts=8, recipe=recipe)
        return lax.psum(y.astype(jnp.float32), "d")

    @jax.jit
    def sharded(*a):
        f = jax.shard_map(part, mesh=mesh, in_specs=(P(), P(), P("d"), P("d")), out_specs=P(),
                          check_vma=check_vma)
        y, back = jax.vjp(f, *a)
        return y, *back(dy.astype(jnp.float32))

    whole = lambda *a: qj.moe(*a[:1], indices, *a[1:], recipe=recipe)
    y, back = jax.vjp(whole, given["x"], given["probs"], w1, w2)
    found = sharded(given["x"], given["probs"], w1, w2)
    for a, b in zip(found, (y, *back(dy))):
        assert_near(a, b, 0.02)


def test_x64():
    with jax.enable_x64(True):
        given, indices = operands(), draw("dropped", kind=np.int64)
        given["probs"] = given["probs"].astype(jnp.float32)
        assert indices.dtype == jnp.int64
        sizes, inverse = jax.vmap(lambda i: qj.route(i, EXPERTS))(indices[None])
        y = qj.moe(**given, indices=indices)
        z = qj.moe(**given, indices=indices, first=jnp.array(0), experts=EXPERTS)
    one = qj.route(indices.astype(jnp.int32), EXPERTS)
    assert same(sizes[0], one[0]) and same(inverse[0], one[1])
    assert same(y, qj.moe(**given, indices=indices.astype(jnp.int32))) and same(y, z)


def test_derivatives():
    x = jax.random.normal(jax.random.key(0), (TOKENS, 24))
    probs = jax.random.uniform(jax.random.key(1), (TOKENS, TOPK))
    sizes, inverse = qj.route(draw("even"), EXPERTS)
    inside = jnp.arange(TOKENS * TOPK)[:, None] < sizes.sum()

    def loss(x):
        return (jnp.where(inside, qj.permute(x, inverse), 0)**3).sum()

    # the gradient of 3 x^3 is 9 x^2, of whose square it is 4 * 81 x^3
    assert_near(jax.grad(loss)(x), 9 * x**2, 1e-6)
    assert_near(jax.grad(lambda x: (jax.grad(loss)(x)**2).sum())(x), 4 * 81 * x**3, 1e-5)
    for function in (lambda p: qj.permute(x, inverse, p).sum(),
                     lambda p: (qj.combine(qj.permute(x, inverse), inverse, p)**2).sum()):
        with pytest.raises(NotImplementedError, match="probabilities: second derivatives"):
            jax.grad(lambda p: jax.grad(function)(p).sum())(probs)
    with pytest.raises(NotImplementedError, match="moe: second derivatives"):
        given = operands()
        y = lambda x: qj.moe(x, draw("even"), None, given["w1"], given["w2"]).astype(
            jnp.float32).sum()
        jax.grad(lambda x: jax.grad(y)(x).astype(jnp.float32).sum())(given["x"])


@pytest.mark.parametrize("change, error, sentence", [
    (dict(prob="z"), ValueError, "prob is 'z': 'x', 'h' or 'y' is expected"),
    (dict(indices=jnp.zeros((TOKENS, TOPK))), TypeError, "indices is float32: integers"),
    (dict(indices=jnp.zeros(TOKENS, int)), ValueError, "indices has 1 axes"),
    (dict(probs=jnp.zeros((TOKENS, 2))), ValueError, r"probs has the shape \[37, 2\]"),
    (dict(residual=jnp.zeros((1, HIDDEN), jnp.bfloat16)), ValueError, "residual has the shape"),
    (dict(residual=jnp.zeros((TOKENS, HIDDEN))), TypeError, "residual is float32"),
    (dict(group_sizes=jnp.zeros(4, int)), TypeError, "group_sizes: moe sorts the rows itself"),
    (dict(x=jnp.zeros((30, HIDDEN), jnp.bfloat16), residual=None), ValueError,
     "37 rows are expected"),
    (dict(x=jnp.zeros((TOKENS, 8), jnp.bfloat16), residual=None), ValueError, "64 columns of x"),
    (dict(first=-1), ValueError, "first is -1: an integer from 0"),
    (dict(first="1"), TypeError, "first is str: an integer from 0"),
    (dict(first=True), TypeError, "first is bool: an integer from 0"),
    (dict(experts=0), ValueError, "experts is 0: an integer from 1"),
    (dict(w1=None), TypeError, "w1 is NoneType: an array is expected"),
    (dict(foo=1), TypeError, r"moe\(\) got an unexpected keyword argument 'foo'"),
    (dict(first=4, experts=6), Exception,
     "experts is 6: at least first . g = 10"),
    (dict(w1=jnp.zeros((6, 64), jnp.bfloat16)), ValueError, "w1 has 2 axes"),
])
def test_bad_arguments(change, error, sentence):
    given = operands() | dict(indices=draw("even")) | change
    with pytest.raises(error, match=sentence):
        jax.eval_shape(functools.partial(qj.moe, **given))


def test_bad_parts():
    sizes, inverse = qj.route(draw("even"), EXPERTS)
    x = jnp.zeros((TOKENS, 16))
    with pytest.raises(TypeError, match=r"inverse: an array \[tokens, topk\] of int32"):
        qj.permute(x, inverse.astype(jnp.float32))
    with pytest.raises(ValueError, match="111 rows are expected"):
        qj.combine(x, inverse)
    for experts in (4.0, "4", None):
        with pytest.raises(TypeError, match="experts is .*: an integer from 1 is expected"):
            qj.route(draw("even"), experts)
    for experts in (jnp.int32(EXPERTS), np.array(EXPERTS)):
        assert same(qj.route(draw("even"), experts, first=np.array(0))[1], inverse)
    with pytest.raises(TypeError, match="limit is .*Tracer: a number is expected"):
        jax.jit(lambda limit: qj.moe(**operands(), indices=draw("even"), limit=limit))(7.0)
    with pytest.raises(ValueError, match="indices has 1 axes"):
        qj.route(jnp.zeros(3, jnp.int32), 4)


@pytest.mark.parametrize("batch", [False, True])
def test_an_index_that_is_too_large(batch):
    indices = draw("even").at[7, 2].set(EXPERTS + 1)
    route = jax.jit(functools.partial(qj.route, experts=EXPERTS))
    if batch:
        route, indices = jax.vmap(route), indices[None]
    if DEVICE != "cpu":  # a GPU gives the pair no row and goes on
        assert int(route(indices)[1].reshape(TOKENS, TOPK)[7, 2]) == -1
        return
    with pytest.raises(Exception, match="quern: token 7, k 2: index is 7: at most [56] is expec"):
        jax.block_until_ready(route(indices))


def test_vmap_of_no_layer():
    _, probs, w1, w2, _ = operands().values()
    made = jax.vmap(lambda x: qj.moe(x, draw("even"), probs, w1, w2))(
        jnp.zeros((0, TOKENS, HIDDEN), jnp.bfloat16))
    assert made.shape == (0, TOKENS, HIDDEN)
