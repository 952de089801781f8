# SPDX-License-Identifier: Apache-2.0
"""grouped_mlp and moe with low-rank adapters: y and all gradients against products of merged weights, through packed weights,
too; transformations, and arguments that are refused."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from conftest import assert_near, same
from jax import lax
from jax.sharding import Mesh, PartitionSpec as P
from test_lora import DTYPES, near
from test_mlp import activate

import quern.jax as qj
from quern import GATED
from quern.jax import _call, layer, products


class Experts:
    """Weights, adapters and biases as the functions take them, and the weights' values."""

    def __init__(self, recipe="bf16", layout="kn", activation="swiglu", groups=4, hidden=64, ffn=32,
                 rank=8, seed=3):
        keys, dtype = iter(jax.random.split(jax.random.key(seed), 8)), DTYPES[recipe]
        self.recipe, self.layout, self.activation, self.dtype = recipe, layout, activation, dtype
        wide = 2 * ffn if activation in GATED else ffn
        self.shapes, self.w, self.values, self.pairs = ((hidden, wide), (ffn, hidden)), [], [], []
        for k, n in self.shapes:
            w = self.turned(jax.random.normal(next(keys), (groups, k, n), dtype) / k**.5)
            self.values.append(w)
            if recipe.startswith("w"):
                copies = "columnwise" if layout == "kn" else "rowwise"
                w = qj.grouped_quantize(w, recipe, of="w", copies=copies)
                self.values[-1] = qj.dequantize(w, copies=copies, dtype=jnp.float32)
            self.w.append(w)
            self.pairs.append(tuple(
                self.turned((jax.random.normal(next(keys), (groups, *shape)) / shape[0]**.5).astype(
                    dtype)) for shape in ((k, rank), (rank, n))))
        self.b = [jax.random.normal(next(keys), (groups, n)) for _, n in self.shapes]

    def turned(self, w):
        return w if self.layout == "kn" else jnp.swapaxes(w, 1, 2)

    def merged(self, w, pair, scale):
        """[g, k, n] in fp32."""
        w, *pair = (self.turned(t.astype(jnp.float32)) for t in (w, *(pair or ())))
        return w + scale * (pair[0] @ pair[1]) if pair else w

    def arguments(self, **more):
        """Those that have a gradient."""
        given = dict(lora1=self.pairs[0], lora2=self.pairs[1], b1=self.b[0], b2=self.b[1], **more)
        if not self.recipe.startswith("w"):
            given |= dict(w1=self.w[0], w2=self.w[1])
        return given

    def mlp(self, sizes, scale, given, **more):
        w = {} if "w1" in given else dict(w1=self.w[0], w2=self.w[1])
        return qj.grouped_mlp(group_sizes=sizes, lora_scaling=scale, recipe=self.recipe,
                              layout=self.layout, activation=self.activation, **w, **given, **more)

    def expect(self, lengths, scale, given):
        """grouped_mlp in fp32, zeros after the last expert's rows."""
        w = [self.merged(given.get(f"w{i + 1}", self.values[i]), given.get(f"lora{i + 1}"), scale)
             for i in range(2)]
        parts, ends = [], np.cumsum([0, *lengths])
        for e, (i, j) in enumerate(zip(ends, ends[1:])):
            prob = given["prob"][i:j, None] if "prob" in given else 1
            pre = given["x"][i:j].astype(jnp.float32) @ w[0][e]
            pre = pre + given["b1"][e] if "b1" in given else pre
            y = activate(self.activation, pre) * prob @ w[1][e]
            parts.append(y + given["b2"][e] * prob if "b2" in given else y)
        rows = len(given["x"]) - ends[-1]
        return jnp.concatenate([*parts, jnp.zeros((rows, self.shapes[1][1]))])

    def moe(self, indices, scale, given, **more):
        w = {} if "w1" in given else dict(w1=self.w[0], w2=self.w[1])
        given = dict(given, **w)
        given.setdefault("probs", None)
        return qj.moe(indices=indices, lora_scaling=scale, recipe=self.recipe, layout=self.layout,
                      **given, **more)

    def expect_moe(self, indices, scale, given, prob="h", first=0):
        w = [self.merged(given.get(f"w{i + 1}", self.values[i]), given.get(f"lora{i + 1}"), scale)
             for i in range(2)]
        local = indices - first
        here = (local >= 0) & (local < len(w[0]))
        owner = jnp.where(here, local, 0)
        factor = {where: given["probs"][..., None] if where == prob else 1 for where in "xhy"}
        x = given["x"].astype(jnp.float32)[:, None] * factor["x"] * jnp.ones((TOPK, 1))
        pre = jnp.einsum("tkh,tkhf->tkf", x, w[0][owner])
        pre = pre + given["b1"][owner] if "b1" in given else pre
        y = jnp.einsum("tkf,tkfh->tkh", activate("swiglu", pre) * factor["h"], w[1][owner])
        y = y + given["b2"][owner] * factor["h"] if "b2" in given else y
        y = jnp.where(here[..., None], y * factor["y"], 0).sum(1)
        return given["residual"].astype(jnp.float32) + y


def tokens_of(experts, lengths, rows, seed=9):
    """x, prob and dy, whose tail is NaN."""
    keys, tokens = jax.random.split(jax.random.key(seed), 3), sum(lengths)
    shape = rows, experts.shapes[0][0]
    x, dy = (jax.random.normal(key, shape, experts.dtype).at[tokens:].set(jnp.nan)
             for key in keys[:2])
    return x, jax.random.uniform(keys[2], (rows,)).at[tokens:].set(jnp.nan), dy


def with_gradients(function, given, dy):
    """y and the gradients, in one program."""
    @jax.jit
    def run(given, dy):
        y, back = jax.vjp(function, given)
        return y, back(dy.astype(y.dtype))[0]
    return run(given, dy)


def compare(found, expected, tolerance=2**-6, part=1 / 2):
    """y, within this part of the tolerance, and all gradients."""
    near(found[0], expected[0], tolerance * part)
    assert jax.tree.structure(found[1]) == jax.tree.structure(expected[1])
    for name, gradient in found[1].items():
        for a, b in zip(jax.tree.leaves(gradient), jax.tree.leaves(expected[1][name])):
            assert a.dtype == b.dtype
            near(a, b, tolerance)


def compare_mlp(experts, lengths, given, dy, scale=0.5, part=1 / 2):
    sizes, tokens = jnp.array(lengths, jnp.int32), sum(lengths)
    found = with_gradients(functools.partial(experts.mlp, sizes, scale), given, dy)
    clean = {name: jnp.nan_to_num(a) if name in ("x", "prob") else a for name, a in given.items()}
    compare(found, with_gradients(functools.partial(experts.expect, lengths, scale), clean,
                                  jnp.nan_to_num(dy)), part=part)
    for outside in (found[0], found[1]["x"], found[1].get("prob", jnp.zeros(0))):
        assert not np.asarray(outside[tokens:], np.float32).any()


@pytest.mark.parametrize("layout", ["kn", "nk"])
@pytest.mark.parametrize("recipe", DTYPES)
@pytest.mark.parametrize("activation", ["swiglu", "silu"])
def test_mlp(recipe, layout, activation):
    experts = Experts(recipe, layout, activation, hidden=128, ffn=128)
    lengths = [5, 0, 40, 1]
    x, prob, dy = tokens_of(experts, lengths, 53)
    compare_mlp(experts, lengths, experts.arguments(x=x, prob=prob), dy)


@pytest.mark.parametrize("ffn", [24, 12, 33])
@pytest.mark.parametrize("rows, lengths", [
    (591, [0, 1, 7, 63, 64, 65, 127, 128, 129]), (129, [0, 129, 0]), (130, [0, 0, 129]),
    (7, [0, 0, 0]), (0, [0, 0])])
def test_sizes(rows, lengths, ffn):
    """With 12 and 33 the activation's rows are no multiples of 16 bytes."""
    experts = Experts(groups=len(lengths), hidden=40, ffn=ffn, rank=5)
    x, prob, dy = tokens_of(experts, lengths, rows)
    compare_mlp(experts, lengths, experts.arguments(x=x, prob=prob), dy, 1, 2 / 3)


@pytest.mark.parametrize("left_out", [
    ["lora1"], ["lora2"], ["lora1", "prob"], ["lora2", "b1", "b2"], ["lora2", "prob", "b1", "b2"]])
@pytest.mark.parametrize("recipe", ["bf16", "w4a16_mxfp4"])
def test_mlp_with_less(recipe, left_out):
    """Adapters next to one of the weights, without biases or probabilities."""
    experts, lengths = Experts(recipe), [30, 2, 0, 8]
    x, prob, dy = tokens_of(experts, lengths, 44)
    given = experts.arguments(x=x, prob=prob)
    compare_mlp(experts, lengths, {n: a for n, a in given.items() if n not in left_out}, dy)


@pytest.mark.parametrize("recipe", ["bf16", "fp16"])
def test_gradient_of_probabilities_of_a_bias(recipe):
    """b2 has more digits than a product's operands: none is lost."""
    experts, lengths = Experts(recipe), [9, 0, 13, 0]
    x, prob, dy = tokens_of(experts, lengths, 22)
    given = experts.arguments(x=x, prob=prob) | dict(w2=jnp.zeros_like(experts.w[1]), lora2=None)
    dprob = with_gradients(functools.partial(experts.mlp, jnp.array(lengths), 1), given,
                           dy)[1]["prob"]
    owner = np.repeat(np.arange(4), lengths)
    near(dprob, (np.asarray(dy, np.float64) * np.asarray(experts.b[1], np.float64)[owner]).sum(1),
         2e-5)


def test_limits_and_interleave():
    """Adapters of zeros leave grouped_mlp as it is but for a rounding, in all other arguments."""
    experts, lengths = Experts(activation="clamped_swiglu"), [30, 2, 0, 8]
    x, prob, dy = tokens_of(experts, lengths, 44)
    zeros = [(a, jnp.zeros_like(b)) for a, b in experts.pairs]
    more = dict(limit=0.5, slope=1.1, shift=0.7, interleave=1, outside=None)
    given = experts.arguments(x=x, prob=prob)
    plain = {n: a for n, a in given.items() if n[:4] != "lora"}
    mlp = functools.partial(experts.mlp, jnp.array(lengths), 3.0, **more)
    y, grads = with_gradients(mlp, given | dict(lora1=zeros[0], lora2=zeros[1]), dy)
    z, expected = with_gradients(mlp, plain, dy)
    cut = lambda y, grads: (y[:40], {n: grads[n][:40] if n in ("x", "prob") else grads[n]
                                     for n in plain})
    compare(cut(y, grads), cut(z, expected), 2**-6)
    assert not any(np.asarray(grads[n][0], np.float32).any() for n in ("lora1", "lora2"))


def test_group_offset():
    """The sizes of all experts, of which two are here: rows of the others are outside."""
    experts, sizes = Experts(groups=2), jnp.array([3, 20, 9, 5])
    x, prob, dy = tokens_of(experts, [3, 20, 9, 5], 37)
    given, rows = experts.arguments(x=x, prob=prob), slice(3, 32)
    y, grads = with_gradients(functools.partial(experts.mlp, sizes, 0.5, group_offset=1), given, dy)
    z, others = with_gradients(functools.partial(experts.mlp, sizes[1:3], 0.5),
                               given | dict(x=x[rows], prob=prob[rows]), dy[rows])
    assert same(y[rows], z) and not np.asarray(y[:3], np.float32).any()
    assert same(grads["prob"][rows], others["prob"]) and not grads["prob"][32:].any()
    for name in ("w1", "lora1", "lora2", "b1", "b2"):
        assert all(map(same, jax.tree.leaves(grads[name]), jax.tree.leaves(others[name])))


@pytest.mark.parametrize("recipe", ["bf16", "w4a16_mxfp4"])
def test_mlp_in_vmap_is_one_launch_of_each(recipe):
    """Batches of tokens, sizes, probabilities and adapters next to the same weights."""
    experts, sizes = Experts(recipe), jnp.array([[10, 0, 33, 5], [1, 2, 3, 40]])
    given = [Experts(recipe, seed=3 + i).arguments() for i in range(2)]
    for i, one in enumerate(given):
        one["x"], one["prob"], dy = tokens_of(experts, [48], 48, i)
        one |= {name: given[0][name] for name in ("w1", "w2", "b1", "b2") if name in one}
    shared = {name: None if name in ("w1", "w2", "b1", "b2") else 0 for name in given[0]}
    batch = {name: a if shared[name] is None else jax.tree.map(lambda *a: jnp.stack(a), a,
                                                               given[1][name])
             for name, a in given[0].items()}

    def both(given, sizes):
        y, back = jax.vjp(functools.partial(experts.mlp, sizes, 0.5), given)
        return y, back(dy)[0]

    def runs(function, *args):
        jax.block_until_ready(function(*args))
        before = _call.counts()["runs"]
        found = jax.block_until_ready(function(*args))
        return found, _call.counts()["runs"] - before

    one = jax.jit(both)
    expected = [runs(one, given[i], sizes[i]) for i in range(2)]
    found, count = runs(jax.jit(jax.vmap(both, (shared, 0))), batch, sizes)
    assert count == expected[0][1]
    for i in range(2):
        for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(expected[i][0])):
            assert same(a[i], b)


@pytest.mark.parametrize("layout", ["kn", "nk"])
def test_values_of_packed_experts(layout):
    """Values are quantized here, or by the caller; they have the gradient of a product of bf16."""
    experts, lengths = Experts("w4a16_mxfp4", layout), [30, 2, 0, 8]
    x, prob, dy = tokens_of(experts, lengths, 44)
    given = experts.arguments(x=x, prob=prob)
    mlp = functools.partial(experts.mlp, jnp.array(lengths), 0.5)
    y, grads = with_gradients(mlp, given, dy)
    values = given | dict(w1=experts.values[0], w2=experts.values[1])  # of fp32
    plain = Experts("bf16", layout)
    expected = with_gradients(functools.partial(plain.expect, lengths, 0.5), {
        name: jnp.nan_to_num(a) if name in ("x", "prob") else a for name, a in values.items()
    }, jnp.nan_to_num(dy))
    for more in ({}, {"quantized": experts.w}):
        found = with_gradients(functools.partial(mlp, **more), values, dy)
        compare(found, expected)
        assert same(found[0], y)
        for name in grads:
            assert all(map(same, jax.tree.leaves(found[1][name]), jax.tree.leaves(grads[name])))


def block_of(experts, lengths):
    def block(x, more):
        return experts.mlp(jnp.array(lengths), 0.5, more | dict(x=x)) + x
    return block


def test_scan_and_remat():
    experts, lengths = Experts(), [10, 0, 33, 5]
    x, prob, _ = tokens_of(experts, lengths, 48)
    more, block = experts.arguments(prob=prob), block_of(experts, lengths)

    def gradients(block, loop):
        def total(x, more):
            if loop:
                x = lax.scan(lambda x, _: (block(x, more), None), x, None, 3)[0]
            else:
                for _ in range(3):
                    x = block(x, more)
            return (x.astype(jnp.float32)**2).sum()
        return jax.jit(jax.grad(total, (0, 1)))

    dx, expected = gradients(block, False)(x, more)
    for policy in (None, jax.checkpoint_policies.save_only_these_names(*products.RESIDUALS,
                                                                        products.SAVED)):
        found, others = gradients(jax.checkpoint(block, policy=policy), True)(x, more)
        assert same(dx, found)
        for a, b in zip(jax.tree.leaves(others), jax.tree.leaves(expected)):
            near(a, b, 0.01)


def test_what_a_policy_saves():
    """With names of all residuals nothing runs again; with quern_saved only the activation; without
    names both products do, too, since gradients of adapters read lora_t."""
    experts, lengths = Experts(), [10, 0, 33, 5]
    x, prob, _ = tokens_of(experts, lengths, 48)
    more, block = experts.arguments(prob=prob), block_of(experts, lengths)
    names = jax.checkpoint_policies.save_only_these_names

    def calls(policy):
        remat = block if policy is None else jax.checkpoint(block, policy=policy)
        loss = lambda x, more: (remat(jnp.sin(x), more).astype(jnp.float32)**2).sum()
        text = jax.jit(jax.grad(loss, (0, 1))).lower(x, more).as_text()
        return text.count("custom_call @quern")

    plain = calls(None)
    assert plain > 0 and calls(names(*products.RESIDUALS, products.SAVED)) == plain
    assert calls(names(products.SAVED)) == plain + 1
    assert calls(jax.checkpoint_policies.nothing_saveable) == plain + 3


def test_no_second_derivative_of_experts():
    experts = Experts()
    x, prob, _ = tokens_of(experts, [10, 0, 33, 5], 48)
    given = experts.arguments(prob=prob)

    def loss(x, left_out):
        more = {name: a for name, a in given.items() if name != left_out}
        return experts.mlp(jnp.array([10, 0, 33, 5]), 1, more | dict(x=x)).astype(
            jnp.float32).sum()

    for left_out, subject in (("lora2", "lora"), ("lora1", "lora|grouped_mlp")):
        with pytest.raises(NotImplementedError, match=f"({subject}): second derivatives"):
            jax.grad(lambda x: jax.grad(loss)(x, left_out).astype(jnp.float32).sum())(x)


@pytest.mark.parametrize("change, error, text", [
    ({"lora1": 3}, TypeError, "lora1: a pair of arrays"),
    ({"lora1": None, "lora2": 3}, TypeError, "lora2: a pair of arrays"),
    ({"lora2": (1, 2)}, TypeError, r"lora2\[0\] is int32: bfloat16 is expected"),
    ({"lora1": "swapped"}, ValueError, r"lora1\[0\] has the shape \[4, 8, 64\]"),
    ({"lora2": "lora1"}, ValueError, r"lora2\[0\] has the shape \[4, 64, 8\]: \[4, 32, 8\]"),
    ({"lora1": "rank"}, ValueError, "lora1: the rank is 257: 1 to 256"),
    ({"layout": "nk"}, ValueError, "has the shape"),
    ({"recompute": True}, ValueError, "lora1 or lora2 cannot be combined with recompute"),
    ({"recipe": "fp8_block"}, ValueError, "lora1: recipe fp8_block quantizes x, or w1 next to"),
    ({"recipe": "nvfp4", "lora1": None}, ValueError, "lora2: recipe nvfp4 quantizes x, or w2"),
    ({"activation": "tanh"}, ValueError, "activation is 'tanh'"),
    ({"interleave": 7}, Exception, "interleave"),
    ({"lora_scaling": "x"}, TypeError, "lora_scaling is str"),
    ({"lora_scaling": jnp.ones(1)}, TypeError, "lora_scaling is ArrayImpl"),
    ({"b2": None}, ValueError, "b1, b2: both or none"),
    ({"x": jnp.zeros((48, 64))}, TypeError, "x is float32: bfloat16 is expected"),
])
@pytest.mark.parametrize("name", ["grouped_mlp", "moe"])
def test_experts_refused(name, change, error, text):
    experts, change = Experts(), dict(change)
    (a, b), wide = experts.pairs[0], jnp.zeros((4, 64, 257), jnp.bfloat16)
    words = {"swapped": (b, a), "lora1": (a, b), "rank": (wide, jnp.swapaxes(wide, 1, 2))}
    given = experts.arguments(x=tokens_of(experts, [48], 48)[0], recipe="bf16")
    given |= {key: words.get(value, value) if key[:4] == "lora" and isinstance(value, str) and
              key != "lora_scaling" else value for key, value in change.items()}
    more = dict(group_sizes=jnp.array([3, 4, 0, 0])) if name == "grouped_mlp" else \
        dict(indices=jnp.zeros((48, 2), jnp.int32), probs=None)
    with pytest.raises(error, match=text):
        jax.eval_shape(functools.partial(getattr(qj, name), **given, **more))


def test_missing_tensor_is_refused():
    """Packed weights in the other order."""
    experts = Experts("w4a16_mxfp4", "nk")
    x = tokens_of(experts, [48], 48)[0]
    pairs = Experts("w4a16_mxfp4", "kn", hidden=64, ffn=32).pairs
    w = [qj.grouped_quantize(jnp.swapaxes(v, 1, 2), "w4a16_mxfp4", of="w", copies="rowwise")
         for v in experts.values]
    with pytest.raises(ValueError, match="w1 has no columnwise tensor, which the product reads"):
        qj.grouped_mlp(x, *w, jnp.array([48, 0, 0, 0]), lora1=pairs[0])


# ----------------------------------------------------------------------------- from tokens


TOKENS, TOPK, TOTAL = 20, 2, 6


def tokens_and_choices(seed=5):
    """x, residual, probs, dy; indices of six experts, one of which is dropped."""
    keys = jax.random.split(jax.random.key(seed), 5)
    x, residual, dy = (jax.random.normal(key, (TOKENS, 64), jnp.bfloat16) for key in keys[:3])
    indices = jnp.argsort(jax.random.uniform(keys[3], (TOKENS, TOTAL)), 1)[:, :TOPK]
    return dict(x=x, residual=residual, probs=jax.random.uniform(keys[4], (TOKENS, TOPK))), \
        indices.astype(jnp.int32).at[3, 1].set(-1), dy


@pytest.mark.parametrize("prob", ["x", "h", "y", None])
@pytest.mark.parametrize("recipe", ["bf16", "w4a16_mxfp4"])
def test_moe(recipe, prob):
    """Experts 2 to 5 of 6 are here; a dropped pair; a residual; biases. Also if `first` is an
    array."""
    experts = Experts(recipe, "nk")
    tokens, indices, dy = tokens_and_choices()
    if prob is None:
        del tokens["probs"]
    given, more = experts.arguments(**tokens), {} if prob is None else {"prob": prob}
    found = with_gradients(lambda given: experts.moe(indices, 0.5, given, first=2, experts=TOTAL,
                                             **more), given, dy)
    compare(found, with_gradients(lambda given: experts.expect_moe(indices, 0.5, given, prob, 2),
                                  given, dy), 2**-5)
    first = jax.jit(lambda first, total: experts.moe(indices, 0.5, given, first=first,
                                             experts=total, **more))
    assert same(first(jnp.int32(2), jnp.int32(TOTAL)), found[0])


@pytest.mark.parametrize("index", [2, -1])
def test_moe_of_one_expert_or_none(index):
    """All pairs of one expert; no pair of any; no token, and more axes."""
    experts, given = Experts(groups=TOTAL), tokens_and_choices()[0]
    dy, indices = tokens_and_choices()[2], jnp.full((TOKENS, TOPK), index)
    given = experts.arguments(**given)
    found = with_gradients(functools.partial(experts.moe, indices, 1), given, dy)
    compare(found, with_gradients(functools.partial(experts.expect_moe, indices, 1), given, dy),
            2**-5)
    shaped = given | {name: given[name].reshape(4, 5, -1) for name in ("x", "residual")}
    assert same(experts.moe(indices, 1, shaped), found[0].reshape(4, 5, -1))
    none = given | {name: given[name][:0] for name in ("x", "residual", "probs")}
    y, grads = with_gradients(functools.partial(experts.moe, indices[:0], 1), none, dy[:0])
    assert y.shape == (0, 64) and grads["x"].shape == (0, 64)
    assert not any(np.asarray(a, np.float32).any() for a in jax.tree.leaves(grads))


def test_moe_in_vmap_and_x64():
    experts = Experts(groups=TOTAL)
    cases = [tokens_and_choices(seed) for seed in (5, 6)]
    indices, dy = jnp.stack([case[1] for case in cases]), cases[0][2]
    more = experts.arguments()

    def both(tokens, indices):
        y, back = jax.vjp(lambda given: experts.moe(indices, 0.5, given), more | tokens)
        return y, back(dy)[0]

    one = jax.jit(both)
    stacked = jax.tree.map(lambda *a: jnp.stack(a), *[case[0] for case in cases])
    found = jax.jit(jax.vmap(both))(stacked, indices)
    for i in range(2):
        for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(one(cases[i][0], indices[i]))):
            assert same(a[i], b)
    with jax.enable_x64(True):
        long = indices[0].astype(jnp.int64)
        assert long.dtype == jnp.int64
        assert same(experts.moe(long, 0.5, more | cases[0][0]), found[0][0])


@pytest.mark.parametrize("name", ["x", "probs"])
def test_moe_with_a_policy(name):
    """Under jax.checkpoint gradients have the same bits."""
    experts = Experts(groups=TOTAL)
    tokens, indices, dy = tokens_and_choices()
    given = experts.arguments(**tokens)
    names = jax.checkpoint_policies.save_only_these_names(*products.RESIDUALS, products.SAVED,
                                                          layer.RESIDUAL)
    plain = functools.partial(experts.moe, indices, 0.5)
    y, grads = with_gradients(plain, given, dy)
    for policy in (None, names):
        z, others = with_gradients(jax.checkpoint(plain, policy=policy), given, dy)
        assert same(y, z) and same(grads[name], others[name])
        assert all(map(same, grads["lora1"], others["lora1"]))


needs_devices = pytest.mark.skipif(len(jax.devices()) < 4, reason="needs 4 devices")


@needs_devices
@pytest.mark.parametrize("check_vma", [True, False])
@pytest.mark.parametrize("where", ["moe", "expert_parallel_moe"])
def test_experts_on_several_devices(where, check_vma):
    """Two experts, their weights and adapters on each of four devices."""
    experts = Experts(groups=8)
    (tokens, indices, dy), more = tokens_and_choices(), experts.arguments()
    del tokens["residual"]
    indices = jnp.where(indices > 2, indices + 2, indices)
    everywhere, there = P(), P("d")

    def part(tokens, more, indices):
        if where == "moe":
            y = experts.moe(indices, 0.5, tokens | more, first=2 * lax.axis_index("d"), experts=8)
            return lax.psum(y.astype(jnp.float32), "d")
        return qj.expert_parallel_moe(indices=indices, axis_name="d", lora_scaling=0.5, **tokens,
                                      **more)

    at = everywhere if where == "moe" else there
    sharded = jax.shard_map(part, mesh=Mesh(np.array(jax.devices()[:4]), ("d",)),
                            in_specs=(at, there, at), out_specs=at, check_vma=check_vma)
    given = tokens | more
    found = with_gradients(lambda given: sharded({n: given[n] for n in tokens},
                                                 {n: given[n] for n in more}, indices), given, dy)
    y, grads = with_gradients(functools.partial(experts.moe, indices, 0.5), given, dy)
    compare((found[0].astype(y.dtype), found[1]), (y, grads), 2**-5)


@needs_devices
@pytest.mark.parametrize("check_vma", [True, False])
def test_adapters_that_devices_share(check_vma):
    """Tokens are sharded, experts are not: gradients of adapters and biases are sums."""
    experts = Experts()
    lengths = ([10, 0, 33, 5], [0, 0, 0, 48], [1, 2, 3, 4], [20, 20, 0, 0])
    each = [tokens_of(experts, [48], 48, i) for i in range(4)]
    x, prob, dy = (jnp.concatenate([one[i] for one in each]) for i in range(3))
    more, sizes = experts.arguments(), jnp.array(lengths).reshape(-1)
    sharded = jax.shard_map(
        lambda x, prob, more, sizes: experts.mlp(sizes, 0.5, more | dict(x=x, prob=prob)),
        mesh=Mesh(np.array(jax.devices()[:4]), ("d",)), in_specs=(P("d"), P("d"), P(), P("d")),
        out_specs=P("d"), check_vma=check_vma)
    y, grads = with_gradients(lambda given: sharded(given["x"], given["prob"], {
        name: given[name] for name in more}, sizes), more | dict(x=x, prob=prob), dy)
    sums = {}
    for i, (one, lengths) in enumerate(zip(each, lengths)):
        z, found = with_gradients(functools.partial(experts.mlp, jnp.array(lengths), 0.5),
                                  more | dict(x=one[0], prob=one[1]), one[2])
        part = slice(48 * i, 48 * i + 48)
        assert same(y[part], z)
        assert same(grads["x"][part], found["x"]) and same(grads["prob"][part], found["prob"])
        for name in more:
            sums.setdefault(name, []).append(found[name])
    for name, parts in sums.items():
        total = jax.tree.map(lambda *a: sum(np.asarray(t, np.float64) for t in a), *parts)
        for a, b in zip(jax.tree.leaves(grads[name]), jax.tree.leaves(total)):
            assert_near(a, b, 0.02)
