# SPDX-License-Identifier: Apache-2.0
"""quern: grouped GEMM for mixture-of-experts models.

    import quern
    print(quern.why("fprop bf16 g=8 m=4096 n=2048 k=7168"))

quern.torch has the functions for PyTorch. A line describes a computation: docs/problem-line.md.
"""

import ctypes
import functools
import os

_ABI, _ARGS_SIZE = 2, 48 + 40 * 64  # QUERN_ABI; sizeof(struct quern_args)
_BACKENDS = ("auto", "host", "jit", "aot", "cublaslt")  # QUERN_BACKENDS
_TYPES = ("", "bf16", "f16", "f32", "e4m3", "e5m2", "e2m3", "e3m2", "e2m1", "e8m0", "i8", "i32",
          "i64")  # QUERN_TYPES

_P, _I, _L, _Z = ctypes.c_void_p, ctypes.c_int, ctypes.c_int64, ctypes.c_size_t


class Error(RuntimeError):
    """A call failed: str() is the library's sentence, .code one of enum quern_status."""

    def __init__(self, code, sentence):
        super().__init__(sentence)
        self.code = code


class _Extent(ctypes.Structure):  # struct quern_extent
    _fields_ = [("base", _L), ("step", _L), ("add", _L), ("unit", _L)]


class _Operand(ctypes.Structure):  # struct quern_operand
    _fields_ = [("arg", _I), ("name", ctypes.c_char_p), ("read", _I), ("written", _I),
                ("optional", _I), ("type", _I), ("ndim", _I), ("shape", _Extent * 4),
                ("pitch", _Extent), ("bytes", _Extent), ("alignment", _Z), ("zero_bytes", _Z),
                ("strided", _I), ("pointers", _I), ("tiled", _I)]


class _PlanOptions(ctypes.Structure):  # struct quern_plan_options
    _fields_ = [("size", _Z), ("device", _I), ("backend", _I), ("sms", _I), ("tune_ms", _I),
                ("streams", _I), ("kernel", ctypes.c_char_p)]


class Extent:
    """A length that may depend on the rows of a run, which may be symbolic."""

    def __init__(self, e):
        self.base, self.step, self.add, self.unit = e.base, e.step, e.add, e.unit

    def at(self, rows):
        if not self.step or not self.unit:
            return self.base
        steps = rows + self.add if self.unit == 1 else (rows + self.add) // self.unit
        return self.base + self.step * steps


class Operand:
    """The description of one array: its name, type, shape and bytes as extents."""

    def __init__(self, o):
        self.name, self.type = o.name.decode(), _TYPES[o.type]
        self.shape = [Extent(e) for e in o.shape[:o.ndim]]
        self.bytes, self.written = Extent(o.bytes), bool(o.written)


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
def _library():
    c = ctypes.CDLL(find("libquern.so"))
    c.quern_errmsg.restype = c.quern_version.restype = ctypes.c_char_p
    c.quern_free.argtypes = [_P]
    c.quern_open_abi.argtypes = [_P, _P, _I, _Z, _Z]
    c.quern_describe.argtypes = [_P, ctypes.c_char_p, _P, _P]
    c.quern_why.argtypes = [_P, ctypes.c_char_p, _P, _P]
    return c


def _must(code):
    if code:
        raise Error(code, _library().quern_errmsg().decode(errors="replace"))


@functools.lru_cache(maxsize=None)
def _context():
    context = _P()
    _must(_library().quern_open_abi(None, ctypes.byref(context), _ABI, _ARGS_SIZE,
                                    ctypes.sizeof(_Operand)))
    return context


os.register_at_fork(after_in_child=_context.cache_clear)  # contexts do not survive fork()


def version():
    return _library().quern_version().decode()


def why(line, backend="auto"):
    """Explain which kernel a line gets, and the reasons against the others."""
    options = _PlanOptions(size=ctypes.sizeof(_PlanOptions), device=-1,
                           backend=_BACKENDS.index(backend))
    text = _P()
    _must(_library().quern_why(_context(), line.encode(), ctypes.byref(options),
                               ctypes.byref(text)))
    try:
        return ctypes.string_at(text).decode(errors="replace")
    finally:
        _library().quern_free(text)


@functools.lru_cache(maxsize=1024)
def describe(line):
    """The operands of a line, {name: Operand}, in the library's order. Needs no GPU."""
    table, count = _P(), _I()
    _must(_library().quern_describe(_context(), line.encode(), ctypes.byref(table),
                                    ctypes.byref(count)))
    try:
        rows = ctypes.cast(table, ctypes.POINTER(_Operand))[:count.value]
        return {o.name: o for o in map(Operand, rows)}
    finally:
        _library().quern_free(table)
