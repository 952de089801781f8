"""Casts of libquern through ctypes: the part of runtime/quern.h that begins with `quantize`."""

import ctypes

from libquern import I32, JIT, PlanInfo, PlanOptions, Tensor

ROW, COLUMN = 1, 2  # enum quern_copies


class Quantization(ctypes.Structure):
    _fields_ = [("recipe", ctypes.c_char * 32), ("work", ctypes.c_int), ("of", ctypes.c_int),
                ("type", ctypes.c_int), ("copies", ctypes.c_int), ("activation", ctypes.c_int),
                ("interleave", ctypes.c_int), ("probability", ctypes.c_int),
                ("dbias", ctypes.c_int), ("groups", ctypes.c_int), ("m", ctypes.c_int64),
                ("k", ctypes.c_int64), ("split", ctypes.c_char * 256)]


class Args(ctypes.Structure):
    _fields_ = [("in_", Tensor), ("saved", Tensor), ("row", Tensor), ("column", Tensor),
                ("out", Tensor), ("first_dims", ctypes.c_void_p), ("offsets", ctypes.c_void_p),
                ("sizes_type", ctypes.c_int), ("probability", ctypes.c_void_p),
                ("dbias", ctypes.c_void_p), ("scale", ctypes.c_void_p),
                ("history", ctypes.c_void_p), ("random", ctypes.c_void_p),
                ("limit", ctypes.c_float), ("slope", ctypes.c_float), ("shift", ctypes.c_float),
                ("workspace", ctypes.c_void_p)]


class Description(ctypes.Structure):
    _fields_ = [("args", Args), ("workspace_bytes", ctypes.c_size_t), ("history", ctypes.c_int),
                ("random", ctypes.c_int)]


class Cast:
    """A plan for one line; `args` takes the addresses."""

    def __init__(self, library, line):
        self.library = library
        self.what = Quantization()
        c = library.c
        library.must(c.quern_quantize_parse(library.context, line.encode(),
                                            ctypes.byref(self.what)))
        self.need = Description()
        library.must(c.quern_quantize_describe(library.context, ctypes.byref(self.what),
                                               ctypes.byref(self.need)))
        self.args = self.need.args
        self.args.sizes_type = I32
        self.plan = ctypes.c_void_p()
        options = PlanOptions(JIT, 0, None)
        library.must(c.quern_quantize_plan(library.context, ctypes.byref(self.what),
                                           ctypes.byref(options), ctypes.byref(self.plan)))
        c.quern_quantize_run.argtypes = [ctypes.c_void_p] * 3
        c.quern_quantize_check.argtypes = [ctypes.c_void_p] * 3
        info = PlanInfo()
        c.quern_quantize_plan_info(self.plan, ctypes.byref(info))
        self.kernel = info.kernel.decode()

    def run(self, stream):
        self.library.must(self.library.c.quern_quantize_run(self.plan, ctypes.byref(self.args),
                                                            stream))

    def check(self, stream):
        self.library.must(self.library.c.quern_quantize_check(self.plan, ctypes.byref(self.args),
                                                              stream))
