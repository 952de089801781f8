# SPDX-License-Identifier: Apache-2.0
"""quern: grouped GEMM for mixture-of-experts models.

    import quern
    print(quern.why("fprop bf16 g=8 m=4096 n=2048 k=7168"))

quern.torch and quern.jax have the functions for PyTorch and JAX. A line describes a computation:
docs/problem-line.md.
"""

import ctypes
import functools
import os
import re

from quern import _checks, abi
from quern.abi import Error, Extent

_BACKENDS = ("auto", "host", "jit", "aot", "cublaslt")  # QUERN_BACKENDS
_TYPES = ("", "bf16", "f16", "f32", "e4m3", "e5m2", "e2m3", "e3m2", "e2m1", "e8m0", "i8", "i32",
          "i64", "i4", "u4", "u8", "f16_zero", "bf16_zero")  # QUERN_TYPES
# QUERN_ACTIVATIONS of two operands and of one, which tests/docs compares
GATED = ("swiglu", "clamped_swiglu", "situ", "geglu", "reglu")
PLAIN = ("squared_relu", "relu", "silu", "gelu", "gelu_tanh")


class Operand:
    """One array of a line: its name, type, shape and bytes as extents. Bits of read and written
    are 1 << phase: 0 forward, 1 backward, 2 wgrad, 3 weights."""

    def __init__(self, o):
        self.name, self.type = o.name.decode(), _TYPES[o.type]
        self.shape = [Extent.from_buffer_copy(e) for e in o.shape[:o.ndim]]
        self.bytes = Extent.from_buffer_copy(o.bytes)
        self.read, self.written = o.read, o.written
        # rows of one length that begin further apart
        self.is_padded = o.ndim > 1 and o.pitch.base > o.shape[o.ndim - 1].base


def find(name):
    """The path of a library of ours: in the package, or built in the checkout around it."""
    here = os.path.dirname(os.path.abspath(__file__))
    folders = [os.path.join(here, "lib"),
               os.path.join(here, "..", "..", "..", "build", "lib")]
    for folder in folders:
        path = os.path.normpath(os.path.join(folder, name))
        if os.path.exists(path):
            return path
    raise ImportError(f"quern: {name} is not in {' or '.join(map(os.path.normpath, folders))}: "
                      "build it with make")


@functools.lru_cache(maxsize=None)
def _context():
    folders = (ctypes.c_char_p * len(specs))(*map(os.fsencode, specs))
    return abi.Context(find("libquern.so.0"),  # COUPLED: soname
                       abi.sized(abi.OpenOptions, specs=ctypes.cast(folders, abi.P),
                                 specs_count=len(specs)))


os.register_at_fork(after_in_child=_context.cache_clear)  # contexts do not survive fork()


specs = []  # folders with specs of one's own
_told = []  # functions that are told of each new one


def add_specs(folder):
    """Read a folder with specs of one's own, such as recipes, next to the library's. RuntimeError
    if the library is in use already: call it before everything else. Errors in the specs are
    raised by the first call that uses the library."""
    if not os.path.isdir(_checks.path("folder", folder)):
        raise ValueError(f"folder: {folder} is no folder")
    if _context.cache_info().currsize:
        raise RuntimeError("add_specs: the library is in use already; call it right after import")
    for tell in _told:
        tell(os.path.abspath(folder))
    specs.append(os.path.abspath(folder))


def recipes():
    """The names of all recipes, one's own too."""
    try:
        describe("fprop ? g=1 m=1 n=8 k=8")
    except Error as error:
        return re.search("known: (.*)", str(error))[1].split(", ")


def _backend(word):
    if word not in _BACKENDS:
        raise ValueError(f"backend is {word!r}: one of {', '.join(_BACKENDS)} is expected")
    return _BACKENDS.index(word)


def version():
    return _context().version()


def why(line, backend="auto"):
    """Explain which kernel a line gets, and why the others do not fit."""
    _checks.line(line)
    return _context().why(line, abi.sized(abi.PlanOptions, device=-1, backend=_backend(backend)))


@functools.lru_cache(maxsize=1024)
def describe(line):
    """The operands of a line, {name: Operand}, in the library's order. Needs no GPU."""
    context, table, count = _context(), abi.P(), abi.I()
    context.must(context.c.quern_describe(context.context, line.encode(), ctypes.byref(table),
                                          ctypes.byref(count)))
    try:
        rows = ctypes.cast(table, ctypes.POINTER(abi.Operand))[:count.value]
        return {o.name: o for o in map(Operand, rows)}
    finally:
        context.c.quern_free(table)


def tune(line, seconds=20.0, backend="auto"):
    """Measure the kernels for a product on the current GPU for so many seconds, and remember the
    fastest for later plans: docs/tuning.md. A dict with its name, seconds, the time of the model's
    choice over its own, and the file that keeps it."""
    _checks.line(line)
    options = abi.sized(abi.TuneOptions, seconds=_checks.number("seconds", seconds), device=-1,
                        backend=_backend(backend))
    context, result = _context(), abi.TuneResult()
    context.must(context.c.quern_tune(context.context, line.encode(), ctypes.byref(options),
                                      ctypes.byref(result)))
    context.c.quern_free(result.candidates)
    return {"kernel": result.kernel.decode(), "seconds": result.seconds, "ratio": result.ratio,
            "certain": bool(result.certain), "file": os.fsdecode(result.file)}
