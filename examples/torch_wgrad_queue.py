# SPDX-License-Identifier: Apache-2.0
"""A pipeline stage that sends the gradient of its input first and computes weight gradients later.

    python examples/torch_wgrad_queue.py

Each microbatch's backward pass only computes the gradient that the stage before waits for. The
weight gradients of all layers wait in one queue, which the stage flushes in its idle time.
"""

import torch
import quern.torch as qt

EXPERTS, HIDDEN, FFN, TOKENS, MICROBATCHES = 4, 128, 64, 256, 3


def main():
    device = "cuda" if torch.cuda.is_available() else "cpu"
    torch.manual_seed(0)
    queue = qt.WgradQueue(capacity=2 * 2 * MICROBATCHES)  # two products for each MLP
    layers = [qt.GroupedMLP(EXPERTS, HIDDEN, FFN, params_dtype=torch.bfloat16, device=device,
                            fuse_wgrad_accumulation=True, delay_wgrad_compute=True,
                            wgrad_queue=queue, layer=i) for i in range(2)]
    weights = [w for layer in layers for w in (layer.w1, layer.w2)]
    for w in weights:
        w.main_grad = torch.zeros(w.shape, device=device)
    sizes = torch.tensor([100, 0, 56, 100], device=device)
    for microbatch in range(MICROBATCHES):
        x = torch.randn(TOKENS, HIDDEN, device=device, dtype=torch.bfloat16, requires_grad=True)
        y = layers[1](layers[0](x, sizes), sizes)
        y.backward(torch.randn_like(y))
        print(f"microbatch {microbatch}: gradient of x is ready, {len(queue)} products wait")
        assert x.grad.any() and not any(w.main_grad.any() for w in weights)
    while len(queue):
        queue.flush(most=4)  # a bubble of the pipeline
        print(f"flushed, {len(queue)} products wait")
    assert all(w.main_grad.any() for w in weights)


if __name__ == "__main__":
    main()
