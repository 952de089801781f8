#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Every kernel of the grid on many problems: the data that the cost model is fitted to.

    python3 bench/grid.py --json FILE [--seed N] [--only RECIPE/OP,...] [--budget SECONDS]
                          [--every-split] [--list] [--commit HASH]

The problems are drawn from the seed only, so that every GPU measures the same ones as far as the
budget lasts: layers of bench/shapes.json and bench/layers.json, and others with 2 to 256 experts,
512 to 131,072 tokens, hidden sizes of 1k to 8k and ffn of 512 to 28k, a quarter of them with 1 to
64 rows for each expert. Splits are even, mild, skewed, or mild with an empty group. Every second
shape of a recipe and op is held out of fits, and those of layers.json always are. `accumulate` is
wgrad added to fp32, `wgrad32` the same without the sum, NAME+act one with swiglu. Recipes that may
dequantize before the product have these strategies among their candidates, as `dequantize=NAME`.

How it is timed: operands are in a few large pools of random values, at other offsets from call to
call until twice L2 was read, so that weights of a small problem are not in L2 either. Each
candidate is a CUDA graph of several calls; graphs are replayed in turn, shuffled in each round, for
the reason that bench/peers.py gives. One that takes 1.5 times as long as the best after a first
replay is measured no more, and one that the model expects to take three times as long is not
measured at all. bench/regret.py reads the file.
"""

import argparse
import ctypes
import json
import math
import os
import random
import re
import statistics
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import torch

import drawn
import libquern
import peers
from watch import Watch

HERE = os.path.dirname(os.path.abspath(__file__))
TYPES = ("", "bf16", "f16", "f32", "e4m3", "e5m2", "e2m3", "e3m2", "e2m1", "e8m0")  # QUERN_TYPES

STRATEGIES = ("pass", "f16")
HOPELESS = 3.0  # times the model's best
SLOW = 1.5      # times the fastest


# --------------------------------------------------------------- candidates

def kernels_of(text, problem):
    """Kernels that serve it and are not hopeless, without those that differ from another one only
    by scaling needlessly."""
    own = "quern_{}_{}_".format(problem["recipe"], problem["problem"].split()[0])
    found = {name: float(cycles) for name, cycles in
             re.findall(r"^(?:>|\s) (quern_\w+)\n\s+(\d+) cycles", text.split("\nexcluded")[0],
                        re.MULTILINE)
             if name.startswith(own)}
    least = min(found.values(), default=0)
    return [name for name, cycles in found.items()
            if cycles <= HOPELESS * least and
            (name.replace("_scale_", "_") == name or name.replace("_scale_", "_") not in found)]


def candidates_of(library, problem):
    """(name, line, kernel) of each."""
    line = problem["problem"]
    text = library.why(line)
    found = [(name, line, name) for name in kernels_of(text, problem)]
    if "\ndequantize=" in text:
        found += [(f"dequantize={way}", f"{line} dequantize={way}", None) for way in STRATEGIES]
    return found


def compile_ahead(library, chosen):
    """Into the cache, by all cores: a kernel serves all sizes."""
    def make(job):
        torch.zeros(1, device="cuda")  # the thread's context
        try:
            libquern.Plan(library, job[1], job[2]).close()
        except libquern.Failed as error:
            return f"{job[1]} {job[2]}: {str(error)[:200]}"
        return None

    jobs = {}
    for problem in chosen:
        for name, line, kernel in candidates_of(library, problem):
            jobs.setdefault(kernel or (problem["recipe"], problem["op"], name), (name, line, kernel))
    begin = time.monotonic()
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        for text in filter(None, pool.map(make, jobs.values())):
            print(f"# {text}")
    print(f"# {len(jobs)} kernels and strategies compiled in {time.monotonic() - begin:.1f} s",
          flush=True)


# -------------------------------------------------------------------- memory

class Pools:
    """Random values of each type, from which operands are cut in turn."""

    BLOCK = 1 << 28  # random bytes, repeated

    def __init__(self, scale):
        self.next = {}
        giga = 1 << 30
        sizes = {"bf16": 9, "f16": 9, "e4m3": 5, "e5m2": 5, "e2m1": 3, "out": 9, "f32": 1,
                 "e8m0": 1, "sf": 1}
        self.pool = {name: self.fill(name, int(size * giga * scale))
                     for name, size in sizes.items()}
        self.work = torch.zeros(int(8 * giga * scale), dtype=torch.uint8, device="cuda")

    def fill(self, name, size):
        """Narrow codes as a cast makes them, whose scales are 1."""
        block = min(size, self.BLOCK)
        if name in ("f32", "e8m0", "sf", "out"):
            kind, value = {"f32": (torch.float32, 1.0), "e8m0": (torch.uint8, 127),
                           "sf": (torch.uint8, 0x38), "out": (torch.uint8, 0)}[name]
            return torch.full((size // kind.itemsize,), value, dtype=kind, device="cuda")
        if name == "e2m1":
            one = torch.randint(0, 256, (block,), dtype=torch.uint8, device="cuda")
        else:
            kind, sigma = {"bf16": (torch.bfloat16, 1), "f16": (torch.float16, 1),
                           "e4m3": (torch.float8_e4m3fn, 100),
                           "e5m2": (torch.float8_e5m2, 100)}[name]
            one = torch.randn(block // kind.itemsize, device="cuda") * sigma
            one = one.clamp(-448, 448).to(kind).view(torch.uint8)
        return one.repeat(size // block)

    def take(self, name, count):
        """The address of so many bytes."""
        pool = self.pool[name]
        size = pool.numel() * pool.element_size()
        if count > size:
            raise ValueError(f"{count} bytes of {name} are more than its pool has")
        at = self.next.get(name, 0)
        if at + count > size:
            at = 0
        self.next[name] = (at + count + 4095) // 4096 * 4096
        return pool.data_ptr() + at


class Subject:
    """A problem's operands, as many times as two L2 have room for."""

    def __init__(self, problem, pools, l2_bytes):
        self.problem, self.pools = problem, pools
        self.sizes = torch.tensor(problem["rows"], device="cuda", dtype=torch.int32)
        self.sets, self.l2 = None, l2_bytes
        if "beta=1" in problem["problem"]:
            pools.pool["out"].zero_()

    def place(self, plan):
        """Addresses by operand, one dictionary for each set."""
        wanted = {}
        for o in plan.operands.values():
            if o.name in ("lengths", "starts", "ends", "workspace", "noop"):
                continue
            if not (o.written or o.needed):
                continue
            kind = TYPES[o.type]
            pool = ("out" if o.written else "sf" if o.name.endswith(".sf") and kind == "e4m3"
                    else kind)
            wanted[o.name] = (pool, max(o.bytes, 1))
        total = sum(count for _, count in wanted.values())
        count = max(1, min(16, math.ceil(2 * self.l2 / total)))
        self.bytes = total
        self.sets = [{name: self.pools.take(*each) for name, each in wanted.items()}
                     for _ in range(count)]

    def bind(self, plan, turn):
        if self.sets is None:
            self.place(plan)
        plan.bind(lengths=self.sizes.data_ptr(), **self.sets[turn % len(self.sets)])


# -------------------------------------------------------------------- timing

class Candidate:
    """A plan with a workspace of its own; a large one shares the rest of the memory with others, so
    that its zeros are made anew for each replay."""

    SMALL, MOST = 1 << 16, 64

    def __init__(self, library, subject, number, line, kernel):
        self.subject = subject
        self.plan = libquern.Plan(library, line, kernel)
        work, memory = self.plan.operands["workspace"], subject.pools.work
        shared = self.SMALL * self.MOST
        self.large = work.bytes > self.SMALL
        begin = shared if self.large else self.SMALL * number
        if begin + work.bytes > memory.numel():
            raise ValueError(f"{work.bytes} bytes of workspace")
        self.head = memory[begin:begin + max(work.zero_bytes, 16)]
        self.head.zero_()
        self.plan.bind(workspace=memory.data_ptr() + begin)
        self.graph, self.calls = None, 0

    def capture(self, calls, stream):
        self.calls = calls
        self.subject.bind(self.plan, 0)
        self.plan.run(stream.cuda_stream)
        self.graph = torch.cuda.CUDAGraph()
        self.graph.capture_begin(capture_error_mode="thread_local")
        for turn in range(calls):
            self.subject.bind(self.plan, turn)
            self.plan.run(stream.cuda_stream)
        self.graph.capture_end()

    def replay(self, events):
        if self.large:
            self.head.zero_()
        events[0].record()
        self.graph.replay()
        events[1].record()
        events[1].synchronize()
        return events[0].elapsed_time(events[1]) / self.calls

    def close(self):
        self.graph = None
        self.plan.close()


def calls_of(subject, seconds):
    line = subject.problem["problem"]
    words = dict(word.split("=", 1) for word in line.split() if "=" in word)
    flops = 2.0 * int(words["m"]) * int(words["n"]) * int(words["k"])
    one = max(flops / 600e12, subject.bytes / 3e12, 4e-6)
    return max(1, min(64, round(seconds / one)))


def start(library, subject, listed, options, stream, events):
    """Those that can run, with the time of a first replay: (name, candidate, [ms])."""
    for number, (name, line, kernel) in enumerate(listed):
        try:
            candidate = Candidate(library, subject, number, line, kernel)
            subject.bind(candidate.plan, 0)
        except (libquern.Failed, ValueError) as error:
            if kernel or isinstance(error, ValueError):
                print(f"# {line} {name}: {str(error)[:160]}")
            continue
        candidate.capture(calls_of(subject, options.replay), stream)
        yield name, candidate, [candidate.replay(events)]


def race(library, subject, listed, options, stream):
    """Median milliseconds of each candidate, or of its first replay where that was slow; and the
    kernels that strategies multiply by."""
    events = [torch.cuda.Event(enable_timing=True) for _ in range(2)]
    running = list(start(library, subject, listed, options, stream, events))
    times = {name: ms for name, _, ms in running}
    products = {name: candidate.plan.kernel for name, candidate, _ in running if "=" in name}
    best = min((ms[0] for ms in times.values()), default=0)
    racing = [each for each in running if each[2][0] <= SLOW * best]
    for turn in range(options.rounds):
        random.Random(turn).shuffle(racing)
        for _, candidate, ms in racing:
            ms.append(candidate.replay(events))
    for _, candidate, _ in running:
        candidate.close()
    return {name: statistics.median(each[1:] or each) for name, each in times.items()}, products


def measure(problem, library, pools, options, watch, stream):
    subject = Subject(problem, pools, torch.cuda.get_device_properties(0).L2_cache_size)
    begin = time.monotonic()
    ms, products = race(library, subject, candidates_of(library, problem), options, stream)
    load = watch.during([(begin, time.monotonic())])
    return {**{key: problem[key] for key in ("problem", "recipe", "op", "held", "split")},
            "products": products, "mhz": load["mhz"], "watts": load["watts"],
            "ms": {name: float(f"{value:.4g}") for name, value in ms.items()}}


def show(row):
    best = min(row["ms"], key=row["ms"].get)
    print(f"{row['ms'][best]:8.4f} ms {row['mhz'] or 0:5.0f} MHz {len(row['ms']):2d} "
          f"{row['problem']} {row['split']} {best}", flush=True)


# ---------------------------------------------------------------------- file

def attributes():
    """The driver's figures of the device, which the model takes."""
    driver, value, found = ctypes.CDLL("libcuda.so.1"), ctypes.c_int(), {}
    for name, number in (("sms", 16), ("khz", 13), ("memory_khz", 36), ("memory_bits", 37),
                         ("l2_bytes", 38)):
        code = driver.cuDeviceGetAttribute(ctypes.byref(value), number, 0)
        found[name] = value.value if code == 0 else None
    return found


def write(path, text):
    with open(path + ".new", "w") as file:
        file.write(text)
    os.replace(path + ".new", path)


def pack(machine, rows):
    """Kernels' names once; a row's are indexes."""
    names = sorted({name for row in rows for name in row["ms"]})
    at = {name: i for i, name in enumerate(names)}
    lines = [json.dumps({**row, "ms": {str(at[name]): ms for name, ms in row["ms"].items()}})
             for row in rows]
    kernels = ",\n  ".join(json.dumps(name) for name in names)
    return (f'{{"machine": {json.dumps(machine)},\n "kernels": [\n  {kernels}\n ],\n "rows": [\n  '
            + ",\n  ".join(lines) + "\n ]}\n")


def parser_of():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--only", default="", help="recipes or RECIPE/OP, by commas")
    parser.add_argument("--budget", type=float, default=240, help="seconds; the rest is left out")
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--replay", type=float, default=0.004, help="seconds of one graph replay")
    parser.add_argument("--pools", type=float, default=1, help="of the pools' 43 GB")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--every-split", action="store_true",
                        help="each problem with all splits, in place of one")
    parser.add_argument("--list", action="store_true", help="print the problems and end")
    parser.add_argument("--library", default=peers.LIBRARY)
    parser.add_argument("--commit", default=os.environ.get("QUERN_COMMIT", ""))
    parser.add_argument("--json", help="write the results here")
    parser.set_defaults(tune=False)  # winners would stand for the model
    return parser


def main(argv=None):
    options = parser_of().parse_args(argv)
    begin = time.monotonic()
    chosen = drawn.problems(options.seed, [word for word in options.only.split(",") if word])
    if options.every_split:
        chosen = [each for problem in chosen for each in drawn.every_split(problem)]
    if options.list:
        for problem in chosen:
            print("held" if problem["held"] else "fit ", problem["problem"], problem["split"])
        return 0
    if not torch.cuda.is_available():
        print("bench/grid.py needs an NVIDIA GPU and a PyTorch with CUDA", file=sys.stderr)
        return 3
    torch.manual_seed(options.seed)
    torch.zeros(1, device="cuda")  # makes the context that the library then uses
    library = libquern.Library(options.library)
    stream, rows = torch.cuda.Stream(), []
    torch.cuda.set_stream(stream)
    with Watch() as watch:
        machine = {**peers.machine(options, library, watch), **attributes(),
                   "copy": peers.copy_rate(watch)}
        compile_ahead(library, chosen)
        pools = Pools(options.pools)
        print(f"# ready after {time.monotonic() - begin:.1f} s, copy "
              f"{machine['copy']['gbytes']:.0f} GB/s", flush=True)
        for problem in chosen:
            if time.monotonic() - begin > options.budget:
                break
            row = measure(problem, library, pools, options, watch, stream)
            if row["ms"]:
                rows.append(row)
                show(row)
            if options.json and len(rows) % 50 == 0:
                write(options.json, pack(machine, rows))
    library.close()
    if options.json:
        write(options.json, pack(machine, rows))
    print(f"# {len(rows)} of {len(chosen)} problems in {time.monotonic() - begin:.1f} s")
    return 0 if rows else 1


if __name__ == "__main__":
    sys.exit(main())
