# SPDX-License-Identifier: Apache-2.0
"""Train the experts of a transformers model with quern: one line on, one line off.

    PYTHONPATH=runtime/python:build/torch/peers build/torch/venv/bin/python \\
        examples/torch_transformers.py

A tiny Qwen3-MoE with random weights learns one batch, first with transformers' experts, then with
FP8 products by quern.
"""

import torch
from transformers import Qwen3MoeConfig, Qwen3MoeForCausalLM

import quern.torch

STEPS = 10


def make_model(device):
    torch.manual_seed(0)
    config = Qwen3MoeConfig(
        vocab_size=128, hidden_size=64, num_hidden_layers=1, num_attention_heads=4,
        num_key_value_heads=4, head_dim=16, num_experts=8, num_experts_per_tok=2,
        moe_intermediate_size=96, bos_token_id=1, eos_token_id=2)
    return Qwen3MoeForCausalLM(config).to(device, torch.bfloat16)


def train(model):
    torch.manual_seed(1)
    ids = torch.randint(0, 128, (2, 32), device=model.device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    losses = []
    for _ in range(STEPS):
        loss = model(ids, labels=ids).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def main():
    device = "cuda" if torch.cuda.is_available() else "cpu"
    plain = make_model(device)
    plain.set_experts_implementation("eager")
    expected = train(plain)

    model = make_model(device)
    switch = quern.torch.install("transformers", model, recipe="fp8_block")  # on
    losses = train(model)
    switch.undo()  # off

    for step in range(0, STEPS, 3):
        print(f"step {step:2}: loss {expected[step]:.4f} by transformers, "
              f"{losses[step]:.4f} in FP8 by quern")
    worst = max(abs(a - b) / b for a, b in zip(losses, expected))
    print(f"largest difference: {100 * worst:.2f} %")
    if worst > 0.03:
        raise SystemExit("the losses differ by more than 3 %")


if __name__ == "__main__":
    main()
