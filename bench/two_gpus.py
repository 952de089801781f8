#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Outputs in the memory of another GPU: GPU 0 computes, and writes where GPU 1 reads.

    python3 bench/two_gpus.py [--only 'wgrad*'] [--json FILE] [--commit HASH]

Peer access is enabled, nothing else: addresses of GPU 1's memory are given to quern as they are, no
NCCL and no multicast. Each case runs twice on GPU 0, into its own memory and into GPU 1's, both
filled alike before. Then GPU 1 compares all bytes of both, the canaries around them and the rows
after the last group included, which must be unchanged. Last, both are timed in turn, medians;
`link` counts the bytes that cross it (sums: there and back) and `copy` is a copy from GPU 0 to GPU
1 by the driver. Exit status 1 if a byte differs.
"""

import argparse
import ctypes
import fnmatch
import json
import os
import statistics
import sys

import torch

import libquern
from peers_fp8 import Copy

HERE = os.path.dirname(os.path.abspath(__file__))
GROUPS, TOKENS, N, K = 8, 16384, 4096, 2048
GUARD, POISON = 1 << 16, 0xA5
ROUNDS, INSIDE = 9, 10
ALREADY_ENABLED = 704  # cuCtxEnablePeerAccess


def enable_peer_access():
    """GPU 0 may touch GPU 1's memory."""
    driver = ctypes.CDLL("libcuda.so.1")

    def must(name, *arguments, also=0):
        code = getattr(driver, name)(*arguments)
        if code not in (0, also):
            raise SystemExit(f"{name}: CUDA error {code}")

    can, contexts = ctypes.c_int(), [ctypes.c_void_p(), ctypes.c_void_p()]
    for device in range(2):
        torch.zeros(1, device=f"cuda:{device}")
        must("cuDevicePrimaryCtxRetain", ctypes.byref(contexts[device]), ctypes.c_int(device))
    must("cuDeviceCanAccessPeer", ctypes.byref(can), ctypes.c_int(0), ctypes.c_int(1))
    if not can.value:
        raise SystemExit("GPU 0 has no access to GPU 1's memory")
    torch.cuda.set_device(0)
    must("cuCtxSetCurrent", contexts[0])
    must("cuCtxEnablePeerAccess", contexts[1], ctypes.c_uint(0), also=ALREADY_ENABLED)


class Space:
    """Bytes in the memory of a GPU, between canaries."""

    def __init__(self, device, size):
        self.size = size
        self.memory = torch.empty(size + 2 * GUARD, dtype=torch.uint8, device=f"cuda:{device}")
        self.address = self.memory.data_ptr() + GUARD
        self.poison()

    def poison(self):
        self.memory.fill_(POISON)

    def put(self, numbers):
        """Values of the space's size, from its first byte on."""
        self.memory[GUARD:GUARD + self.size].copy_(numbers.view(torch.uint8).view(-1))

    def as_it_was(self, start):
        """Are the canaries, and the bytes from `start` on, poison still?"""
        return all(bool((part == POISON).all())
                   for part in (self.memory[:GUARD], self.memory[GUARD + start:]))


def draw_sizes():
    """Some rows of the bound stay outside every group, and one group is empty."""
    share = torch.rand(GROUPS) + 0.3
    share[GROUPS // 2] = 0
    return (share / share.sum() * (TOKENS - 100)).to(torch.int32).cuda()


class Case:
    """Work on GPU 0 whose outputs are in spaces of one GPU or the other: spaces[name][gpu]."""

    def __init__(self):
        self.sizes = draw_sizes()
        self.rows = int(self.sizes.sum())
        self.spaces, self.keep = {}, []
        self.ends = {}     # where bytes begin that stay poison; default: after the space
        self.crossing = 0  # bytes over the link
        self.base = None   # added to

    def space(self, name, size):
        self.spaces[name] = [Space(device, size) for device in range(2)]

    def zeros(self, count):
        self.keep.append(torch.zeros(max(count, 256), device="cuda", dtype=torch.uint8))
        return self.keep[-1].data_ptr()

    def normal(self, *shape):
        self.keep.append(torch.randn(*shape, device="cuda", dtype=torch.bfloat16))
        return self.keep[-1]

    def reset(self):
        for pair in self.spaces.values():
            for space in pair:
                space.poison()
                if self.base is not None:
                    space.put(self.base.to(space.memory.device))

    def wrong(self):
        """The first difference, found by GPU 1; "" if there is none."""
        for name, (local, remote) in self.spaces.items():
            if not torch.equal(local.memory.to("cuda:1"), remote.memory):
                return f"{name}: bytes differ"
            if not remote.as_it_was(self.ends.get(name, remote.size)):
                return f"{name}: bytes outside of it were written"
            if bool((remote.memory == POISON).all()):
                return f"{name}: nothing was written"
        return ""

    def bind(self, gpu):
        self.plan.bind(**{name: pair[gpu].address for name, pair in self.spaces.items()})

    def run(self, gpu, stream):
        self.bind(gpu)
        self.plan.run(stream)


class Product(Case):
    """D of a BF16 product; `apart`: each expert's matrix by its address; `far`: A is GPU 1's."""

    def __init__(self, library, line, apart=False, far=False):
        super().__init__()
        self.plan, self.apart = libquern.Plan(library, line), apart
        a, b, d = (self.plan.operands[name] for name in "abd")
        x = self.normal(*a.shape)
        self.a = [x, x.to("cuda:1")] if far else [x, x]
        self.space("d", d.bytes)
        if apart:
            matrix = d.bytes // GROUPS
            order = [(3 * g) % GROUPS for g in range(GROUPS)]  # not one after the other
            self.matrices = [torch.tensor([space.address + matrix * g for g in order],
                                          device="cuda") for space in self.spaces["d"]]
        self.plan.bind(b=self.normal(*b.shape).data_ptr(), lengths=self.sizes.data_ptr())
        self.bind(0)
        self.plan.bind_missing(self.zeros)
        self.crossing = d.bytes
        if "beta=1" in line:
            self.base = torch.randn(d.bytes // 4, device="cuda")
            self.crossing *= 2
        elif len(d.shape) == 2:
            self.ends["d"] = self.rows * d.bytes // d.shape[0]
            self.crossing = self.ends["d"]
        if far:
            self.crossing = a.bytes * self.rows // a.shape[0]
            self.spaces["d"][1] = Space(0, d.bytes)

    def bind(self, gpu):
        self.plan.bind(a=self.a[gpu].data_ptr())
        if self.apart:
            self.plan.bind_pointers(d=self.matrices[gpu].data_ptr())
        else:
            super().bind(gpu)

    def wrong(self):
        far = self.spaces["d"][1]
        if far.memory.device.index == 0:  # written at home: GPU 1 compares a copy
            copy = Space(1, far.size)
            copy.memory.copy_(far.memory)
            self.spaces["d"][1] = copy
        text = super().wrong()
        self.spaces["d"][1] = far
        return text


class Copies(Case):
    """The outputs of quantize for x: both tensors and their scales."""

    def __init__(self, library, recipe):
        super().__init__()
        self.plan = libquern.Plan(library, f"quantize {recipe} of=x g={GROUPS} m={TOKENS} k={K}")
        for o in self.plan.operands.values():
            if "wise" in o.name:
                self.space(o.name, o.bytes)
        self.plan.bind(input=self.normal(TOKENS, K).data_ptr(), lengths=self.sizes.data_ptr())
        self.bind(0)
        self.plan.bind_missing(self.zeros)
        row = self.plan.operands["rowwise"]
        self.ends["rowwise"] = self.rows * row.bytes // row.shape[0]
        self.crossing = sum(pair[0].size for pair in self.spaces.values())


class Gradient(Case):
    """A scaled recipe's weight gradient, added to main_grad in fp32."""

    def __init__(self, library, recipe):
        super().__init__()
        self.plan = libquern.Plan(
            library, f"wgrad {recipe} g={GROUPS} m={N} n={K} k={TOKENS} d=f32 beta=1")
        self.dy = Copy(library, recipe, "dy", self.normal(TOKENS, N), self.sizes)
        self.x = Copy(library, recipe, "x", self.normal(TOKENS, K), self.sizes)
        d = self.plan.operands["d"]
        self.space("d", d.bytes)
        self.plan.bind(lengths=self.sizes.data_ptr(), **self.dy.of("columnwise", "a"),
                       **self.x.of("columnwise", "b"))
        self.bind(0)
        self.plan.bind_missing(self.zeros)
        self.base = torch.randn(d.bytes // 4, device="cuda")
        self.crossing = 2 * d.bytes


BF16 = f"bf16 g={GROUPS}"
WGRAD = f"wgrad {BF16} m={N} n={K} k={TOKENS} d=f32"
CASES = {
    "fprop, y over there": lambda q: Product(q, f"fprop {BF16} m={TOKENS} n={N} k={K}"),
    "fprop, x from there": lambda q: Product(q, f"fprop {BF16} m={TOKENS} n={N} k={K}", far=True),
    "dgrad, dx over there": lambda q: Product(q, f"dgrad {BF16} m={TOKENS} n={K} k={N}"),
    "quantize fp8_block, copies over there": lambda q: Copies(q, "fp8_block"),
    "quantize mxfp8, copies over there": lambda q: Copies(q, "mxfp8"),
    "wgrad, overwrites main_grad": lambda q: Product(q, WGRAD),
    "wgrad, adds to main_grad": lambda q: Product(q, WGRAD + " beta=1"),
    "wgrad, adds to each expert's": lambda q: Product(q, WGRAD + " beta=1 pointers=d", apart=True),
    "wgrad fp8_block, adds to main_grad": lambda q: Gradient(q, "fp8_block"),
}


def milliseconds(work):
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    begin.record()
    for _ in range(INSIDE):
        work()
    end.record()
    end.synchronize()
    return begin.elapsed_time(end) / INSIDE


def measure(case, stream):
    times = [[], []]
    for _ in range(ROUNDS):
        for gpu in range(2):
            times[gpu].append(milliseconds(lambda g=gpu: case.run(g, stream)))
    return map(statistics.median, times)


def copy_speed():
    """GB/s of the driver's own copy."""
    here = torch.zeros(1 << 28, dtype=torch.uint8, device="cuda:0")
    there = torch.zeros_like(here, device="cuda:1")
    there.copy_(here)
    ms = statistics.median(milliseconds(lambda: there.copy_(here)) for _ in range(ROUNDS))
    return here.numel() / ms / 1e6


def judge(name, library):
    stream = torch.cuda.current_stream().cuda_stream
    case = CASES[name](library)
    case.reset()
    torch.cuda.synchronize(0)
    torch.cuda.synchronize(1)
    for gpu in range(2):
        case.run(gpu, stream)
        case.plan.check(stream)  # waits
    wrong = case.wrong()
    torch.cuda.synchronize(1)
    local, remote = measure(case, stream)
    row = {"case": name, "kernel": case.plan.kernel, "equal": not wrong, "wrong": wrong,
           "local_ms": local, "remote_ms": remote, "bytes": case.crossing,
           "link_gbytes": case.crossing / remote / 1e6}
    case.plan.close()
    return row


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="*")
    parser.add_argument("--library", default=os.path.join(HERE, "../build/lib/libquern.so"))
    parser.add_argument("--json")
    parser.add_argument("--commit", default="")
    options = parser.parse_args()
    if torch.cuda.device_count() < 2:
        raise SystemExit("two GPUs are needed")
    enable_peer_access()
    torch.manual_seed(1)
    library = libquern.Library(options.library)
    rows, copy = [], copy_speed()
    print(f"copy {copy:.0f} GB/s\n{'case':38s}  local ms  remote ms  link GB/s  bytes")
    for name in CASES:
        if not fnmatch.fnmatch(name, options.only):
            continue
        torch.cuda.empty_cache()
        rows.append(judge(name, library))
        print(f"{name:38s}  {rows[-1]['local_ms']:8.3f}  {rows[-1]['remote_ms']:9.3f}"
              f"  {rows[-1]['link_gbytes']:9.0f}  {rows[-1]['wrong'] or 'equal'}", flush=True)
    if options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump({"what": "bench/two_gpus.py: outputs in peer-mapped memory",
                       "commit": options.commit, "gpu": torch.cuda.get_device_name(0),
                       "cuda": torch.version.cuda, "torch": torch.__version__,
                       "copy_gbytes": copy, "rows": rows}, file, indent=1)
            file.write("\n")
    sys.exit(any(row["wrong"] for row in rows))


if __name__ == "__main__":
    main()
