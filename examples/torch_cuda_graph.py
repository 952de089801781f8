# SPDX-License-Identifier: Apache-2.0
"""A CUDA graph of a forward and backward pass, replayed with other sizes.

    python examples/torch_cuda_graph.py

The graph's buffers have room for ROWS tokens; how many each expert has is read on the device. On a
machine without a GPU the same function runs in eager mode.
"""

import torch
import quern.torch as qt

EXPERTS, HIDDEN, FFN, ROWS = 8, 256, 128, 1024
SIZES = ([128] * 8, [0, 300, 0, 7, 0, 500, 1, 0], [0] * 8, [1024] + [0] * 7)


def main():
    is_gpu = torch.cuda.is_available()
    device = "cuda" if is_gpu else "cpu"
    torch.manual_seed(0)
    layer = qt.GroupedMLP(EXPERTS, HIDDEN, FFN, params_dtype=torch.bfloat16, device=device,
                          recipe="fp8_block", outside="zero")
    x = torch.randn(ROWS, HIDDEN, device=device, dtype=torch.bfloat16, requires_grad=True)
    dy = torch.randn(ROWS, HIDDEN, device=device, dtype=torch.bfloat16)
    sizes = torch.tensor(SIZES[0], device=device)

    def step():
        y = layer(x, sizes)
        return y, *torch.autograd.grad(y, (x, layer.w1, layer.w2), dy)

    if is_gpu:
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            step()  # makes the plans, which a capture must not
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            results = step()
    else:
        print("skip: a CUDA graph needs a GPU; this runs the step in eager mode")
    for lengths in SIZES:
        sizes.copy_(torch.tensor(lengths))
        if is_gpu:
            graph.replay()
        else:
            results = step()
        same = all(torch.equal(found, again) for found, again in zip(results, step()))
        print(f"{sum(lengths):5} tokens: {'same bits as eager' if same else 'DIFFERENT'}")
        assert same


if __name__ == "__main__":
    main()
