# SPDX-License-Identifier: Apache-2.0
"""libquern through ctypes: one Plan for lines of every kind. The structures of runtime/quern.h are
the Python package's, quern.abi.

    library = Library("build/lib/libquern.so")
    plan = Plan(library, "fprop bf16 g=8 m=4096 n=2048 k=7168")
    plan.bind(a=x, b=weights, d=y, lengths=tokens)  # addresses, on the device
    plan.bind_missing(zeros)                        # the workspace: address = zeros(bytes)
    plan.run(stream)
"""

import ctypes
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../runtime/python"))
from quern.abi import (AUTO, BACKWARD, EINVAL, ENOKERNEL, FORWARD, HOST, JIT, WEIGHTS, WGRAD, Args,
                       Context, Error as Failed, I, L, OpenOptions, P, PlanInfo, PlanOptions, S,
                       TuneOptions, TuneResult, sized)


class Library(Context):
    """One context, which uses the model only unless `tune` names folders with measured winners.
    Close its plans first."""

    def __init__(self, path, tune="", specs=(), cache=None):
        if not os.path.exists(path):
            raise SystemExit(f"{path}: not there; build it with make")
        folders = (S * len(specs))(*[folder.encode() for folder in specs])
        super().__init__(path, sized(
            OpenOptions, tune=tune.encode(), specs=ctypes.cast(folders, P),
            specs_count=len(specs), cache=cache.encode() if cache else None))

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
        """The buffer bound to the operand of this name, where '.' may be written '_'."""
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
        """All outputs, scratch memory and other operands of runs that no call bound: in memory of
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
