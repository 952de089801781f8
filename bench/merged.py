#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Deferred weight gradients: four microbatches merged into one launch, compared with four in
sequence.

    python3 bench/merged.py [--recipes bf16,fp8_block] [--shapes 'qwen3*,decode_up'] [--parts 4]
                            [--tokens 64,128,256,512,1024,2048,4096] [--json FILE] [--commit HASH]

Both accumulate into fp32, the same operands, in turn, in graphs of their own, medians. Tokens are
those of a group and a microbatch, drawn around that number. Before the timing, the results of both
are compared. The roofline of the gain is min(parts, k*/k): below k* tokens the accumulator's 8
bytes cost as much as the math, which sequence pays `parts` times. `peak` is the memory that the
queued operands take next to the accumulator.
"""

import argparse
import ctypes
import fnmatch
import json
import os
import statistics

import torch

import libquern
from peers_fp8 import Copy

RIDGE = {"bf16": 630, "fp8_block": 1100}  # tokens: ANCHORS' k*
ROUNDS, INSIDE = 15, 4
HERE = os.path.dirname(os.path.abspath(__file__))


class Queue:
    """quern_queue of a library."""

    def __init__(self, library, capacity):
        self.library, self.queue = library, ctypes.c_void_p()
        library.must(library.c.quern_queue_create(library.context, capacity,
                                                  ctypes.byref(self.queue)))

    def put(self, plan):
        self.library.must(self.library.c.quern_queue_put(self.queue, plan.plan,
                                                         ctypes.byref(plan.args), 0))

    def flush(self, stream):
        self.library.must(self.library.c.quern_queue_flush(self.queue, 0, 0, stream))

    def close(self):
        self.library.c.quern_queue_destroy(self.queue)


class Microbatches:
    """Operands of `parts` products for one weight, and a plan for them in sequence or merged."""

    def __init__(self, library, recipe, shape, tokens, parts):
        groups, m, n = shape["groups"], shape["n"], shape["k"]
        drawn = [torch.randint(tokens // 2, tokens * 3 // 2 + 1, (groups,), dtype=torch.int32)
                 for _ in range(parts)]
        bound = max(int(sizes.sum()) for sizes in drawn)
        line = f"wgrad {recipe} g={groups} m={m} n={n} k={bound} d=f32 beta=1"
        self.library = library
        self.single = libquern.Plan(library, line)
        self.merged = libquern.Plan(library, f"{line} microbatches={parts}")
        self.d = [torch.zeros(groups, m, n, device="cuda") for _ in range(2)]
        self.workspace = torch.zeros(256, device="cuda", dtype=torch.uint8)
        self.args, self.keep, self.tokens, self.waiting = [], [], 0, 0
        for sizes in drawn:
            self.tokens += int(sizes.sum())
            sizes = sizes.cuda()
            dy = torch.randn(bound, m, device="cuda", dtype=torch.bfloat16)
            x = torch.randn(bound, n, device="cuda", dtype=torch.bfloat16)
            self.args.append(self.bind(recipe, dy, x, sizes))
        self.flop = 2.0 * self.tokens * m * n

    def bind(self, recipe, dy, x, sizes):
        plan = self.single
        plan.unbind()
        plan.bind(lengths=sizes.data_ptr(), workspace=self.workspace.data_ptr())
        self.keep += [dy, x, sizes]
        for name, of, source in (("a", "dy", dy), ("b", "x", x)):
            if recipe == "bf16":
                plan.bind(**{name: source.data_ptr()})
            else:
                self.keep.append(Copy(self.library, recipe, of, source, sizes))
                plan.bind(**self.keep[-1].of("columnwise", name))
            self.waiting += sum(o.bytes for o in plan.operands.values()
                                if o.name in (name, name + ".sf"))
        return plan.args

    def run(self, queue, plan, d, stream):
        """All microbatches: one launch each, or as many at once as the plan merges."""
        for args in self.args:
            plan.args = args
            plan.bind(d=d.data_ptr())
            queue.put(plan)
        queue.flush(stream)

    def close(self):
        for plan in (self.single, self.merged):
            plan.close()


def graph_of(work):
    stream = torch.cuda.Stream()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream):
        for _ in range(INSIDE):
            work(torch.cuda.current_stream().cuda_stream)
    return graph


def milliseconds(graph):
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    begin.record()
    graph.replay()
    end.record()
    end.synchronize()
    return begin.elapsed_time(end) / INSIDE


def agree(batches, queue):
    stream = torch.cuda.current_stream().cuda_stream
    for plan, d in zip((batches.single, batches.merged), batches.d):
        d.zero_()
        batches.run(queue, plan, d, stream)
    torch.cuda.synchronize()
    error = (batches.d[0] - batches.d[1]).norm() / batches.d[0].norm()
    return float(error)


def measure(library, recipe, shape, tokens, parts):
    batches = Microbatches(library, recipe, shape, tokens, parts)
    queue = Queue(library, parts)
    error = agree(batches, queue)
    graphs = [graph_of(lambda s, p=p, d=d: batches.run(queue, p, d, s))
              for p, d in zip((batches.single, batches.merged), batches.d)]
    times = [[], []]
    for _ in range(ROUNDS):
        for i, graph in enumerate(graphs):
            times[i].append(milliseconds(graph))
    sequence, merged = map(statistics.median, times)
    target = 0.9 * min(parts, max(1.0, RIDGE[recipe] / tokens))
    row = {"recipe": recipe, "shape": shape["name"], "tokens": tokens, "parts": parts,
           "sequence_ms": sequence, "merged_ms": merged, "gain": sequence / merged,
           "target": max(1.0, target), "tflops": batches.flop / merged / 1e9, "error": error,
           "waiting_bytes": batches.waiting, "kernel": batches.merged.kernel,
           "sequence_kernel": batches.single.kernel}
    queue.close()
    batches.close()
    return row


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--recipes", default="bf16,fp8_block")
    parser.add_argument("--shapes", default="*")
    parser.add_argument("--tokens", default="64,128,256,512,1024,2048,4096")
    parser.add_argument("--parts", type=int, default=4)
    parser.add_argument("--library", default=os.path.join(HERE, "../build/lib/libquern.so"))
    parser.add_argument("--json")
    parser.add_argument("--commit", default="")
    options = parser.parse_args()
    library = libquern.Library(options.library)
    with open(os.path.join(HERE, "shapes.json")) as file:
        shapes = json.load(file)["shapes"]
    rows = []
    print("recipe     shape         tokens  sequence ms  merged ms   gain  target  peak MB   error")
    for recipe in options.recipes.split(","):
        for shape in shapes:
            if not any(fnmatch.fnmatch(shape["name"], p) for p in options.shapes.split(",")):
                continue
            for tokens in map(int, options.tokens.split(",")):
                torch.cuda.empty_cache()
                try:
                    row = measure(library, recipe, shape, tokens, options.parts)
                except torch.OutOfMemoryError:
                    print(f"{recipe:10s} {shape['name']:13s} {tokens:6d}  does not fit")
                    continue
                rows.append(row)
                print(f"{recipe:10s} {shape['name']:13s} {tokens:6d}  {row['sequence_ms']:11.3f}"
                      f"  {row['merged_ms']:9.3f}  {row['gain']:5.2f}  {row['target']:6.2f}"
                      f"  {row['waiting_bytes'] / 1e6:7.0f}  {row['error']:.1e}", flush=True)
    if options.json:
        with open(options.json, "w") as file:
            json.dump({"gpu": torch.cuda.get_device_name(), "commit": options.commit,
                       "rows": rows}, file, indent=1)
            file.write("\n")


if __name__ == "__main__":
    main()
