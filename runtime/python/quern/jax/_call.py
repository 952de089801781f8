# SPDX-License-Identifier: Apache-2.0
"""XLA's custom call of quern: registered here, and called with operands by their names."""

import ctypes
import os

import jax
import numpy as np
from jax import lax

import quern

WORDS = {"bfloat16": "bf16", "float16": "f16", "float32": "f32"}
DTYPES = {word: np.dtype(jax.numpy.dtype(name)) for name, word in WORDS.items()}
DTYPES |= {word: np.dtype("int32") for word in ("i32", "f16_zero", "bf16_zero")}
TARGET = "quern"
LIMITS = ("limit", "slope", "shift")  # of clamped_swiglu
EVENTS = ("plans", "runs", "captured", "live")  # enum qn_site_event


def _load():
    c = ctypes.CDLL(quern.find("libquern_jax.so"))
    c.quern_jax_specs.argtypes, c.quern_jax_specs.restype = [ctypes.c_char_p], ctypes.c_char_p
    c.quern_jax_type.argtypes, c.quern_jax_type.restype = [ctypes.c_int], ctypes.c_void_p
    c.quern_jax_type_info.restype = ctypes.c_void_p
    return c


def _register(c):
    """For both platforms: XLA keeps a registration until its plugin is there."""
    capsule = jax.ffi.pycapsule
    for index, (platform, name) in enumerate((("cpu", "cpu"), ("CUDA", "cuda"))):
        jax.ffi.register_ffi_type(
            "quern_site", {"type_id": capsule(c.quern_jax_type(index)),
                           "type_info": capsule(c.quern_jax_type_info())}, platform=platform)
        stages = ("instantiate", "execute") if index == 0 else \
            ("instantiate", "initialize", "execute")
        jax.ffi.register_ffi_target(
            TARGET, {stage: capsule(getattr(c, f"quern_jax_{stage}_{name}")) for stage in stages},
            platform=platform)


def _add_specs(folder):
    error = _library.quern_jax_specs(os.fsencode(folder))
    if error:
        raise RuntimeError(error.decode())


if not hasattr(jax.ffi, "register_ffi_type"):
    raise ImportError(f"quern.jax: jax is {jax.__version__}; 0.9 or later is needed")
_library = _load()
_register(_library)
for _folder in quern.specs:
    _add_specs(_folder)
quern._told.append(_add_specs)


def counts():
    """Plans made, runs, runs captured in CUDA graphs and call sites alive, in this process."""
    numbers = (ctypes.c_int64 * len(EVENTS))()
    _library.quern_jax_count(numbers)
    return dict(zip(EVENTS, numbers))


# ----------------------------------------------------- the manual axes over which arrays vary


def axes_of(*arrays):
    """The axes of shard_map's mesh over which these vary, as its check_vma=True tracks them."""
    axes = frozenset()
    for array in arrays:
        kind = jax.typeof(array)
        manual = getattr(kind, "manual_axis_type", None)
        axes |= getattr(kind, "vma", frozenset()) if manual is None else manual.varying
    return axes


def vary(array, axes):
    """The array, as varying over these axes too; transposed, a sum over those that are new."""
    new = tuple(sorted(axes - axes_of(array), key=str))
    if not new:
        return array
    return lax.pcast(array, new, to="varying") if hasattr(lax, "pcast") else lax.pvary(array, new)


def vary_alike(arrays):
    """All arrays of a pytree varying over the axes of any of them."""
    leaves, tree = jax.tree.flatten(arrays)
    axes = axes_of(*leaves)
    return jax.tree.unflatten(tree, [vary(leaf, axes) for leaf in leaves])


# ------------------------------------------------------------------------------------- the call


def struct_of(operand, rows, is_flat=False):
    """Narrow types and padded rows are bytes, and all that are flat."""
    if not is_flat and operand.type in DTYPES and operand.shape and not operand.is_padded:
        return jax.ShapeDtypeStruct([e.at(rows) for e in operand.shape], DTYPES[operand.type])
    return jax.ShapeDtypeStruct([operand.bytes.at(rows)], np.uint8)


def _wide(name, array):
    """uint32 sizes and indices as int64, which jax has here only: an error has their values."""
    if name not in ("lengths", "index") or array.dtype != np.uint32:
        return array
    with jax.enable_x64(True):
        return array.astype(np.int64)


def call(line, rows, operands, results, phase=0, limits=(), flat=()):
    """Run a line on operands {name: array}; {name: array} of the results that are named.

        rows     of the line's ragged axis
        limits   of clamped_swiglu: limit, slope and shift
        flat     results that are bytes, whatever their type

    An operand that is a result too is written in place, if XLA may.
    """
    table = quern.describe(line)
    operands = {name: _wide(name, operands[name]) for name in table
                if operands.get(name) is not None}
    axes = axes_of(*operands.values())
    results = [name for name in table if name in results or name == "workspace"]
    made = [struct_of(table[name], rows, name in flat) for name in results]
    names = list(operands)
    arrays = jax.ffi.ffi_call(
        TARGET, made, vmap_method="sequential",
        input_output_aliases={names.index(name): results.index(name)
                              for name in names if name in results})(
        *(vary(array, axes) for array in operands.values()),
        line=line, operands=" ".join(names), results=" ".join(results), rows=np.int64(rows),
        phase=np.int64(phase), **{k: np.float32(v) for k, v in zip(LIMITS, limits)})
    return dict(zip(results, (vary(array, axes) for array in arrays)))
