# SPDX-License-Identifier: Apache-2.0
"""shard_map: expert parallelism of the examples, varying axes, gradients of replicated weights."""

import functools
import importlib
import os
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec as P

from conftest import DEVICE, ROOT, Case, assert_near, same

import quern.jax as qj

EXAMPLES = os.path.join(ROOT, "examples")
LAYERS = ["jax_ring", "jax_all_to_all", "jax_ragged_all_to_all"]

needs_devices = pytest.mark.skipif(len(jax.devices()) < 4, reason="needs 4 devices")


@pytest.mark.parametrize("name", ["jax_train", "jax_moe", *LAYERS])
def test_examples(name):
    env = dict(os.environ, PYTHONPATH=os.path.join(ROOT, "runtime", "python"))
    found = subprocess.run([sys.executable, os.path.join(EXAMPLES, name + ".py")], env=env,
                           capture_output=True, text=True)
    assert found.returncode == 0, found.stderr
    if DEVICE == "cpu" and name != "jax_train":
        assert "4 devices and one" in found.stdout


@needs_devices
@pytest.mark.parametrize("name", LAYERS)
@pytest.mark.parametrize("recipe, check_vma", [("bf16", False), ("fp8_block", True)])
def test_layers(name, recipe, check_vma, monkeypatch):
    monkeypatch.syspath_prepend(EXAMPLES)
    experts = importlib.import_module("jax_experts")
    layer = importlib.import_module(name)
    mlp = functools.partial(experts.mlp, recipe=recipe)
    monkeypatch.setattr(layer, "mlp", mlp)
    monkeypatch.setattr(experts, "mlp", mlp)
    experts.compare(layer.layer, check_vma)


# Choices on several devices, dropped ones too: the bits of one device, where a token is scaled alone.
@needs_devices
@pytest.mark.parametrize("more", [{"recipe": "fp8_block"}, {"recipe": "mxfp8", "check_vma": False},
                                  {"prob": "h", "recompute": True}], ids=str)
def test_bits_of_one_device(more, monkeypatch):
    monkeypatch.syspath_prepend(EXAMPLES)
    importlib.import_module("jax_moe").compare(**more)


def mesh(*axes):
    return Mesh(np.array(jax.devices()[:4]), axes or ("d",))


# Tokens are sharded, weights are not: their gradient is the sum over the devices.
@needs_devices
@pytest.mark.parametrize("check_vma", [True, False])
@pytest.mark.parametrize("recipe", ["bf16", "fp8_block"])
def test_replicated_weights(recipe, check_vma):
    cases = [Case(lengths, 48, 64, rows=55, seed=i) for i, lengths in enumerate(
        ([10, 0, 33, 5], [0, 0, 0, 55], [1, 2, 3, 4], [20, 20, 0, 0]))]
    x, dy = (jnp.concatenate([jnp.nan_to_num(getattr(c, name)) for c in cases])
             for name in ("x", "dy"))
    sizes, w = jnp.concatenate([c.sizes for c in cases]), cases[0].w
    dot = functools.partial(qj.ragged_dot, recipe=recipe)
    f = jax.shard_map(dot, mesh=mesh(), in_specs=(P("d"), P(), P("d")), out_specs=P("d"),
                      check_vma=check_vma)
    y, back = jax.vjp(lambda x, w: f(x, w, sizes), x, w)
    dx, dw = back(dy)
    parts = []
    for i, case in enumerate(cases):
        one, other = jax.vjp(lambda x, w: dot(x, w, case.sizes), jnp.nan_to_num(case.x), w)
        found = other(jnp.nan_to_num(case.dy))
        part = slice(55 * i, 55 * i + 55)
        assert same(y[part], one) and same(dx[part], found[0])
        parts.append(np.asarray(found[1], np.float64))
    assert_near(dw, sum(parts), 0.02)


@needs_devices
def test_two_axes_of_which_one_varies(case):
    two = Mesh(np.array(jax.devices()[:4]).reshape(2, 2), ("a", "b"))
    w = jnp.concatenate([case.w] * 2)  # experts over b, tokens everywhere

    def layer(x, w, sizes):
        return jax.lax.pmean(qj.ragged_dot(x, w, sizes), "b")

    f = jax.shard_map(layer, mesh=two, in_specs=(P(), P("b"), P()), out_specs=P())
    y, back = jax.vjp(lambda x, w: f(x, w, case.sizes), jnp.nan_to_num(case.x), w)
    assert_near(y, case.y())
    dx, dw = back(jnp.nan_to_num(case.dy))
    assert_near(dx, case.dx(), 0.01)
    assert_near(dw[:4], case.dw() / 2, 0.01)


@needs_devices
def test_quantized_weights_are_sharded(case):
    w = jnp.concatenate([case.w, 2 * case.w, 3 * case.w, 4 * case.w])
    sharded = functools.partial(jax.shard_map, mesh=mesh())
    q = sharded(lambda w: qj.grouped_quantize(w, "fp8_block", of="w"), in_specs=P("d"),
                out_specs=P("d"))(w)
    one = qj.grouped_quantize(w, "fp8_block", of="w")
    for a, b in zip(one.arrays("columnwise"), q.arrays("columnwise")):
        assert same(a, b)


# Outside of shard_map XLA gathers what is sharded: correct, and not what one wants.
@needs_devices
def test_sharded_operands_outside_of_shard_map(case):
    sharding = NamedSharding(mesh(), P("d"))
    w = jax.device_put(case.w, sharding)
    text = jax.jit(qj.ragged_dot).lower(case.x, w, case.sizes).compile().as_text()
    assert "all-gather" in text
    assert_near(jax.jit(qj.ragged_dot)(case.x, w, case.sizes), case.y())
    explicit = jax.make_mesh((4,), ("d",), axis_types=(AxisType.Explicit,))
    with jax.set_mesh(explicit):
        w = jax.device_put(case.w, NamedSharding(explicit, P("d")))
        with pytest.raises(ValueError, match="rhs is sharded as .*: call quern.jax inside of"):
            jax.jit(qj.ragged_dot)(case.x, w, case.sizes)


@pytest.mark.gpu
def test_two_gpus_in_one_process(case):
    if len(jax.devices()) < 2:
        pytest.skip("needs 2 GPUs")
    for device in jax.devices()[:2]:
        given = [jax.device_put(a, device) for a in (case.x, case.w, case.sizes)]
        assert_near(jax.jit(qj.ragged_dot)(*given), case.y())
