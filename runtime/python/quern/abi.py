# SPDX-License-Identifier: Apache-2.0
"""The structures of runtime/quern.h through ctypes, and the library that takes them."""

import ctypes

ABI, ARGS = 4, 78  # QUERN_ABI, QUERN_ARGS_COUNT
AUTO, HOST, JIT = 0, 1, 2  # enum quern_backend
EINVAL, ENOKERNEL = 1, 3  # enum quern_status
FORWARD, BACKWARD, WGRAD, WEIGHTS = range(4)  # enum quern_phase

P, I, L, Z = ctypes.c_void_p, ctypes.c_int, ctypes.c_int64, ctypes.c_size_t
F, D, S = ctypes.c_float, ctypes.c_double, ctypes.c_char_p


class OpenOptions(ctypes.Structure):
    _fields_ = [("size", Z), ("registry", P), ("specs", P), ("specs_count", I), ("log_level", I),
                ("cache", S), ("tune", S), ("log", P), ("log_user", P)]


class PlanOptions(ctypes.Structure):
    _fields_ = [("size", Z), ("device", I), ("backend", I), ("sms", I), ("tune_ms", I),
                ("streams", I), ("kernel", S)]


class PlanInfo(ctypes.Structure):
    _fields_ = [("kernel", S), ("backend", I), ("sms", I), ("workspace_bytes", Z),
                ("microbatches", I), ("tuned", I), ("streams", I)]


class Extent(ctypes.Structure):
    _fields_ = [("base", L), ("step", L), ("add", L), ("unit", L)]

    def at(self, rows):
        """The value for so many rows, which may be symbolic."""
        if not self.step or not self.unit:
            return self.base
        steps = rows + self.add if self.unit == 1 else (rows + self.add) // self.unit
        return self.base + self.step * steps


class Operand(ctypes.Structure):
    _fields_ = [("arg", I), ("name", S), ("read", I), ("written", I), ("optional", I), ("type", I),
                ("ndim", I), ("shape", Extent * 4), ("pitch", Extent), ("bytes", Extent),
                ("alignment", Z), ("zero_bytes", Z), ("strided", I), ("pointers", I), ("tiled", I)]


class Buffer(ctypes.Structure):
    _fields_ = [("data", P), ("pointers", P), ("stride", L), ("group_stride", L), ("type", I)]


class Args(ctypes.Structure):
    _fields_ = [("size", Z), ("rows", L), ("phase", I), ("scalars", I), ("limit", F), ("slope", F),
                ("shift", F), ("host_sizes", P), ("of", Buffer * ARGS)]


class TuneOptions(ctypes.Structure):
    _fields_ = [("size", Z), ("seconds", D), ("device", I), ("backend", I), ("sms", I), ("l2", I),
                ("threads", I), ("keep", I), ("seed", ctypes.c_uint64), ("sizes", P), ("args", P),
                ("stream", P), ("progress", P), ("user", P)]


class TuneResult(ctypes.Structure):
    _fields_ = [("kernel", S), ("band", I), ("dequantize", I), ("seconds", D), ("model", S),
                ("model_seconds", D), ("ratio", D), ("certain", I), ("rounds", I), ("clock_mhz", I),
                ("bytes", Z), ("file", ctypes.c_char * 512), ("candidates", P), ("count", I)]


def sized(structure, **fields):
    """As the header's ..._INIT, if fields has all that is not 0 there."""
    return structure(size=ctypes.sizeof(structure), **fields)


CALLS = {
    "quern_open_abi": [P, P, I, Z, Z], "quern_close": [P], "quern_free": [P],
    "quern_plan_create": [P, S, P, P], "quern_plan_destroy": [P], "quern_plan_info": [P, P],
    "quern_plan_operands": [P, P], "quern_describe": [P, S, P, P], "quern_why": [P, S, P, P],
    "quern_tune": [P, S, P, P], "quern_run": [P, P, P], "quern_check": [P, P, P],
    "quern_queue_create": [P, I, P], "quern_queue_put": [P, P, P, I],
    "quern_queue_flush": [P, I, I, P], "quern_queue_destroy": [P],
}


class Error(RuntimeError):
    """A call failed: str() is the library's sentence, .code one of enum quern_status."""

    def __init__(self, code, sentence):
        super().__init__(sentence)
        self.code = code


class Context:
    """The library at a path, opened; quern_open_abi compares ABI and the sizes of two structures
    with the library's own, and refuses others."""

    def __init__(self, path, options=None):
        self.c = ctypes.CDLL(path)
        for name, types in CALLS.items():
            getattr(self.c, name).argtypes = types
        self.c.quern_errmsg.restype = self.c.quern_version.restype = S
        self.c.quern_plan_operands.restype = ctypes.POINTER(Operand)
        self.context = P()
        self.must(self.c.quern_open_abi(ctypes.byref(options) if options else None,
                                        ctypes.byref(self.context), ABI, ctypes.sizeof(Args),
                                        ctypes.sizeof(Operand)))

    def must(self, code):
        if code:
            raise Error(code, self.c.quern_errmsg().decode(errors="replace"))

    def version(self):
        return self.c.quern_version().decode()

    def why(self, line, options=None):
        text = P()
        self.must(self.c.quern_why(self.context, line.encode(),
                                   ctypes.byref(options) if options else None,
                                   ctypes.byref(text)))
        try:
            return ctypes.string_at(text).decode(errors="replace")
        finally:
            self.c.quern_free(text)
