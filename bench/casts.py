#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Casts: quern and PyTorch's compiled functions, in one process, on one GPU.

    python3 bench/casts.py [--only GLOB] [--rounds N] [--json FILE] [--md FILE] [--commit HASH]

Each problem is captured into a CUDA graph; graphs are replayed in turn, in another order in each
round, and the figure is the median. Bytes are those that must be read and written at least once:
the input, the quantized tensors, their scales and dbias; recipes whose scales span more than a
block read their input twice, which counts once. `copy` is a plain copy of the same input. Data are
random normal values. Peers are torch.compile'd functions (or eager ones, where nothing can be
compiled), which know neither groups nor padding: they quantize the same rows as one matrix.
"""

import argparse
import ctypes
import fnmatch
import json
import os
import random
import statistics
import subprocess
import sys

import torch

import libquern
from peers import split

HERE = os.path.dirname(os.path.abspath(__file__))
LIBRARY = os.path.join(HERE, "..", "build", "lib", "libquern.so")

WIDE = "g=8 m=32768 k=7168 split=mild"
PROBLEMS = [
    f"quantize fp8_block of=dy {WIDE} dbias=1",
    f"quantize fp8_block of=dy {WIDE}",
    f"quantize fp8_block of=x {WIDE} copies=rowwise",
    f"quantize fp8_block of=x {WIDE} copies=columnwise",
    f"quantize fp8_block_any of=x {WIDE} copies=rowwise",
    f"quantize fp8_block_any of=x {WIDE}",
    f"quantize mxfp8 of=dy {WIDE} dbias=1",
    f"quantize mxfp8 of=x {WIDE}",
    f"quantize mxfp8 of=x {WIDE} copies=rowwise",
    f"quantize mxfp4 of=dy {WIDE} dbias=1",
    f"quantize fp8_row of=dy {WIDE} dbias=1",
    f"quantize fp8_row of=x {WIDE} copies=rowwise",
    f"quantize fp8_tensor of=dy {WIDE} dbias=1",
    f"quantize fp8_tensor_delayed of=dy {WIDE} dbias=1",
    f"quantize nvfp4 of=x {WIDE}",
    f"quantize nvfp4 of=dy {WIDE} dbias=1",
    "quantize fp8_block of=dy g=8 m=32768 k=4096 split=skew dbias=1",
    "quantize fp8_block of=dy g=128 m=65536 k=1536 split=mild dbias=1",
    "quantize fp8_block of=dy g=128 m=65536 k=2048 split=skew dbias=1",
    "quantize fp8_block of=x g=32 m=2048 k=7168 split=mild",
    "quantize fp8_block of=x g=8 m=32768 k=2048 split=mild activation=swiglu prob=1",
    "quantize fp8_block of=dy g=8 m=32768 k=4096 split=mild activation=swiglu prob=1 dbias=1",
    "quantize fp8_block of=w g=8 m=4096 k=7168",
    "quantize nvfp4 of=w g=8 m=4096 k=7168",
]


class Quern:
    """One line, with buffers of its own."""

    def __init__(self, library, line):
        self.line = line
        self.cast = libquern.Plan(library, line)
        words = dict(w.split("=") for w in line.split() if "=" in w)
        rows = split(int(words["g"]), int(words["m"]), words.get("split", "mild"), random.Random(1))
        ours = self.cast.operands
        self.keep, self.bytes = {}, 0
        for name, o in ours.items():
            size = o.bytes
            if name.startswith("columnwise") and "split" in words:  # its buffer is for any sizes
                size *= sum((n + 127) // 128 * 128 for n in rows) / ours["columnwise"].shape[1]
            if name in ("input", "pre", "prob", "dbias") or "wise" in name:
                self.bytes += size
            if name in ("input", "pre"):
                self.bind(name, torch.randn(*o.shape, dtype=torch.bfloat16, device="cuda"))
            elif name == "prob":
                self.bind(name, torch.rand(*o.shape, device="cuda"))
            elif name == "scale":
                self.bind(name, torch.ones(2, device="cuda"))
            elif name == "lengths":
                self.bind(name, torch.tensor(rows, dtype=torch.int32, device="cuda"))
            elif o.written or o.needed:
                self.bind(name, torch.zeros(o.bytes, dtype=torch.uint8, device="cuda"))

    def bind(self, name, tensor):
        self.keep[name] = tensor
        self.cast.bind(**{name: tensor.data_ptr()})

    def run(self):
        self.cast.run(ctypes.c_void_p(torch.cuda.current_stream().cuda_stream))


# ---------------------------------------------------------------------------------------- peers

E4M3 = torch.float8_e4m3fn


def to_fp8(x, amax):
    scale = torch.where(amax == 0, 1.0, 448.0 / amax)
    return (x * scale).to(E4M3), 1 / scale


def per_row(x):
    x = x.float()
    q, sf = to_fp8(x, x.abs().amax(1, keepdim=True))
    return q, sf


def blocks(x):
    m, k = x.shape
    x = x.float().view(m, k // 128, 128)
    q, sf = to_fp8(x, x.abs().amax(2, keepdim=True))
    return q.view(m, k), sf.view(m, k // 128)


def blocks_both(x):
    """The columnwise tensor from the high-precision input, transposed."""
    m, k = x.shape
    q, sf = blocks(x)
    y = x.float().view(m // 128, 128, k)
    c, csf = to_fp8(y, y.abs().amax(1, keepdim=True))
    return q, sf, c.view(m, k).t().contiguous(), csf.view(m // 128, k)


def blocks_both_sums(x):
    """And dbias, of all rows as one group."""
    return *blocks_both(x), x.float().sum(0)


def mx(x):
    m, k = x.shape
    x = x.float().view(m, k // 32, 32)
    v = x.abs().amax(2, keepdim=True) * (1 / 448)
    bits = v.view(torch.int32)
    e = (bits >> 23) + ((bits & 0x7FFFFF) > 0).int()
    q = (x * ((254 - e) << 23).view(torch.float32)).to(E4M3)
    return q.view(m, k), e.to(torch.uint8).view(m, k // 32)


PEERS = [  # function, its description, quern's line, index of quern's rowwise tensor
    (per_row, "fp8, a scale for each row", f"quantize fp8_row of=x {WIDE} copies=rowwise"),
    (blocks, "fp8, 1x128", f"quantize fp8_block_any of=x {WIDE} copies=rowwise"),
    (blocks_both, "fp8, 1x128, and transposed", f"quantize fp8_block_any of=x {WIDE}"),
    (blocks_both_sums, "fp8, 1x128, transposed, dbias",
     f"quantize fp8_block_any of=dy {WIDE} dbias=1"),
    (mx, "mxfp8", f"quantize mxfp8 of=x {WIDE} copies=rowwise"),
]


class Peer:
    """A function of torch's, compiled if that is possible, on quern's input."""

    def __init__(self, function, what, quern):
        self.what, self.input = what, quern.keep["input"]
        self.how = "compiled"
        self.function = torch.compile(function, dynamic=False)
        try:
            self.result = self.function(self.input)
        except Exception as error:  # no compiler there
            print(f"# torch.compile: {str(error).splitlines()[0][:200]}", file=sys.stderr)
            self.how, self.function = "eager", function
            self.result = function(self.input)
        codes = self.result[0].view(torch.uint8)
        ours = quern.keep["rowwise"][: codes.numel()].view_as(codes)
        quern.run()
        torch.cuda.synchronize()
        self.equal = (codes == ours).float().mean().item()

    def run(self):
        self.result = self.function(self.input)


# --------------------------------------------------------------------------------------- timing


def capture(candidate):
    for _ in range(2):
        candidate.run()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(4):
            candidate.run()
    return graph


def measure(candidates, rounds):
    """Milliseconds of each, the median over rounds in random order."""
    graphs = [capture(c) for c in candidates]
    times = [[] for _ in graphs]
    for _ in range(rounds):
        for i in random.sample(range(len(graphs)), len(graphs)):
            begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            begin.record()
            graphs[i].replay()
            end.record()
            end.synchronize()
            times[i].append(begin.elapsed_time(end) / 4)
    return [statistics.median(t) for t in times]


class Copy:
    def __init__(self):
        self.a = torch.randn(1 << 27, dtype=torch.bfloat16, device="cuda")
        self.b = torch.empty_like(self.a)
        self.bytes = 2 * 2 * self.a.numel()

    def run(self):
        self.b.copy_(self.a)


def write_table(path, root):
    with open(path, "w", encoding="utf-8") as out:
        out.write(f"| problem | ms | GB/s | of a copy's {root['copy_gbytes']:.0f} |\n")
        out.write("| --- | ---: | ---: | ---: |\n")
        for r in root["rows"]:
            share = r["gbytes"] / root["copy_gbytes"]
            out.write(f"| {r['problem']} | {r['ms']:.3f} | {r['gbytes']:.0f} | {share:.0%} |\n")
        if root["peers"]:
            out.write("\n| work | torch | its ms | quern's ms | ratio | equal bytes |\n")
            out.write("| --- | --- | ---: | ---: | ---: | ---: |\n")
        for p in root["peers"]:
            out.write(f"| {p['what']} | {p['how']} | {p['ms']:.3f} | {p['quern_ms']:.3f} | "
                      f"{p['ms'] / p['quern_ms']:.2f} | {p['equal']:.4%} |\n")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--only", default="*")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--no-peers", action="store_true")
    parser.add_argument("--json")
    parser.add_argument("--md")
    parser.add_argument("--commit", default="unknown")
    parser.add_argument("--library", default=LIBRARY)
    options = parser.parse_args()
    torch.manual_seed(1)
    library = libquern.Library(options.library)
    root = {"what": "bench/casts.py: casts compared with torch.compile", "commit": options.commit,
            "gpu": torch.cuda.get_device_name(), "cuda": torch.version.cuda,
            "torch": torch.__version__, "rows": [], "peers": []}
    root["driver"] = subprocess.run(
        ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"],
        capture_output=True, text=True, check=False).stdout.strip()
    for line in PROBLEMS:
        if not fnmatch.fnmatch(line, options.only):
            continue
        quern = Quern(library, line)
        ms, = measure([quern], options.rounds)
        quern.cast.check(None)
        row = {"problem": line, "kernel": quern.cast.kernel, "ms": ms,
               "gbytes": quern.bytes / ms / 1e6}
        print(f"{ms:8.3f} ms {row['gbytes']:7.0f} GB/s  {line}", flush=True)
        root["rows"].append(row)
        del quern
    copy = Copy()  # now that the clocks are up
    ms, = measure([copy], options.rounds)
    root["copy_gbytes"] = copy.bytes / ms / 1e6
    del copy
    for function, what, line in () if options.no_peers else PEERS:
        quern = Quern(library, line)
        peer = Peer(function, what, quern)
        theirs, ours = measure([peer, quern], options.rounds)
        row = {"what": what, "how": peer.how, "problem": line, "ms": theirs, "quern_ms": ours,
               "equal": peer.equal}
        print(f"{theirs:8.3f} ms torch {ours:8.3f} ms quern  {peer.equal:.4%}  {what}", flush=True)
        root["peers"].append(row)
        del quern, peer
    if options.json:
        with open(options.json, "w", encoding="utf-8") as out:
            json.dump(root, out, indent=1)
            out.write("\n")
    if options.md:
        write_table(options.md, root)


if __name__ == "__main__":
    main()
