# SPDX-License-Identifier: Apache-2.0
"""quern: grouped GEMM for mixture-of-experts models.

    import quern
    print(quern.why("fprop bf16 g=8 m=4096 n=2048 k=7168"))

quern.torch has the functions for PyTorch. A line says what to compute: docs/problem-line.md.
"""

import ctypes
import functools
import os
import re

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


class _OpenOptions(ctypes.Structure):  # struct quern_open_options
    _fields_ = [("size", _Z), ("registry", _P), ("specs", ctypes.POINTER(ctypes.c_char_p)),
                ("specs_count", _I), ("log_level", _I), ("cache", ctypes.c_char_p),
                ("tune", ctypes.c_char_p), ("log", _P), ("log_user", _P)]


class _TuneOptions(ctypes.Structure):  # struct quern_tune_options
    _fields_ = [("size", _Z), ("seconds", ctypes.c_double), ("device", _I), ("backend", _I),
                ("sms", _I), ("l2", _I), ("threads", _I), ("keep", _I), ("seed", ctypes.c_uint64),
                ("sizes", _P), ("args", _P), ("stream", _P), ("progress", _P), ("user", _P)]


class _TuneResult(ctypes.Structure):  # struct quern_tune_result
    _fields_ = [("kernel", ctypes.c_char_p), ("band", _I), ("dequantize", _I),
                ("seconds", ctypes.c_double), ("model", ctypes.c_char_p),
                ("model_seconds", ctypes.c_double), ("ratio", ctypes.c_double), ("certain", _I),
                ("rounds", _I), ("clock_mhz", _I), ("bytes", _Z), ("file", ctypes.c_char * 512),
                ("candidates", _P), ("count", _I)]


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
    """One array of a line: its name, type, shape and bytes as extents. Bits of read and written
    are 1 << phase: 0 forward, 1 backward, 2 wgrad, 3 weights."""

    def __init__(self, o):
        self.name, self.type = o.name.decode(), _TYPES[o.type]
        self.shape = [Extent(e) for e in o.shape[:o.ndim]]
        self.bytes, self.read, self.written = Extent(o.bytes), o.read, o.written


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
    c.quern_tune.argtypes = [_P, ctypes.c_char_p, _P, _P]
    return c


def _must(code):
    if code:
        raise Error(code, _library().quern_errmsg().decode(errors="replace"))


@functools.lru_cache(maxsize=None)
def _context():
    context = _P()
    folders = (ctypes.c_char_p * len(specs))(*map(os.fsencode, specs))
    options = _OpenOptions(size=ctypes.sizeof(_OpenOptions), specs=folders, specs_count=len(specs))
    _must(_library().quern_open_abi(ctypes.byref(options), ctypes.byref(context), _ABI, _ARGS_SIZE,
                                    ctypes.sizeof(_Operand)))
    return context


os.register_at_fork(after_in_child=_context.cache_clear)  # contexts do not survive fork()


specs = []  # folders with specs of one's own
_told = []  # functions that are told of each new one


def add_specs(folder):
    """Read a folder with specs of one's own, such as recipes, next to the library's. RuntimeError
    if the library is in use already: call it before everything else. Errors in the specs are
    raised by the first call that uses the library."""
    if not os.path.isdir(folder):
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


def version():
    return _library().quern_version().decode()


def why(line, backend="auto"):
    """Explain which kernel a line gets, and what excludes the others."""
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


def tune(line, seconds=20.0, backend="auto"):
    """Measure the kernels for a product on the current GPU for so many seconds, and remember the
    fastest for later plans: docs/tuning.md. A dict with its name, seconds, the time of the model's
    choice over its own, and the file that keeps it."""
    options = _TuneOptions(size=ctypes.sizeof(_TuneOptions), seconds=seconds, device=-1,
                           backend=_BACKENDS.index(backend))
    result = _TuneResult()
    _must(_library().quern_tune(_context(), line.encode(), ctypes.byref(options),
                                ctypes.byref(result)))
    _library().quern_free(result.candidates)
    return {"kernel": result.kernel.decode(), "seconds": result.seconds, "ratio": result.ratio,
            "certain": bool(result.certain), "file": os.fsdecode(result.file)}
