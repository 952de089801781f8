# SPDX-License-Identifier: Apache-2.0
"""libquern through ctypes, as far as the benchmark needs it: runtime/quern.h in Python.

Every structure here repeats one of that header. open_library() refuses a library whose description
of a known problem does not read back as it must, so that a change there is seen.
"""

import ctypes
import os

BF16, F32, I32 = 1, 3, 11  # enum quern_type
JIT = 2                    # enum quern_backend
EINVAL, ENOKERNEL = 1, 3   # enum quern_status
WGRAD = 2                  # enum quern_op


class Tensor(ctypes.Structure):
    _fields_ = [("data", ctypes.c_void_p), ("pointers", ctypes.c_void_p), ("sf", ctypes.c_void_p),
                ("first_dims", ctypes.c_void_p), ("last_dims", ctypes.c_void_p),
                ("offsets", ctypes.c_void_p), ("sizes_type", ctypes.c_int),
                ("type", ctypes.c_int), ("ndim", ctypes.c_int),
                ("shape", ctypes.c_int64 * 4), ("stride", ctypes.c_int64),
                ("group_stride", ctypes.c_int64),
                ("bytes", ctypes.c_size_t), ("alignment", ctypes.c_size_t),
                ("global_", ctypes.c_void_p), ("sf_bytes", ctypes.c_size_t),
                ("global_bytes", ctypes.c_size_t)]


class Args(ctypes.Structure):
    _fields_ = [("a", Tensor), ("b", Tensor), ("c", Tensor), ("d", Tensor), ("p", Tensor),
                ("t", Tensor), ("in_", Tensor), ("column", Tensor),
                ("bias", ctypes.c_void_p), ("probability", ctypes.c_void_p),
                ("dbias", ctypes.c_void_p), ("dprob", ctypes.c_void_p),
                ("limit", ctypes.c_float), ("slope", ctypes.c_float), ("shift", ctypes.c_float),
                ("alpha", ctypes.c_void_p), ("beta", ctypes.c_void_p), ("scalars", ctypes.c_int),
                ("scale", ctypes.c_void_p), ("history", ctypes.c_void_p),
                ("random", ctypes.c_void_p), ("noop", ctypes.c_void_p),
                ("workspace", ctypes.c_void_p), ("host_sizes", ctypes.c_void_p)]


class Problem(ctypes.Structure):
    _fields_ = [("recipe", ctypes.c_char * 32), ("op", ctypes.c_int), ("ragged", ctypes.c_int),
                ("a_major", ctypes.c_int), ("b_major", ctypes.c_int), ("d_type", ctypes.c_int),
                ("alpha", ctypes.c_int), ("beta", ctypes.c_int),
                ("alignment", ctypes.c_int), ("pointers", ctypes.c_int),
                ("microbatches", ctypes.c_int), ("sizes", ctypes.c_int), ("bias", ctypes.c_int),
                ("activation", ctypes.c_int), ("interleave", ctypes.c_int),
                ("probability", ctypes.c_int), ("saved", ctypes.c_int), ("dbias", ctypes.c_int),
                ("dprob", ctypes.c_int), ("copies", ctypes.c_int),
                ("dequantize", ctypes.c_int), ("quantize", ctypes.c_int), ("groups", ctypes.c_int),
                ("m", ctypes.c_int64), ("n", ctypes.c_int64), ("k", ctypes.c_int64),
                ("split", ctypes.c_char * 256)]


class Description(ctypes.Structure):
    _fields_ = [("args", Args), ("workspace_bytes", ctypes.c_size_t),
                ("history", ctypes.c_int), ("random", ctypes.c_int)]


class Quantization(ctypes.Structure):
    _fields_ = [("recipe", ctypes.c_char * 32), ("work", ctypes.c_int), ("of", ctypes.c_int),
                ("type", ctypes.c_int), ("copies", ctypes.c_int), ("activation", ctypes.c_int),
                ("interleave", ctypes.c_int), ("probability", ctypes.c_int),
                ("dbias", ctypes.c_int), ("dprob", ctypes.c_int), ("sizes", ctypes.c_int),
                ("groups", ctypes.c_int), ("m", ctypes.c_int64), ("k", ctypes.c_int64), ("split", ctypes.c_char * 256)]


class QuantizeArgs(ctypes.Structure):
    _fields_ = [("in_", Tensor), ("saved", Tensor), ("row", Tensor), ("column", Tensor),
                ("out", Tensor), ("first_dims", ctypes.c_void_p), ("offsets", ctypes.c_void_p),
                ("sizes_type", ctypes.c_int), ("probability", ctypes.c_void_p),
                ("bias", ctypes.c_void_p), ("dbias", ctypes.c_void_p), ("dprob", ctypes.c_void_p),
                ("scale", ctypes.c_void_p), ("history", ctypes.c_void_p),
                ("random", ctypes.c_void_p), ("noop", ctypes.c_void_p), ("limit", ctypes.c_float),
                ("slope", ctypes.c_float), ("shift", ctypes.c_float),
                ("workspace", ctypes.c_void_p), ("host_sizes", ctypes.c_void_p)]


class QuantizeDescription(ctypes.Structure):
    _fields_ = [("args", QuantizeArgs), ("workspace_bytes", ctypes.c_size_t),
                ("history", ctypes.c_int), ("random", ctypes.c_int)]


class OpenOptions(ctypes.Structure):
    _fields_ = [("registry", ctypes.c_void_p), ("specs", ctypes.c_void_p),
                ("specs_count", ctypes.c_int), ("cache", ctypes.c_char_p),
                ("log", ctypes.c_void_p), ("log_user", ctypes.c_void_p),
                ("log_level", ctypes.c_int), ("tune", ctypes.c_char_p)]


class Mlp(ctypes.Structure):
    _fields_ = [("recipe", ctypes.c_char * 32), ("type", ctypes.c_int), ("dw_type", ctypes.c_int),
                ("dw_beta", ctypes.c_int), ("activation", ctypes.c_int),
                ("interleave", ctypes.c_int), ("probability", ctypes.c_int),
                ("bias", ctypes.c_int), ("recompute", ctypes.c_int),
                ("microbatches", ctypes.c_int), ("sizes", ctypes.c_int), ("groups", ctypes.c_int),
                ("m", ctypes.c_int64), ("hidden", ctypes.c_int64), ("ffn", ctypes.c_int64), ("split", ctypes.c_char * 256)]


class MlpArgs(ctypes.Structure):
    _fields_ = ([(name, Tensor) for name in ("x", "y", "dy", "dx", "w1", "w2", "w1_row", "w1_column",
                                             "w2_row", "w2_column", "dw1", "dw2")] +
                [("first_dims", ctypes.c_void_p), ("offsets", ctypes.c_void_p),
                 ("sizes_type", ctypes.c_int)] +
                [(name, ctypes.c_void_p) for name in ("probability", "dprob", "b1", "b2", "db1",
                                                      "db2", "scale", "history", "random")] +
                [(name, ctypes.c_float) for name in ("limit", "slope", "shift")] +
                [("saved", ctypes.c_void_p), ("workspace", ctypes.c_void_p),
                 ("host_sizes", ctypes.c_void_p)])


class MlpDescription(ctypes.Structure):
    _fields_ = [("args", MlpArgs), ("saved_bytes", ctypes.c_size_t),
                ("workspace_bytes", ctypes.c_size_t), ("history", ctypes.c_int),
                ("random", ctypes.c_int)]


class PlanOptions(ctypes.Structure):
    _fields_ = [("backend", ctypes.c_int), ("sms", ctypes.c_int), ("kernel", ctypes.c_char_p),
                ("tune_ms", ctypes.c_int), ("streams", ctypes.c_int)]


class PlanInfo(ctypes.Structure):
    _fields_ = [("kernel", ctypes.c_char_p), ("backend", ctypes.c_int), ("sms", ctypes.c_int),
                ("workspace_bytes", ctypes.c_size_t), ("microbatches", ctypes.c_int),
                ("tuned", ctypes.c_int), ("streams", ctypes.c_int)]


class TuneOptions(ctypes.Structure):
    _fields_ = [("seconds", ctypes.c_double), ("backend", ctypes.c_int), ("sms", ctypes.c_int),
                ("l2", ctypes.c_int), ("threads", ctypes.c_int), ("keep", ctypes.c_int),
                ("seed", ctypes.c_uint64), ("sizes", ctypes.c_void_p), ("args", ctypes.c_void_p),
                ("stream", ctypes.c_void_p), ("progress", ctypes.c_void_p),
                ("user", ctypes.c_void_p)]


class TuneResult(ctypes.Structure):
    _fields_ = [("kernel", ctypes.c_char_p), ("band", ctypes.c_int), ("dequantize", ctypes.c_int),
                ("seconds", ctypes.c_double), ("model", ctypes.c_char_p),
                ("model_seconds", ctypes.c_double), ("ratio", ctypes.c_double),
                ("certain", ctypes.c_int), ("rounds", ctypes.c_int), ("clock_mhz", ctypes.c_int),
                ("bytes", ctypes.c_size_t), ("file", ctypes.c_char * 512),
                ("candidates", ctypes.c_void_p), ("count", ctypes.c_int)]


class Failed(Exception):
    """A call returned a code other than QUERN_OK; str() is the library's sentence."""

    def __init__(self, code, text):
        super().__init__(text)
        self.code = code


class Library:
    """One context, with only the model unless `tune` names folders with measured winners. Plans
    keep it alive."""

    def __init__(self, path, tune=""):
        self.c = ctypes.CDLL(path)
        self.c.quern_errmsg.restype = ctypes.c_char_p
        self.c.quern_version.restype = ctypes.c_char_p
        self.c.quern_free.argtypes = [ctypes.c_void_p]
        self.c.quern_plan_free.argtypes = [ctypes.c_void_p]
        self.c.quern_plan_info.argtypes = [ctypes.c_void_p, ctypes.c_void_p]
        self.c.quern_run.argtypes = [ctypes.c_void_p] * 3
        self.c.quern_check.argtypes = [ctypes.c_void_p] * 3
        self.c.quern_quantize_plan_free.argtypes = [ctypes.c_void_p]
        self.c.quern_quantize_run.argtypes = [ctypes.c_void_p] * 3
        self.c.quern_quantize_check.argtypes = [ctypes.c_void_p] * 3
        self.c.quern_mlp_plan_free.argtypes = [ctypes.c_void_p]
        for call in ("weights", "forward", "backward", "wgrad", "check"):
            getattr(self.c, "quern_mlp_" + call).argtypes = [ctypes.c_void_p] * 3
        self.context = ctypes.c_void_p()
        options = OpenOptions(tune=tune.encode())
        self.must(self.c.quern_open(ctypes.byref(options), ctypes.byref(self.context)))

    def must(self, code):
        if code:
            text = self.c.quern_errmsg(self.context)
            raise Failed(code, text.decode(errors="replace"))

    def version(self):
        return self.c.quern_version().decode()

    def parse(self, line):
        problem = Problem()
        self.must(self.c.quern_problem_parse(self.context, line.encode(), ctypes.byref(problem)))
        return problem

    def describe(self, problem):
        need = Description()
        self.must(self.c.quern_describe(self.context, ctypes.byref(problem), ctypes.byref(need)))
        return need

    def quantization(self, line):
        """The quantization of a line of text, and its needs."""
        quantization, need = Quantization(), QuantizeDescription()
        self.must(self.c.quern_quantize_parse(self.context, line.encode(),
                                              ctypes.byref(quantization)))
        self.must(self.c.quern_quantize_describe(self.context, ctypes.byref(quantization),
                                                 ctypes.byref(need)))
        return quantization, need

    def tune(self, line, sizes, seconds, seed=1):
        """Measure the problem with groups of these sizes, and keep the winner."""
        problem, result = self.parse(line), TuneResult()
        lengths = (ctypes.c_int64 * len(sizes))(*sizes)
        options = TuneOptions(seconds=seconds, seed=seed, sizes=ctypes.addressof(lengths))
        code = self.c.quern_tune(self.context, ctypes.byref(problem), ctypes.byref(options),
                                 ctypes.byref(result))
        self.c.quern_free(result.candidates)
        self.must(code)
        return result

    def mlp(self, line):
        """The MLP of a line of text, and its needs."""
        mlp, need = Mlp(), MlpDescription()
        self.must(self.c.quern_mlp_parse(self.context, line.encode(), ctypes.byref(mlp)))
        self.must(self.c.quern_mlp_describe(self.context, ctypes.byref(mlp), ctypes.byref(need)))
        return mlp, need

    def why(self, problem):
        text = ctypes.c_void_p()
        self.must(self.c.quern_why(self.context, ctypes.byref(problem), None, ctypes.byref(text)))
        answer = ctypes.string_at(text).decode(errors="replace")
        self.c.quern_free(text)
        return answer


class Plan:
    """One kernel for one problem; run() queues it on a stream."""

    def __init__(self, library, line, kernel=None):
        self.library = library
        self.problem = library.parse(line)
        self.need = library.describe(self.problem)
        self.args = self.need.args
        self.plan = ctypes.c_void_p()
        options = PlanOptions(JIT, 0, kernel.encode() if kernel else None, 0)
        library.must(library.c.quern_plan(library.context, ctypes.byref(self.problem),
                                          ctypes.byref(options), ctypes.byref(self.plan)))
        info = PlanInfo()
        library.c.quern_plan_info(self.plan, ctypes.byref(info))
        self.kernel, self.tuned = info.kernel.decode(), info.tuned

    def bind(self, a, b, d, first_dims, workspace):
        """Device addresses; first_dims are int32."""
        self.args.a.data, self.args.b.data, self.args.d.data = a, b, d
        self.args.a.first_dims = first_dims
        self.args.a.sizes_type = I32
        self.args.workspace = workspace

    def bind_copies(self, a, b, d, sizes, workspace):
        """The same of quantized copies: a and b are (data, sf, global) each."""
        for tensor, copy in ((self.args.a, a), (self.args.b, b)):
            tensor.data, tensor.sf, tensor.global_ = copy
        self.args.d.data = d
        if self.problem.op == WGRAD:
            self.args.a.last_dims = sizes
        else:
            self.args.a.first_dims = sizes
        self.args.a.sizes_type = I32
        self.args.workspace = workspace

    def run(self, stream):
        self.library.must(self.library.c.quern_run(self.plan, ctypes.byref(self.args), stream))

    def check(self, stream):
        self.library.must(self.library.c.quern_check(self.plan, ctypes.byref(self.args), stream))

    def close(self):
        self.library.c.quern_plan_free(self.plan)
        self.plan = ctypes.c_void_p()


class QuantizePlan:
    """One quantization; the caller fills `args` with device addresses. run() queues it."""

    def __init__(self, library, line):
        self.library = library
        self.quantization, self.need = library.quantization(line)
        self.args = self.need.args
        self.args.sizes_type = I32
        self.plan = ctypes.c_void_p()
        options, info = PlanOptions(JIT, 0, None, 0), PlanInfo()
        library.must(library.c.quern_quantize_plan(
            library.context, ctypes.byref(self.quantization), ctypes.byref(options),
            ctypes.byref(self.plan)))
        library.c.quern_quantize_plan_info(self.plan, ctypes.byref(info))
        self.kernel = info.kernel.decode()

    def run(self, stream):
        self.library.must(self.library.c.quern_quantize_run(self.plan, ctypes.byref(self.args),
                                                            stream))

    def check(self, stream):
        self.library.must(self.library.c.quern_quantize_check(self.plan, ctypes.byref(self.args),
                                                              stream))

    def close(self):
        self.library.c.quern_quantize_plan_free(self.plan)
        self.plan = ctypes.c_void_p()


class MlpPlan:
    """A grouped MLP; the caller fills `args` with device addresses. Calls are queued."""

    def __init__(self, library, line):
        self.library = library
        self.mlp, self.need = library.mlp(line)
        self.args = self.need.args
        self.args.sizes_type = I32
        self.plan = ctypes.c_void_p()
        options = PlanOptions(JIT, 0, None)
        library.must(library.c.quern_mlp_plan(library.context, ctypes.byref(self.mlp),
                                              ctypes.byref(options), ctypes.byref(self.plan)))

    def call(self, name, stream):
        """weights, forward, backward, wgrad or check."""
        run = getattr(self.library.c, "quern_mlp_" + name)
        self.library.must(run(self.plan, ctypes.byref(self.args), stream))

    def close(self):
        self.library.c.quern_mlp_plan_free(self.plan)
        self.plan = ctypes.c_void_p()


def open_library(path):
    """The library, or an error if its structures are not those above."""
    if not os.path.exists(path):
        raise SystemExit(f"{path}: not there; build it with make")
    library = Library(path)
    need = library.describe(library.parse("fprop bf16 g=3 m=40 n=24 k=16 d=f32"))
    a, b, d = need.args.a, need.args.b, need.args.d
    seen = (a.type, b.type, d.type, list(a.shape)[:2], list(b.shape)[:3], list(d.shape)[:2],
            a.bytes, d.bytes)
    expected = (BF16, BF16, F32, [40, 16], [3, 24, 16], [40, 24], 40 * 16 * 2, 40 * 24 * 4)
    _, need = library.quantization("quantize fp8_block of=x g=3 m=40 k=16")
    seen += (list(need.args.column.shape)[:2], need.args.column.sf_bytes, need.args.limit,
             need.workspace_bytes)
    expected += ([16, 384], 3 * 16 * 4, 7.0, 256)
    _, need = library.mlp("mlp fp8_block g=3 m=40 hidden=16 ffn=8")
    seen += (list(need.args.w1_column.shape)[:3], need.args.dw2.bytes, need.args.shift, need.random)
    expected += ([3, 16, 16], 3 * 16 * 8 * 2, 1.0, 0)
    if seen != expected:
        raise SystemExit(f"{path}: quern.h has changed, bench/libquern.py has not: {seen}")
    return library
