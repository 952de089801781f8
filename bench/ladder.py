#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The kernels of docs/kernels-ladder.md on one product, next to a dense one of cuBLAS.

    python3 bench/ladder.py [--budget SECONDS] [--rounds N] [--json FILE] [--commit HASH]

Timed as bench/peers.py times: in CUDA graphs, in turn, in another order each round. Each result is
compared with torch's before. Needs PyTorch with CUDA, and build/lib/libquern.so.
"""

import sys
import time

import peers

FAMILY = "quern_bf16_fprop_tn_m_bf16_"
# The steps, from the first; then kernels that the page only mentions.
STEPS = ("scale_sm90a_tile64x64x32", "scale_sm90a_tile128x128x32",
         "sm90a_cooperative_tile128x128x64_cluster1x1",
         "sm90a_cooperative_tile128x256x64_cluster1x1",
         "sm90a_cooperative_tile128x256x64_cluster2x1")
OTHERS = ("sm90a_pingpong_tile128x128x64_cluster1x1", "sm90a_pingpong_tile128x192x64_cluster1x1")
STEP = {FAMILY + name: step for step, name in enumerate(STEPS, 1)}
SHAPE = {"name": "dsv3_up_g8", "groups": 8, "tokens": 32768, "n": 4096, "k": 7168}


def calls_for(call, seconds):
    """So many calls that they take about `seconds`."""
    for _ in range(2):
        call()
    peers.torch.cuda.synchronize()
    begin = time.monotonic()
    call()
    peers.torch.cuda.synchronize()
    return max(3, round(seconds / (time.monotonic() - begin)))


def measure(layer, library, options, watch):
    """A row for each kernel and for cuBLAS. All run as long, as slow ones would cool the chip."""
    plans = {FAMILY + name: layer.plan(library, FAMILY + name) for name in STEPS + OTHERS}
    errors = peers.verify(layer, plans, layer.grouped_mm())
    calls = {name: lambda plan=plan: plan.run(peers.torch.cuda.current_stream().cuda_stream)
             for name, plan in plans.items()}
    calls["cublas_dense"] = layer.dense
    counts = {name: calls_for(call, options.replay) for name, call in calls.items()}
    graphs = {name: peers.capture(call, counts[name]) for name, call in calls.items()}
    rows = []
    for name, result in peers.measure(graphs, 1, options.rounds, watch).items():
        result.update((key, result[key] / counts[name]) for key in ("ms", "low", "high"))
        rows.append({"shape": layer.name, "op": layer.op, "split": layer.kind,
                     "problem": layer.line, "what": name, "step": STEP.get(name),
                     "error": errors.get(name), "calls": counts[name], **result,
                     "tflops": layer.flops / result["ms"] / 1e9})
    for plan in plans.values():
        plan.close()
    return rows


def show(rows):
    for row in rows:
        print(f"{row['ms']:8.3f} ms {row['tflops']:6.0f} TFLOP/s {row['mhz'] or 0:5.0f} MHz "
              f"{row['watts'] or 0:4.0f} W {row['what']}", flush=True)


def main(argv=None):
    options = peers.parser_of(__doc__).parse_args(argv)
    return peers.compare(
        options, "bench/ladder.py", lambda: [[[SHAPE["name"], "fprop"], None]],
        lambda _, library, rng, watch: measure(
            peers.Layer(SHAPE, "fprop", "mild", rng), library, options, watch), show)


if __name__ == "__main__":
    sys.exit(main())
