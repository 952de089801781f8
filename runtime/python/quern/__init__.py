# SPDX-License-Identifier: Apache-2.0
"""quern: grouped GEMM for mixture-of-experts models.

    import quern
    print(quern.why("fprop bf16 g=8 m=4096 n=2048 k=7168"))

quern.torch has the functions for PyTorch. A line says what to compute: docs/problem-line.md.
"""

import ctypes
import functools
import os

from quern import abi
from quern.abi import Error, Extent

_BACKENDS = ("auto", "host", "jit", "aot", "cublaslt")  # QUERN_BACKENDS
_TYPES = ("", "bf16", "f16", "f32", "e4m3", "e5m2", "e2m3", "e3m2", "e2m1", "e8m0", "i8", "i32",
          "i64")  # QUERN_TYPES


class Operand:
    """What a line says of one array: its name, type, shape and bytes as extents."""

    def __init__(self, o):
        self.name, self.type = o.name.decode(), _TYPES[o.type]
        self.shape = [Extent.from_buffer_copy(e) for e in o.shape[:o.ndim]]
        self.bytes, self.written = Extent.from_buffer_copy(o.bytes), bool(o.written)


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
    return abi.Context(find("libquern.so"))


os.register_at_fork(after_in_child=_context.cache_clear)  # contexts do not survive fork()


def version():
    return _context().version()


def why(line, backend="auto"):
    """Explain which kernel a line gets, and what excludes the others."""
    return _context().why(line, abi.sized(abi.PlanOptions, device=-1,
                                          backend=_BACKENDS.index(backend)))


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
