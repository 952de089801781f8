# SPDX-License-Identifier: Apache-2.0
"""GroupedLinear in FP8, whose weight gradients are added to main_grad over microbatches.

    python examples/torch_linear.py
"""

import torch
import quern.torch as qt

EXPERTS, HIDDEN, FFN, TOKENS, MICROBATCHES = 8, 256, 128, 512, 4


def main():
    device = "cuda" if torch.cuda.is_available() else "cpu"
    torch.manual_seed(0)
    layer = qt.GroupedLinear(EXPERTS, HIDDEN, FFN, bias=False, params_dtype=torch.bfloat16,
                             device=device, recipe="fp8_block", single_grouped_weight=True,
                             fuse_wgrad_accumulation=True)
    layer.weight.main_grad = torch.zeros(layer.weight.shape, device=device)  # fp32
    expected = torch.zeros_like(layer.weight.main_grad)
    for microbatch in range(MICROBATCHES):
        expert_of = torch.randint(EXPERTS, (TOKENS,), device=device)
        sizes = expert_of.bincount(minlength=EXPERTS)  # stays on the device
        x = torch.randn(TOKENS, HIDDEN, device=device, dtype=torch.bfloat16, requires_grad=True)
        y = layer(x, sizes, is_first_microbatch=microbatch == 0)  # quantizes the weights once
        dy = torch.randn_like(y)
        y.backward(dy)
        rows = expert_of.sort().values
        expected.index_add_(0, rows, dy.float().unsqueeze(2) * x.detach().float().unsqueeze(1))
    error = (layer.weight.main_grad - expected).norm() / expected.norm()
    print(f"main_grad of {MICROBATCHES} microbatches, relative error {error:.3f} in FP8")
    assert layer.weight.grad is None and error < 0.06


if __name__ == "__main__":
    main()
