# SPDX-License-Identifier: Apache-2.0
"""A layer whose experts are spread over processes, next to the same layer in one process.

    torchrun --nproc-per-node 2 examples/torch_expert_parallel.py     # NCCL, if each has a GPU
    python examples/torch_expert_parallel.py                          # two processes on the CPU

The first rank has 3 experts, the others 2 each. Every rank has its own tokens; their results and
gradients have the bits of one process that has all tokens and all experts.
"""

import datetime
import os
import socket

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

import quern.torch as qt

HIDDEN, FFN, TOKENS, TOPK = 128, 64, 100, 2


def layer(rank, ranks, device):
    experts = [3] + [2] * (ranks - 1)
    moe = qt.ExpertParallelMoE(experts[rank], HIDDEN, FFN, capacity=TOKENS * TOPK, recipe="mxfp8",
                               overlap_wgrad=True, params_dtype=torch.bfloat16, device=device)
    torch.manual_seed(0)  # all ranks draw the whole layer, and take their part
    total, rows = sum(experts), TOKENS * ranks
    x, dy = (torch.randn(rows, HIDDEN).bfloat16().to(device) for _ in range(2))
    indices = torch.rand(rows, total).topk(TOPK).indices.to(device)
    probs = torch.rand(rows, TOPK).to(device)
    w1 = torch.randn(total, 2 * FFN, HIDDEN).mul(0.1).bfloat16().to(device)
    w2 = torch.randn(total, HIDDEN, FFN).mul(0.1).bfloat16().to(device)
    mine = slice(moe.first, moe.first + experts[rank])
    with torch.no_grad():
        moe.w1.copy_(w1[mine])
        moe.w2.copy_(w2[mine])

    here = slice(rank * TOKENS, (rank + 1) * TOKENS)
    part = x[here].clone().requires_grad_()
    y = moe(part, indices[here], probs[here])
    y.backward(dy[here])
    moe.check()  # on a GPU: did all pairs fit into the capacity?

    x, w1, w2 = (t.requires_grad_() for t in (x, w1, w2))
    whole = qt.moe(x, indices, probs, w1, w2, recipe="mxfp8")
    whole.backward(dy)
    for name, found, expected in (("y", y, whole[here]), ("dx", part.grad, x.grad[here]),
                                  ("dw1", moe.w1.grad, w1.grad[mine]),
                                  ("dw2", moe.w2.grad, w2.grad[mine])):
        assert torch.equal(found, expected), f"rank {rank}: {name} differs"
    print(f"rank {rank} of {ranks}: y, dx, dw1, dw2 have the bits of one process", flush=True)


def run(rank, ranks):
    has_gpus = torch.cuda.device_count() >= ranks and dist.is_nccl_available()
    device = torch.device("cuda", rank) if has_gpus else torch.device("cpu")
    if has_gpus:
        torch.cuda.set_device(device)
    dist.init_process_group("nccl" if has_gpus else "gloo", rank=rank, world_size=ranks,
                            timeout=datetime.timedelta(seconds=120))
    try:
        layer(rank, ranks, device)
    finally:
        dist.destroy_process_group()


if __name__ == "__main__":
    if "RANK" in os.environ:  # of torchrun, on one machine
        run(int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]))
    else:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(free.getsockname()[1]))
        mp.spawn(run, (2,), nprocs=2)
