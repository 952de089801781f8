# SPDX-License-Identifier: Apache-2.0
"""libquern through ctypes: the structures of runtime/quern.h that callers fill, and one Plan for
lines of every kind.

    library = Library("build/lib/libquern.so")
    plan = Plan(library, "fprop bf16 g=8 m=4096 n=2048 k=7168")
    plan.bind(a=x, b=weights, d=y, lengths=tokens)  # addresses, on the device
    plan.bind_missing(zeros)                        # the workspace: address = zeros(bytes)
    plan.run(stream)

quern_open_abi compares ABI and the two sizes below with the library's own, and refuses others.
"""

import ctypes
import os

ABI, ARGS = 2, 64  # QUERN_ABI, QUERN_ARGS_COUNT
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
        return self.base + (self.step * ((rows + self.add) // self.unit) if self.unit else 0)


class OperandInfo(ctypes.Structure):
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
    "quern_plan_operands": [P, P], "quern_why": [P, S, P, P], "quern_tune": [P, S, P, P],
    "quern_run": [P, P, P], "quern_check": [P, P, P], "quern_queue_create": [P, I, P],
    "quern_queue_put": [P, P, P, I], "quern_queue_flush": [P, I, I, P], "quern_queue_destroy": [P],
}


class Failed(Exception):
    """A call returned a code other than QUERN_OK; str() is the library's sentence."""

    def __init__(self, code, text):
        super().__init__(text)
        self.code = code


class Library:
    """One context, which uses the model only unless `tune` names folders with measured winners.
    Close its plans first."""

    def __init__(self, path, tune="", specs=(), cache=None):
        if not os.path.exists(path):
            raise SystemExit(f"{path}: not there; build it with make")
        self.c = ctypes.CDLL(path)
        for name, types in CALLS.items():
            getattr(self.c, name).argtypes = types
        self.c.quern_errmsg.restype = self.c.quern_version.restype = S
        self.c.quern_plan_operands.restype = ctypes.POINTER(OperandInfo)
        folders = (S * len(specs))(*[folder.encode() for folder in specs])
        options = sized(OpenOptions, tune=tune.encode(), specs=ctypes.cast(folders, P),
                        specs_count=len(specs), cache=cache.encode() if cache else None)
        self.context = P()
        self.must(self.c.quern_open_abi(ctypes.byref(options), ctypes.byref(self.context), ABI,
                                        ctypes.sizeof(Args), ctypes.sizeof(OperandInfo)))

    def must(self, code):
        if code:
            raise Failed(code, self.c.quern_errmsg().decode(errors="replace"))

    def version(self):
        return self.c.quern_version().decode()

    def why(self, line):
        text = P()
        self.must(self.c.quern_why(self.context, line.encode(), None, ctypes.byref(text)))
        answer = ctypes.string_at(text).decode(errors="replace")
        self.c.quern_free(text)
        return answer

    def tune(self, line, sizes, seconds, seed=1):
        """Measure the product with groups of these sizes, and keep the winner."""
        result, lengths = TuneResult(), (L * len(sizes))(*sizes)
        options = sized(TuneOptions, seconds=seconds, device=-1, seed=seed,
                        sizes=ctypes.addressof(lengths))
        code = self.c.quern_tune(self.context, line.encode(), ctypes.byref(options),
                                 ctypes.byref(result))
        self.c.quern_free(result.candidates)
        self.must(code)
        return result

    def close(self):
        self.c.quern_close(self.context)


class Operand:
    """A row of a plan's table, with the lengths that `rows` rows need."""

    def __init__(self, info, rows):
        self.arg, self.name, self.type = info.arg, info.name.decode(), info.type
        self.shape = [info.shape[i].at(rows) for i in range(info.ndim)]
        self.bytes, self.zero_bytes = info.bytes.at(rows), info.zero_bytes
        self.written, self.needed = info.written, (info.read | info.written) & ~info.optional


class Plan:
    """A line made ready: a product, a quantization or an MLP. run() queues it on a stream."""

    def __init__(self, library, line, kernel=None, backend=JIT):
        self.library, self.plan, info, count = library, P(), PlanInfo(), I()
        options = sized(PlanOptions, device=-1, backend=backend,
                        kernel=kernel.encode() if kernel else None)
        library.must(library.c.quern_plan_create(library.context, line.encode(),
                                                 ctypes.byref(options), ctypes.byref(self.plan)))
        library.c.quern_plan_info(self.plan, ctypes.byref(info))
        self.kernel, self.tuned = info.kernel.decode(), info.tuned
        words = dict(word.split("=", 1) for word in line.split() if "=" in word)
        axis = words.get("ragged", "k" if line.startswith("wgrad ") else "m")
        self.rows = int(words.get(axis, 0))
        self.table = library.c.quern_plan_operands(self.plan, ctypes.byref(count))[:count.value]
        self.operands = self.operands_for(self.rows)
        self.unbind()

    def operands_for(self, rows):
        """By name, with the lengths of a run with so many rows."""
        return {o.name: o for o in (Operand(info, rows) for info in self.table)}

    def unbind(self):
        """Begin other arguments; those until now stay as they are."""
        self.args = sized(Args, rows=-1, limit=7, slope=1.702, shift=1)

    def buffer(self, name):
        """What is bound to the operand of this name, where '.' may be written '_'."""
        found = [o for o in self.operands if name in (o, o.replace(".", "_"))]
        return self.args.of[self.operands[found[0]].arg]

    def bind(self, **given):
        """Each an address, or address and stride; None: no such array."""
        for name, address in given.items():
            stride = 0
            if isinstance(address, tuple):
                address, stride = address
            buffer = self.buffer(name)
            buffer.data, buffer.pointers, buffer.stride = address, None, stride

    def bind_pointers(self, **given):
        """Each the address of an array with the matrices' addresses."""
        for name, address in given.items():
            self.bind(**{name: None})
            self.buffer(name).pointers = address

    def bind_missing(self, allocate):
        """All outputs, scratch memory and whatever else runs need and nobody bound: in memory of
        allocate(bytes), which returns the address of zeros."""
        for o in self.operands.values():
            bound = self.args.of[o.arg].data or self.args.of[o.arg].pointers
            if (o.written or o.needed) and not bound:
                self.args.of[o.arg].data = allocate(max(o.bytes, 1))

    def run(self, stream, phase=FORWARD, rows=-1):
        self.args.phase, self.args.rows = phase, rows
        self.library.must(self.library.c.quern_run(self.plan, ctypes.byref(self.args), stream))

    def check(self, stream):
        self.library.must(self.library.c.quern_check(self.plan, ctypes.byref(self.args), stream))

    def close(self):
        self.library.c.quern_plan_destroy(self.plan)
        self.plan = P()
