# SPDX-License-Identifier: Apache-2.0
"""libquern's quantization, through ctypes. The structures are those of runtime/quern.h."""
import ctypes

import numpy as np

P, I, L, F = ctypes.c_void_p, ctypes.c_int, ctypes.c_int64, ctypes.c_float
HOST, I32 = 1, 11  # QUERN_BACKEND_HOST, QUERN_I32


class Tensor(ctypes.Structure):
    _fields_ = [("data", P), ("pointers", P), ("sf", P), ("first_dims", P), ("last_dims", P),
                ("offsets", P), ("sizes_type", I), ("type", I), ("ndim", I), ("shape", L * 4),
                ("stride", L), ("group_stride", L), ("bytes", L), ("alignment", L), ("outer", P),
                ("sf_bytes", L), ("outer_bytes", L)]


class Args(ctypes.Structure):
    _fields_ = [("input", Tensor), ("saved", Tensor), ("row", Tensor), ("column", Tensor),
                ("out", Tensor), ("first_dims", P), ("offsets", P), ("sizes_type", I),
                ("probability", P), ("bias", P), ("dbias", P), ("dprob", P), ("scale", P),
                ("history", P), ("random", P), ("noop", P), ("limit", F), ("slope", F), ("shift", F),
                ("workspace", P), ("host_sizes", P)]


class Description(ctypes.Structure):
    _fields_ = [("args", Args), ("workspace_bytes", L), ("history", I), ("random", I)]


class Quantization(ctypes.Structure):
    _fields_ = [("recipe", ctypes.c_char * 32), ("ints", I * 11), ("m", L), ("k", L),
                ("split", ctypes.c_char * 256)]


class PlanOptions(ctypes.Structure):
    _fields_ = [("backend", I), ("sms", I), ("kernel", ctypes.c_char_p),
                ("tune_ms", I)]


class OpenOptions(ctypes.Structure):
    _fields_ = [("registry", P), ("specs", P), ("specs_count", I), ("cache", ctypes.c_char_p),
                ("log", P), ("log_user", P), ("log_level", I),
                ("tune", ctypes.c_char_p)]


class Library:
    """An open context; every error is raised with the library's own text."""

    def __init__(self, path, specs, cache):
        self.lib = ctypes.CDLL(path)
        self.lib.quern_errmsg.restype = ctypes.c_char_p
        self.ctx = P()
        folders = (ctypes.c_char_p * len(specs))(*[s.encode() for s in specs])
        options = OpenOptions(specs=ctypes.cast(folders, P) if specs else None,
                              specs_count=len(specs), cache=cache.encode())
        self.call("quern_open", ctypes.byref(options), ctypes.byref(self.ctx))

    def call(self, name, *args):
        if getattr(self.lib, name)(*args):
            raise RuntimeError(f"{name}: {self.lib.quern_errmsg(self.ctx).decode()}")

    def close(self):
        self.lib.quern_close(self.ctx)

    def describe(self, text):
        """The parsed text, and its arguments without addresses."""
        quantization, need = Quantization(), Description()
        self.call("quern_quantize_parse", self.ctx, text.encode(), ctypes.byref(quantization))
        self.call("quern_quantize_describe", self.ctx, ctypes.byref(quantization),
                  ctypes.byref(need))
        return quantization, need

    def run(self, quantization, need, sizes):
        """`sizes` is None for weights. Addresses are those of the caller's arrays."""
        plan, args = P(), need.args
        work = np.zeros(max(need.workspace_bytes, 1), np.uint8)
        args.workspace = work.ctypes.data
        if sizes is not None:
            lengths = np.array(sizes, np.int32)
            args.first_dims, args.sizes_type = lengths.ctypes.data, I32
        options = PlanOptions(backend=HOST)
        self.call("quern_quantize_plan", self.ctx, ctypes.byref(quantization),
                  ctypes.byref(options), ctypes.byref(plan))
        try:
            self.call("quern_quantize_run", plan, ctypes.byref(args), None)
            self.call("quern_quantize_check", plan, ctypes.byref(args), None)
        finally:
            self.lib.quern_quantize_plan_free(plan)
