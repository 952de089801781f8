# SPDX-License-Identifier: Apache-2.0
"""jit, scan, remat, export, donation, x64, threads; and what jax is told while it traces."""

import functools
import gc
import os
import subprocess
import sys
import threading

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from conftest import ROOT, Case, assert_near, same

import quern.jax as qj
from quern.jax import _call, products


def test_one_program_for_all_sizes(case):
    f = jax.jit(lambda *a: qj.ragged_dot(*a))  # jax shares programs of one function
    f(case.x, case.w, case.sizes).block_until_ready()
    before = _call.counts()
    for lengths in ([0, 0, 0, 0], [48, 0, 0, 0], [1, 2, 3, 4]):
        f(case.x, case.w, jnp.array(lengths, jnp.int32)).block_until_ready()
    after = _call.counts()
    assert f._cache_size() == 1 and after["plans"] == before["plans"]
    assert after["runs"] == before["runs"] + 3


def test_programs_free_their_plans(case):
    gc.collect()
    before = _call.counts()["live"]
    compiled = jax.jit(lambda x: qj.ragged_dot(x, case.w, case.sizes)).lower(case.x).compile()
    assert _call.counts()["live"] == before + 1
    compiled(case.x).block_until_ready()
    del compiled
    gc.collect()
    jax.clear_caches()
    assert _call.counts()["live"] <= before


@pytest.mark.parametrize("recipe", ["bf16", "mxfp8"])
@pytest.mark.parametrize("kind", ["dot", "mlp", "moe"])
def test_vmap_of_vjp(case, recipe, kind):
    key = jax.random.key(5)
    x = jnp.nan_to_num(case.x)
    w1 = jax.random.normal(key, (4, case.k, 128), jnp.bfloat16) / 8
    w2 = jax.random.normal(key, (4, 64, case.k), jnp.bfloat16) / 8
    index = jax.random.randint(key, (len(x), 2), 0, 4)
    prob = jax.random.uniform(key, (len(x), 2))
    f = {"dot": lambda x: qj.ragged_dot(x, w1, case.sizes, recipe=recipe),
         "mlp": lambda x: qj.grouped_mlp(x, w1, w2, case.sizes, recipe=recipe),
         "moe": lambda x: qj.moe(x, index, prob, w1, w2, recipe=recipe)}[kind]
    y, back = jax.vjp(f, x)
    dys = jax.random.normal(key, (3, *y.shape), y.dtype)
    for found, dy in zip(jax.vmap(back)(dys)[0], dys):
        assert same(found[:case.tokens], back(dy)[0][:case.tokens])
    xs = jnp.stack([x, x * 2, x / 2])
    many = jax.vmap(lambda x: jax.vjp(f, x)[1])(xs)
    for i in range(3):
        wanted = jax.vjp(f, xs[i])[1](dys[i])[0][:case.tokens]
        assert same(jax.tree.map(lambda a: a[i], many)(dys[i])[0][:case.tokens], wanted)


@pytest.mark.parametrize("recipe", ["bf16", "fp8_block"])
def test_scan_and_remat(case, recipe):
    dot = functools.partial(qj.ragged_dot, recipe=recipe)
    w1 = jax.random.normal(jax.random.key(1), (3, 4, case.k, case.n), jnp.bfloat16) / 8
    w2 = jax.random.normal(jax.random.key(2), (3, 4, case.n, case.k), jnp.bfloat16) / 8
    x = jnp.nan_to_num(case.x)

    def block(h, ws):
        return dot(jax.nn.silu(dot(h, ws[0], case.sizes)), ws[1], case.sizes), None

    def loss(block, loop):
        def total(x, w1, w2):
            if loop:
                return (lax.scan(block, x, (w1, w2))[0].astype(jnp.float32)**2).sum()
            for i in range(3):
                x = block(x, (w1[i], w2[i]))[0]
            return (x.astype(jnp.float32)**2).sum()
        return jax.jit(jax.grad(total, (0, 1, 2)))

    expected = loss(block, False)(x, w1, w2)
    for policy in (None, jax.checkpoint_policies.save_only_these_names(*products.RESIDUALS)):
        found = loss(jax.checkpoint(block, policy=policy), True)(x, w1, w2)
        for a, b in zip(found, expected):
            assert same(a, b)


# The residuals of a recipe with scales are its quantized tensors, not x and w.
def test_residuals_are_quantized(case):
    def kept(recipe):
        dot = functools.partial(qj.ragged_dot, recipe=recipe)
        back = jax.vjp(lambda x, w: dot(x, w, case.sizes), case.x, case.w)[1]
        return [a for a in jax.tree.leaves(back) if isinstance(a, jax.Array)]

    assert {a.dtype.name for a in kept("bf16")} == {"bfloat16", "int32"}
    assert {a.dtype.name for a in kept("fp8_block")} == {"uint8", "int32"}


def test_a_policy_saves_the_quantized_tensors(case):
    f = functools.partial(qj.ragged_dot, recipe="fp8_block")
    policy = jax.checkpoint_policies.save_only_these_names(*products.RESIDUALS)
    loss = lambda policy: jax.jit(jax.grad(lambda x, w: f(jnp.sin(x), w, case.sizes).astype(
        jnp.float32).sum(), (0, 1))) if policy is None else jax.jit(jax.grad(jax.checkpoint(
            lambda x, w: f(jnp.sin(x), w, case.sizes).astype(jnp.float32).sum(), policy=policy),
            (0, 1)))
    x = jnp.nan_to_num(case.x)
    calls = lambda g: g.lower(x, case.w).compile().as_text().count('custom_call_target="quern"')
    everything = jax.checkpoint_policies.nothing_saveable
    assert calls(loss(policy)) <= calls(loss(everything))
    for a, b in zip(loss(policy)(x, case.w), loss(None)(x, case.w)):
        assert same(a, b)


def test_x64(case):
    with jax.enable_x64(True):
        sizes = jnp.array(case.lengths, jnp.int64)
        assert sizes.dtype == jnp.int64
        y, back = jax.vjp(lambda x, w: qj.ragged_dot(x, w, sizes, group_offset=jnp.array([0])),
                          case.x, case.w)
        assert_near(y, case.y())
        assert_near(back(case.dy)[1], case.dw())
        z = jax.vmap(qj.ragged_dot, (0, None, 0))(case.x[None], case.w, sizes[None])
        assert_near(z[0], case.y())
        q = qj.ragged_dot(case.x, case.w, sizes, recipe="nvfp4", key=jax.random.key(0))
        with pytest.raises(TypeError, match="lhs is float64"):
            qj.ragged_dot(case.x.astype(jnp.float64), case.w, sizes, recipe="fp8_block")
    assert same(q, qj.ragged_dot(case.x, case.w, case.sizes, recipe="nvfp4",
                                 key=jax.random.key(0)))


def test_donated_operands(case):
    f = jax.jit(lambda x, w: qj.ragged_dot(x, w, case.sizes).astype(x.dtype), donate_argnums=0)
    w = jnp.nan_to_num(case.w[:, :, :1]) * jnp.ones((1, 1, case.k), jnp.bfloat16)
    expected, x = np.asarray(f(case.x + 0, w)), case.x + 0
    assert same(f(x, w), expected)
    assert x.is_deleted()


EXPORT = """
import sys, numpy as np
sys.path[:0] = {paths!r}
import conftest, jax, jax.export, quern.jax
run = jax.export.deserialize(bytearray(open({file!r}, "rb").read())).call
x, w, sizes, y = (np.load({data!r} + name + ".npy") for name in ("x", "w", "sizes", "y"))
found = np.asarray(jax.jit(run)(x.astype("bfloat16"), w.astype("bfloat16"), sizes), np.float32)
assert (found == y).all()
"""


# Another process runs the program, which has never traced it.
def test_export(case, tmp_path):
    from jax import export
    dot = functools.partial(qj.ragged_dot, recipe="fp8_block")
    x = jnp.nan_to_num(case.x)
    exported = export.export(jax.jit(dot), disabled_checks=[
        export.DisabledSafetyCheck.custom_call("quern")])(x, case.w, case.sizes)
    file, data = str(tmp_path / "program"), str(tmp_path) + os.sep
    with open(file, "wb") as out:
        out.write(exported.serialize())
    for name, a in dict(x=x, w=case.w, sizes=case.sizes, y=dot(x, case.w, case.sizes)).items():
        np.save(data + name, np.asarray(a, np.int32 if name == "sizes" else np.float32))
    text = EXPORT.format(paths=[os.path.join(ROOT, "tests", "jax")], file=file, data=data)
    subprocess.run([sys.executable, "-c", "import ml_dtypes\n" + text], check=True)


def test_export_of_symbolic_sizes_is_refused(case):
    from jax import export
    m, k = export.symbolic_shape("m, k")
    x, sizes = jax.ShapeDtypeStruct((m, 64), jnp.bfloat16), case.sizes
    pairs = jax.ShapeDtypeStruct((m, 2), jnp.int32)
    for name, shape, function, given in (
            ("lhs", "m, 64", qj.ragged_dot, (x, case.w, sizes)),
            ("lhs", "48, k", qj.ragged_dot, (jax.ShapeDtypeStruct((48, k), jnp.bfloat16),
                                             case.w, sizes)),
            ("x", "m, 64", qj.grouped_dense, (x, case.w, sizes)),
            ("lhs", "m, 64", qj.grouped_gemm, (x, case.w)),
            ("indices", "m, 2", lambda i: qj.route(i, 4), (pairs,)),
            ("x", "m, 64", qj.permute, (x, pairs)),
            ("x", "m, 64", lambda x, s: qj.grouped_quantize(x, "fp8_block", s), (x, sizes))):
        with pytest.raises(NotImplementedError,
                           match=rf"{name} has the shape \[{shape}\]: integers are expected"):
            export.export(jax.jit(function))(*given)


def test_threads(case):
    f = jax.jit(functools.partial(qj.ragged_dot, recipe="fp8_block"))
    expected, wrong = np.asarray(f(case.x, case.w, case.sizes), np.float32), []

    def work():
        for _ in range(20):
            if not same(f(case.x, case.w, case.sizes), expected):
                wrong.append(1)

    threads = [threading.Thread(target=work) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_forward_mode_is_refused(case):
    with pytest.raises(TypeError, match="forward-mode|jvp"):
        jax.jvp(lambda x: qj.ragged_dot(x, case.w, case.sizes), (case.x,), (case.x,))


def test_own_specs():
    """In a process of its own: the library reads specs once."""
    folder = os.path.join(ROOT, "examples", "specs")
    text = f"""
import sys
sys.path[:0] = [{os.path.join(ROOT, 'tests', 'jax')!r}]
import conftest, jax.numpy as jnp, quern.jax as qj
qj.add_specs({folder!r})
case = conftest.Case([10, 0, 33, 5], n=48, k=64)
y = qj.ragged_dot(case.x, case.w, case.sizes, recipe="mxfp6")
conftest.assert_near_in_norm(y, case.y(), 0.06)
y = qj.ragged_dot(case.x, case.w, case.sizes, recipe="w4a16_mxfp4")
conftest.assert_near_in_norm(y, case.y(), 0.2)
"""
    subprocess.run([sys.executable, "-c", text], check=True)


@pytest.mark.parametrize("change, error, sentence", [
    (dict(lhs=jnp.zeros((55, 8), jnp.bfloat16)), ValueError, "64 columns of lhs are expected"),
    (dict(lhs=jnp.zeros((5, 5, 64), jnp.bfloat16)), ValueError, "lhs has 3 axes: 2 are expected"),
    (dict(lhs=jnp.zeros((55, 64))), NotImplementedError, "lhs is float32: .* need a recipe"),
    (dict(lhs=jnp.zeros((55, 64), jnp.int8)), TypeError,
     "lhs is int8: bfloat16, float16 or float32"),
    (dict(rhs=jnp.zeros((4, 64, 48), jnp.float16)), TypeError, "rhs is float16: bfloat16"),
    (dict(rhs="weights"), TypeError, "rhs is str: an array is expected"),
    (dict(group_sizes=jnp.zeros(3, jnp.int32)), ValueError, r"group_sizes has the shape \[3\]"),
    (dict(group_sizes=jnp.zeros(4)), TypeError, "group_sizes is float32: integers"),
    (dict(group_sizes=[True, 5, 2, 1]), TypeError, "a value of group_sizes is bool: an integer"),
    (dict(group_sizes=[2**70, 1, 1, 1]), ValueError, "group_sizes has integers beyond int32"),
    (dict(group_sizes=[]), ValueError, r"group_sizes has the shape \[0\]: \[4\] is expected"),
    (dict(group_offset=jnp.zeros(2, jnp.int32)), ValueError, "group_offset has the shape"),
    (dict(group_offset=-1), ValueError, "group_offset is -1: an integer from 0 to 0"),
    (dict(group_offset=1), ValueError, "group_offset is 1: an integer from 0 to 0"),
    (dict(lora_scaling="x"), TypeError, "lora_scaling is str: a number is expected"),
    (dict(lora_scaling=10**400), ValueError, "lora_scaling exceeds the range of float"),
    *[({name: None}, TypeError, f"{name} is NoneType: an array is expected")
      for name in ("lhs", "rhs", "group_sizes")],
    (dict(recipe="bf17"), Exception, "did you mean 'bf16'"),
    (dict(recipe=["bf16"]), TypeError, "recipe is list: a name such as 'bf16'"),
    *[(dict(recipe=recipe), ValueError, "recipe is '.*': a name such as 'bf16'")
      for recipe in ("bf16 d=f32", "bf16\0x", "\ud800")],
    (dict(recipe="nvfp4", key=3), TypeError, "key is int: a key of jax.random is expected"),
    (dict(recipe=8), TypeError, "recipe is int"),
    (dict(recipe="nvfp4"), ValueError, "key: recipe nvfp4 rounds at random"),
    (dict(recipe="fp8_tensor_delayed"), ValueError, "state: recipe fp8_tensor_delayed has delayed"),
    (dict(precision="highest"), NotImplementedError, "precision is highest"),
    (dict(preferred_element_type=jnp.int32), TypeError, "preferred_element_type is int32"),
    (dict(preferred_element_type="foo"), TypeError, "preferred_element_type is 'foo': bfloat16"),
    (dict(outside="keep"), ValueError, "outside is 'keep': None or 'zero' is"),
    (dict(out_sharding="x"), NotImplementedError, "out_sharding"),
])
def test_errors_while_tracing(case, change, error, sentence):
    given = dict(lhs=case.x, rhs=case.w, group_sizes=case.sizes) | change
    with pytest.raises(error, match=sentence):
        jax.eval_shape(functools.partial(qj.ragged_dot, **given))


# ------------------------------------------------------------------------------------- on a GPU


def chain(x, w, back, sizes):
    for _ in range(4):
        x = qj.ragged_dot(jax.nn.silu(qj.ragged_dot(x, w, sizes)), back, sizes)
    return x


@pytest.mark.gpu
def test_command_buffers_are_replayed():
    case = Case([100, 0, 60, 30, 200, 7, 1, 102], n=384, k=256, rows=512)
    x, w = jnp.nan_to_num(case.x), case.w / 16
    back = jnp.swapaxes(w, 1, 2)
    f, rng = jax.jit(lambda *a: chain(*a)), np.random.default_rng(0)
    plain = jax.jit(chain, compiler_options={"xla_gpu_enable_command_buffer": ""})
    f(x, w, back, case.sizes).block_until_ready()
    before = _call.counts()
    for i in range(1000):
        sizes = jnp.array(rng.multinomial(512, [1 / 8] * 8), jnp.int32)
        y = f(x, w, back, sizes)
        if i % 50 == 0:
            assert same(y, plain(x, w, back, sizes))
    after = _call.counts()
    assert after["captured"] > 0 and after["runs"] - before["runs"] < 8 * 1000
    assert f._cache_size() == 1


@pytest.mark.gpu
def test_no_copy_to_the_host(tmp_path):
    case = Case([10, 0, 33, 5], n=48, k=64)
    f = jax.jit(functools.partial(qj.ragged_dot, recipe="fp8_block"))
    f(case.x, case.w, case.sizes).block_until_ready()
    with jax.profiler.trace(str(tmp_path)):
        f(case.x, case.w, case.sizes).block_until_ready()
    from jax.profiler import ProfileData
    names = [event.name for file in tmp_path.rglob("*.xplane.pb")
             for plane in ProfileData.from_file(str(file)).planes if "GPU" in plane.name
             for line in plane.lines for event in line.events]
    assert names and not [name for name in names if "MemcpyD2H" in name]


@pytest.mark.gpu
def test_cpu_and_gpu_in_one_process(case):
    cpu = jax.devices("cpu")[0]
    there = [jax.device_put(np.asarray(a), cpu) for a in (case.x, case.w, case.sizes)]
    assert_near(jax.jit(qj.ragged_dot)(*there), case.y())
    assert_near(jax.jit(qj.ragged_dot)(case.x, case.w, case.sizes), case.y())
