# SPDX-License-Identifier: Apache-2.0
"""expert_parallel_moe on four devices, or on two GPUs: the bits of one device, and errors."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import Mesh, PartitionSpec as P

from conftest import same

import quern.jax as qj

pytestmark = pytest.mark.skipif(len(jax.devices()) < 2, reason="needs 2 devices")
DEVICES = min(len(jax.devices()), 4)
EACH = 10  # tokens
EXPERTS, HIDDEN, FFN, TOKENS, TOPK = 2 * DEVICES, 128, 48, EACH * DEVICES, 3
GIVEN = ("x", "probs", "w1", "w2", "residual")


def operands(dtype, has_residual):
    keys = jax.random.split(jax.random.key(1), 6)
    given = dict(x=jax.random.normal(keys[0], (TOKENS, HIDDEN), dtype),
                 probs=jax.random.uniform(keys[1], (TOKENS, TOPK)),
                 w1=jax.random.normal(keys[2], (EXPERTS, HIDDEN, 2 * FFN), dtype) / 8,
                 w2=jax.random.normal(keys[3], (EXPERTS, FFN, HIDDEN), dtype) / 8)
    if has_residual:
        given["residual"] = jax.random.normal(keys[4], (TOKENS, HIDDEN), dtype)
    return given, jax.random.normal(keys[5], (TOKENS, HIDDEN), dtype)


def draw(route):
    indices = np.random.default_rng(2).random((TOKENS, EXPERTS)).argsort(1)[:, :TOPK]
    if route == "one":
        indices[:] = EXPERTS - 3
    elif route == "none":
        indices[:] = -1
    elif route == "dropped":
        indices[::5, 1] = EXPERTS
        indices[3] = -4
    elif route == "few":
        indices[:, 1:] = -1
        indices[np.arange(TOKENS) % 4 > 0] = EXPERTS
    return jnp.asarray(indices.astype(np.int32))


def spread(check_vma=True, **more):
    """The layer over the devices, as a function of moe's arguments."""
    def call(x, probs, w1, w2, indices, residual=None):
        def run(x, probs, w1, w2, indices, *rest):
            return qj.expert_parallel_moe(x, indices, probs, w1, w2, axis_name="ep",
                                          residual=rest[0] if rest else None, **more)
        arrays = (x, probs, w1, w2, indices) + (() if residual is None else (residual,))
        mesh = Mesh(np.array(jax.devices()[:DEVICES]), ("ep",))
        return jax.shard_map(run, mesh=mesh, in_specs=(P("ep"),) * len(arrays), out_specs=P("ep"),
                             check_vma=check_vma)(*arrays)
    return call


def both(function, given, indices, dy):
    def run(given):
        y, back = jax.vjp(lambda g: function(indices=indices, **g), given)
        return dict(back(dy)[0], y=y)
    return jax.jit(run)(given)


def moe(x, probs, w1, w2, indices, **more):
    return qj.moe(x, indices, probs, w1, w2, **more)


CASES = [
    dict(route="one"), dict(route="none", token_capacity=EACH),
    dict(route="dropped", check_vma=False),
    dict(recipe="mxfp8", dtype=jnp.float32, residual=True), dict(prob="x", residual=True),
    dict(prob="y", route="dropped"), dict(token_capacity=EACH, recipe="mxfp8", route="dropped"),
    dict(token_capacity=EACH + 2, capacity=TOPK * EACH, residual=True, check_vma=False),
    dict(token_capacity=EACH // 4 + 2, capacity=EACH // 4 + 2, route="few"),
    dict(capacity=9, route="few", prob="x"),
    dict(chunks=3, recipe="fp8_block", residual=True, token_capacity=-(-EACH // 3)),
    dict(chunks=2, prob="y", recompute=True),
    *(dict(dispatch="quantized", recipe=recipe, capacity=128, **more) for recipe, more in (
        ("fp8_block", {}), ("mxfp8", dict(token_capacity=128, residual=True)),
        ("fp8_row", dict(route="dropped", check_vma=False)),
        ("fp8_row", dict(token_capacity=EACH)), ("mxfp8", dict(chunks=2, dtype=jnp.float32))))]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_bits_of_one_device(case):
    case = dict(case)
    given, dy = operands(case.pop("dtype", jnp.bfloat16), case.pop("residual", False))
    indices = draw(case.pop("route", "even"))
    found = both(spread(**case), given, indices, dy)
    one = functools.partial(moe, **{name: case[name] for name in ("recipe", "prob", "recompute")
                                    if name in case})
    expected = both(one, given, indices, dy)
    for name in ("y", "x", "probs", "residual"):
        assert name not in given and name != "y" or same(found[name], expected[name]), name
    if case.get("dispatch") == "quantized":  # weights see the values that were sent
        whole = jnp.array([TOKENS])
        sent = {of: qj.dequantize(qj.grouped_quantize(t, case["recipe"], whole, of=of), whole)
                for of, t in (("x", given["x"]), ("dy", dy))}
        expected = both(one, given | {"x": sent["x"]}, indices, sent["dy"])
    for name in ("w1", "w2"):
        if "chunks" not in case:
            assert same(found[name], expected[name]), name
        else:  # sums of parts
            a, b = (np.asarray(t[name], np.float64) for t in (found, expected))
            assert np.abs(a - b).max() <= 2**-6 * np.abs(b).max(), name


@pytest.mark.parametrize("more, lost", [
    (dict(capacity=5), TOKENS - 5 * DEVICES), (dict(token_capacity=4), TOKENS - 4 * DEVICES),
    (dict(chunks=2, capacity=4), TOKENS - 8 * DEVICES), (dict(first=EXPERTS + 1), 1)])
def test_pairs_that_do_not_fit(more, lost):
    """Tokens of each device choose one expert: the last ones add nothing, and are counted. So does
    the first token with an index of no expert."""
    given, _ = operands(jnp.bfloat16, False)
    indices = jnp.full((TOKENS, TOPK), -1, jnp.int32).at[:, 1].set(EXPERTS - 2)
    more = dict(more)
    wrong = indices.at[0, 1].set(more.pop("first", EXPERTS - 2))

    def run(x, probs, w1, w2, indices):
        y, count = qj.expert_parallel_moe(x, indices, probs, w1, w2, axis_name="ep",
                                          is_counted=True, **more)
        return y, count[None]

    mesh = Mesh(np.array(jax.devices()[:DEVICES]), ("ep",))
    y, counts = jax.jit(jax.shard_map(run, mesh=mesh, in_specs=P("ep"), out_specs=P("ep")))(
        *(given[name] for name in GIVEN[:4]), wrong)
    assert int(counts.sum()) == lost
    whole, there = moe(**given, indices=indices), np.asarray(y).any(1)
    assert there.sum() == TOKENS - lost and same(y[there], whole[there])


@pytest.mark.parametrize("kind, words, more", [
    (ValueError, "chunks is 0: an integer from 1", dict(chunks=0)),
    (ValueError, "capacity is 0: an integer from 1", dict(capacity=0)),
    (ValueError, "token_capacity is 9: an integer from 1 to 5", dict(capacity=5, token_capacity=9)),
    (ValueError, f"token_capacity: prob is 'y' on {DEVICES} devices",
     dict(token_capacity=5, prob="y")),
    (ValueError, "dispatch is 'fp8': 'values' or 'quantized' is", dict(dispatch="fp8")),
    (ValueError, "recipe is bf16: one of fp8_row, fp8_block, mxfp8", dict(dispatch="quantized")),
    (ValueError, "prob='h' without bias", dict(dispatch="quantized", recipe="mxfp8", prob="x")),
    (ValueError, f"capacity is {TOPK * EACH}: a multiple of 128 is expected",
     dict(dispatch="quantized", recipe="mxfp8")),
    (ValueError, "chunks is 2: recipe fp8_tensor_delayed has delayed scaling",
     dict(chunks=2, recipe="fp8_tensor_delayed")),
    (TypeError, "experts: expert_parallel_moe finds the rows itself", dict(experts=8)),
    (TypeError, "group_sizes: expert_parallel_moe finds", dict(group_sizes=None))])
def test_bad_arguments(kind, words, more):
    given, _ = operands(jnp.bfloat16, False)
    with pytest.raises(kind, match=words):
        spread(**more)(**given, indices=draw("even"))
