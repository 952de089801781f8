# SPDX-License-Identifier: Apache-2.0
"""The experts of a checkpoint in MXFP4: packed, computed, and written again.

    PYTHONPATH=runtime/python:build/torch/peers build/torch/venv/bin/python \\
        examples/torch_checkpoint.py

PyPI's safetensors writes a small checkpoint. docs/checkpoints.md describes the formats.
"""

import filecmp
import os
import tempfile

import torch
from safetensors.torch import save_file

import quern.torch as qt

EXPERTS, HIDDEN, FFN, TOKENS, TOPK = 4, 256, 128, 64, 2
LAYER = "model.layers.0.mlp.experts"


def write_checkpoint(path):
    """One layer as gpt-oss has it: two e2m1 values in a byte, a power of two for 32 of them."""
    tensors = {}
    for name, rows, k in (("gate_up_proj", 2 * FFN, HIDDEN), ("down_proj", HIDDEN, FFN)):
        tensors[f"{LAYER}.{name}_blocks"] = torch.randint(256, (EXPERTS, rows, k // 32, 16),
                                                          dtype=torch.uint8)
        tensors[f"{LAYER}.{name}_scales"] = torch.full((EXPERTS, rows, k // 32), 122,
                                                       dtype=torch.uint8)
        tensors[f"{LAYER}.{name}_bias"] = torch.randn(EXPERTS, rows).to(torch.bfloat16)
    save_file(tensors, path)


def main():
    torch.manual_seed(0)
    with tempfile.TemporaryDirectory() as folder:
        model, packed = os.path.join(folder, "model.safetensors"), os.path.join(folder, "packed")
        write_checkpoint(model)
        experts = qt.pack(model, packed)[LAYER]
        print(experts)
        x = (torch.randn(TOKENS, HIDDEN) / 4).to(torch.bfloat16).requires_grad_()
        indices = torch.stack([torch.randperm(EXPERTS)[:TOPK] for _ in range(TOKENS)])
        probs = torch.rand(TOKENS, TOPK)
        y = experts(x, indices, probs)
        y.sum().backward()  # through the packed weights, which have no gradient
        w1, w2 = (qt.dequantize(w, dtype=torch.bfloat16) for w in (experts.w1, experts.w2))
        plain = qt.moe(x.detach(), indices, probs, w1, w2, b1=experts.b1, b2=experts.b2,
                       activation=experts.activation, **experts.options)
        difference = (y.detach() - plain).abs().max() / plain.abs().max()
        print(f"difference from weights in BF16: {difference.item():.1e} of the largest value")
        again = os.path.join(folder, "again")
        qt.unpack(packed, again)
        same = filecmp.cmp(model, os.path.join(again, "model.safetensors"), shallow=False)
        print(f"the same bytes again: {'yes' if same else 'no'}")


if __name__ == "__main__":
    main()
