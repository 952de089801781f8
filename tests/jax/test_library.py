# SPDX-License-Identifier: Apache-2.0
"""The library and the package: what they need, and what others' code gets from one line."""

import os
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from conftest import DEVICE, ROOT, assert_near, same

import quern
import quern.jax as qj

# All that the library takes from others: the C library, the loader, and quern's API.
NEEDED = """__register_atfork calloc dlopen dlsym free memchr memcmp memcpy memset
pthread_mutex_destroy pthread_mutex_init pthread_mutex_lock pthread_mutex_unlock pthread_once
quern_check quern_describe
quern_errmsg quern_free quern_open_abi quern_plan_create quern_plan_destroy quern_plan_operands
quern_run strdup strlen strndup vsnprintf snprintf __stack_chk_fail""".split()
OFFERED = {"quern_jax_count", "quern_jax_specs", "quern_jax_type", "quern_jax_type_info",
           "quern_jax_instantiate_cpu", "quern_jax_execute_cpu", "quern_jax_instantiate_cuda",
           "quern_jax_initialize_cuda", "quern_jax_execute_cuda"}


def symbols(*options):
    text = subprocess.run(["nm", "-D", *options, quern.find("libquern_jax.so")], check=True,
                          capture_output=True, text=True).stdout
    return [line.split()[-2:] for line in text.splitlines()]


def test_it_is_built_without_jax():
    needed = {name.split("@")[0] for kind, name in symbols("--undefined-only") if kind == "U"}
    assert needed <= set(NEEDED)
    assert {name for _, name in symbols("--defined-only")} == OFFERED


@pytest.mark.parametrize("this, other", [("jax", "torch"), ("torch", "jax")])
def test_front_ends_do_not_import_each_other(this, other):
    folder = os.path.join(ROOT, "runtime", "python", "quern", this)
    for name in os.listdir(folder):
        if name.endswith(".py"):
            with open(os.path.join(folder, name)) as file:
                text = file.read()
            assert f"quern.{other}" not in text and f"import {other}" not in text


def test_numpy_alone_imports_quern():
    text = "import quern, sys; assert not {'jax', 'torch'} & set(sys.modules)"
    env = dict(os.environ, PYTHONPATH=os.path.join(ROOT, "runtime", "python"))
    subprocess.run([sys.executable, "-c", text], check=True, env=env)


FORK = """
import os, sys
sys.path[:0] = [{tests!r}]
import conftest, jax, numpy as np, quern, quern.jax as qj
case = conftest.Case([10, 0, 33, 5], n=48, k=64)
run = jax.jit(qj.ragged_dot).lower(case.x, case.w, case.sizes).compile()
expected = np.asarray(run(case.x, case.w, case.sizes), np.float32)
child = os.fork()
if not child:
    for _ in range(2):
        found = np.asarray(run(case.x, case.w, case.sizes), np.float32)
    os._exit(0 if (found == expected).all() and quern.why("fprop bf16 g=1 m=1 n=8 k=8") else 1)
assert os.waitpid(child, 0)[1] == 0
assert (np.asarray(run(case.x, case.w, case.sizes), np.float32) == expected).all()
"""


# jax has no threads to compile with in a child; programs that were compiled before run there.
@pytest.mark.skipif(DEVICE != "cpu", reason="CUDA does not survive fork()")
def test_a_child_of_fork_works():
    text = FORK.format(tests=os.path.join(ROOT, "tests", "jax"))
    subprocess.run([sys.executable, "-W", "ignore", "-c", text], check=True, timeout=120)


# XLA hands attributes over as they are in a program, which may come from anywhere.
@pytest.mark.parametrize("attributes, sentence", [
    (dict(line="fprop bf17 g=4 m=55 n=48 k=64"), "did you mean 'bf16'"),
    (dict(line="fprop bf16 g=4 m=55 n=48 k=65 layout=nn"), "a has not the type and shape"),
    (dict(operands="lengths a bb"), "'bb' is no operand of"),
    (dict(operands="lengths a a"), "'a' is named twice"),
    (dict(operands="a b"), "lengths"),
    (dict(operands="lengths a"), "1 operands|2 operands"),
    (dict(rows=np.int64(54)), "a has not the type and shape"),
    (dict(rows=np.int64(-1)), "a has not the type and shape"),
    (dict(line=np.int64(3)), "the attribute line is missing"),
])
def test_hostile_attributes(case, attributes, sentence):
    given = dict(line="fprop bf16 g=4 m=55 n=48 k=64 layout=nn", operands="lengths a b",
                 results="workspace d", rows=np.int64(55), phase=np.int64(0)) | attributes
    made = [jax.ShapeDtypeStruct((256,), jnp.uint8), jax.ShapeDtypeStruct((55, 48), jnp.bfloat16)]
    operands = [case.sizes, case.x, case.w]
    if attributes.get("operands") == "a b":
        operands = operands[1:]
    with pytest.raises(Exception, match="quern: .*(" + sentence + ")"):
        jax.block_until_ready(jax.jit(lambda *a: jax.ffi.ffi_call("quern", made)(*a, **given))(
            *operands))


def test_a_small_workspace_is_refused(case):
    made = [jax.ShapeDtypeStruct((8,), jnp.uint8), jax.ShapeDtypeStruct((55, 48), jnp.bfloat16)]
    with pytest.raises(Exception, match="quern: workspace has not the type and shape"):
        jax.block_until_ready(jax.ffi.ffi_call("quern", made)(
            case.sizes, case.x, case.w, line="fprop bf16 g=4 m=55 n=48 k=64 layout=nn",
            operands="lengths a b", results="workspace d", rows=np.int64(55), phase=np.int64(0)))


# ------------------------------------------------------------------------------ one-line switches


def maxtext(lhs, rhs, sizes):
    return jax.lax.ragged_dot(lhs=lhs, rhs=rhs, group_sizes=sizes,
                              preferred_element_type=jnp.bfloat16)


def test_maxtext(case):
    x, own = jnp.nan_to_num(case.x), lax.ragged_dot
    expected = maxtext(x, case.w, case.sizes)
    with qj.replace_ragged_dot(recipe="fp8_block"):
        found = maxtext(case.x, case.w, case.sizes)
        other = jax.lax.ragged_dot(x, case.w, case.sizes, "highest")
        assert same(found, qj.ragged_dot(case.x, case.w, case.sizes, recipe="fp8_block"))
        assert_near(other, expected)  # jax's own
    assert lax.ragged_dot is own and same(maxtext(x, case.w, case.sizes), expected)


@pytest.mark.parametrize("recipe, x, w, out", [
    (None, "int8", "int8", "int32"), (None, "float8_e4m3fn", "float8_e4m3fn", "bfloat16"),
    (None, "bfloat16", "float32", None), (None, "float32", "bfloat16", None),
    (None, "float32", "float32", None), (None, "bfloat16", "bfloat16", "int32"),
    ("w8a16_fp8_block", "float32", "bfloat16", None), ("fp8_block", "int8", "int8", None)])
def test_types_that_jax_serves(case, recipe, x, w, out):
    given = jnp.nan_to_num(case.x).astype(x), case.w.astype(w), case.sizes
    more = {} if out is None else dict(preferred_element_type=out)
    expected = lax.ragged_dot(*given, **more)
    with qj.replace_ragged_dot(recipe):
        found = lax.ragged_dot(*given, **more)
    assert found.dtype == expected.dtype and same(found, expected)


def test_packed_weights_in_float16(case):
    """The switch takes the recipe of the same weights for tokens in float16."""
    x, w = jnp.nan_to_num(case.x).astype(jnp.float16), case.w.astype(jnp.float16)
    with qj.replace_ragged_dot("w4a16_int4"):
        found = lax.ragged_dot(x, w, case.sizes)
    assert same(found, qj.ragged_dot(x, w, case.sizes, recipe="w4a16_int4_fp16"))
    assert not same(found, lax.ragged_dot(x, w, case.sizes))


def test_switches_are_undone_in_any_order():
    own = lax.ragged_dot
    first, second = qj.replace_ragged_dot(), qj.replace_ragged_dot("fp8_block")
    last = lax.ragged_dot
    first.undo()
    first.undo()  # does nothing
    assert lax.ragged_dot is last
    second.undo()
    assert lax.ragged_dot is own


# Tokamax tries each implementation in turn; one that raises NotImplementedError is passed over.
def tokamax(lhs, rhs, group_sizes, implementation, **more):
    dims = lax.RaggedDotDimensionNumbers((([1], [1]), ([], [])), [0], [0])
    for one in implementation:
        try:
            return one(lhs, rhs, group_sizes=group_sizes, ragged_dot_dimension_numbers=dims,
                       precision=lax.Precision.DEFAULT, group_offset=None, activation=None,
                       preferred_element_type=more.get("preferred_element_type"),
                       manual_axis_type=None)
        except NotImplementedError:
            pass
    return None


class GroupSizes:
    """As Tokamax's: sizes with others that stand for them when kernels are chosen."""

    def __init__(self, value):
        self.value = value

    def __jax_array__(self):
        return self.value


def test_tokamax(case):
    implementation = [qj.ragged_dot_general]
    found = tokamax(case.x, case.w, GroupSizes(case.sizes), implementation)
    assert same(found, qj.ragged_dot(case.x, case.w, case.sizes))
    wide = tokamax(case.x, case.w, case.sizes, implementation, preferred_element_type=jnp.float32)
    assert wide.dtype == jnp.float32
    assert tokamax(case.x.astype(jnp.float32), case.w.astype(jnp.float32), case.sizes,
                   implementation) is None


@pytest.mark.parametrize("is_aliased", [True, False])
def test_a_sum_in_place_or_in_another_buffer(case, is_aliased):
    """XLA may give an operand that is a result too another buffer, as it does with slices."""
    line = "wgrad bf16 d=f32 beta=1 g=4 m=64 n=48 k=55"
    added = jax.random.normal(jax.random.key(5), (3, 4, 64, 48))
    made = [jax.ShapeDtypeStruct((quern.describe(line)["workspace"].bytes.at(55),), jnp.uint8),
            jax.ShapeDtypeStruct((4, 64, 48), jnp.float32)]
    run = jax.ffi.ffi_call("quern", made, input_output_aliases={3: 1} if is_aliased else {})

    def total(added, sizes, x, dy):
        return run(sizes, x, dy, added[1], line=line, operands="lengths a b d",
                   results="workspace d", rows=np.int64(55), phase=np.int64(0))[1]

    assert_near(jax.jit(total)(added, case.sizes, case.x, case.dy), case.dw() + added[1], 0.01)
    assert_near(qj.wgrad(case.x, case.dy, case.sizes, accumulate=added[1]), case.dw() + added[1],
                0.01)
