# SPDX-License-Identifier: Apache-2.0
"""Small checkpoints of random bytes in the formats that quern pack reads, written by PyPI's
safetensors, and the values of their experts in float64 by the formats' own formulas.

A function writes a folder and returns {layer: (w1, w2, b1, b2)}, w1 [experts, 2 ffn, hidden].
"""

import json
import os

import torch
from safetensors.torch import load_file, save_file

E2M1 = torch.tensor([0, .5, 1, 1.5, 2, 3, 4, 6, -0., -.5, -1, -1.5, -2, -3, -4, -6],
                    dtype=torch.float64)
AWQ = [0, 2, 4, 6, 1, 3, 5, 7]  # the output feature of each four bits of a word
ROLES = ("gate_proj", "up_proj", "down_proj")


def config(folder, experts, hidden, ffn, **more):
    values = dict(num_local_experts=experts, num_experts_per_tok=min(2, experts), hidden_size=hidden,
                  intermediate_size=ffn, hidden_act="silu", **more)
    with open(os.path.join(folder, "config.json"), "w") as file:
        json.dump(values, file)


def write(folder, tensors, files=1):
    """Tensors in turn in each file, with an index, as models are published."""
    os.makedirs(folder, exist_ok=True)
    names = sorted(tensors)
    where = {name: f"model-{i % files + 1:05}-of-{files:05}.safetensors"
             for i, name in enumerate(names)}
    for file in set(where.values()):
        save_file({name: tensors[name].contiguous() for name in names if where[name] == file},
                  os.path.join(folder, file), metadata={"format": "pt"})
    with open(os.path.join(folder, "model.safetensors.index.json"), "w") as file:
        json.dump({"metadata": {}, "weight_map": where}, file)


def others():
    return {"model.embed_tokens.weight": torch.randn(7, 5).to(torch.bfloat16),
            "model.norm.weight": torch.randn(3)}


def values_e2m1(packed):
    """[..., k/2] bytes, the even value in the lower half: [..., k]."""
    return torch.stack([E2M1[packed.int() & 15], E2M1[packed.int() >> 4]], -1).flatten(-2)


def gpt_oss(folder, experts=3, hidden=64, ffn=96, layers=2, files=2):
    tensors, values = others(), {}
    for layer in range(layers):
        name = f"model.layers.{layer}.mlp.experts"
        made = []
        for part, rows, k in (("gate_up_proj", 2 * ffn, hidden), ("down_proj", hidden, ffn)):
            blocks = torch.randint(256, (experts, rows, k // 32, 16), dtype=torch.uint8)
            scales = torch.randint(117, 125, (experts, rows, k // 32), dtype=torch.uint8)
            bias = torch.randn(experts, rows).to(torch.bfloat16)
            tensors |= {f"{name}.{part}_blocks": blocks, f"{name}.{part}_scales": scales,
                        f"{name}.{part}_bias": bias}
            power = scales.long() - 127 + 1023 << 52  # exact, which CUDA's pow is not
            w = values_e2m1(blocks) * power.view(torch.float64)[..., None]
            made.append((w.flatten(-2), bias.double()))
        values[name] = (made[0][0], made[1][0], made[0][1], made[1][1])
    write(folder, tensors, files)
    config(folder, experts, hidden, ffn, model_type="gpt_oss", swiglu_limit=7.0)
    return values


def by_expert(folder, matrix, experts, hidden, ffn, files=1, layers=1, **more):
    """`matrix(rows, k)` gives the tensors of one weight by their names' ends, and its values."""
    tensors, values = others(), {}
    for layer in range(layers):
        name = f"model.layers.{layer}.mlp.experts"
        made = {}
        for expert in range(experts):
            shared = {}
            for role in ROLES:
                rows, k = (hidden, ffn) if role == "down_proj" else (ffn, hidden)
                parts, made[expert, role] = matrix(rows, k, shared if role != "down_proj" else {})
                tensors |= {f"{name}.{expert}.{role}.{part}": t for part, t in parts.items()}
        w1 = torch.stack([torch.cat([made[e, "gate_proj"], made[e, "up_proj"]])
                          for e in range(experts)])
        values[name] = (w1, torch.stack([made[e, "down_proj"] for e in range(experts)]), None, None)
    write(folder, tensors, files)
    config(folder, experts, hidden, ffn, **more)
    return values


def deepseek(folder, experts=2, hidden=256, ffn=128, **more):
    def matrix(rows, k, shared):
        codes = torch.randn(rows, k).mul(50).to(torch.float8_e4m3fn)
        scale = torch.rand(-(-rows // 128), -(-k // 128)) + .01
        spread = scale.double().repeat_interleave(128, 0).repeat_interleave(128, 1)[:rows, :k]
        return {"weight": codes, "weight_scale_inv": scale}, codes.double() * spread

    return by_expert(folder, matrix, experts, hidden, ffn, **more)


def nvfp4(folder, experts=3, hidden=64, ffn=48, **more):
    def matrix(rows, k, shared):
        codes = torch.randint(256, (rows, k // 2), dtype=torch.uint8)
        scale = torch.rand(rows, k // 16).mul(8).to(torch.float8_e4m3fn)
        scale2 = shared.setdefault("scale", torch.rand(()) / 100)  # of gate and up
        w = values_e2m1(codes) * scale.double().repeat_interleave(16, 1) * scale2.double()
        return {"weight": codes, "weight_scale": scale, "weight_scale_2": scale2.clone(),
                "input_scale": torch.rand(())}, w

    return by_expert(folder, matrix, experts, hidden, ffn, **more)


def words(codes, axis, order=range(8)):
    """int32 words of eight codes along an axis, code order[i] at bit 4 i."""
    codes = codes.movedim(axis, -1)
    codes = codes.reshape(*codes.shape[:-1], -1, 8).long()
    packed = sum(codes[..., place] << 4 * i for i, place in enumerate(order))
    return torch.where(packed >= 2**31, packed - 2**32, packed).int().movedim(-1, axis)


def gptq(folder, experts=2, hidden=256, ffn=128, group=128, zero=8, version=1, order=None, **more):
    def matrix(rows, k, shared):
        codes = torch.randint(16, (k, rows))
        scales = (torch.rand(k // group, rows) / 10).half()
        zeros = torch.full((k // group, rows), zero) if zero is not None else \
            torch.randint(2 - version, 16, (k // group, rows))
        index = torch.arange(k) // group if order is None else order(k)
        spread = torch.Tensor.repeat_interleave
        w = (codes - spread(zeros, group, 0)) * spread(scales.double(), group, 0)
        stored = zeros - 1 if version == 1 else zeros
        return {"qweight": words(codes, 0), "qzeros": words(stored, 1), "scales": scales,
                "g_idx": index.int()}, w.T

    quantization = {"quant_method": "gptq", "bits": 4, "group_size": group,
                    "checkpoint_format": "gptq" if version == 1 else "gptq_v2"}
    return by_expert(folder, matrix, experts, hidden, ffn, quantization_config=quantization, **more)


def awq(folder, experts=2, hidden=256, ffn=128, group=128, zero=8, **more):
    def matrix(rows, k, shared):
        codes = torch.randint(16, (k, rows))
        scales = (torch.rand(k // group, rows) / 10).half()
        zeros = torch.full((k // group, rows), 8) if zero == 8 else \
            torch.randint(16, (k // group, rows))
        spread = torch.Tensor.repeat_interleave
        w = (codes - spread(zeros, group, 0)) * spread(scales.double(), group, 0)
        return {"qweight": words(codes, 1, AWQ), "qzeros": words(zeros, 1, AWQ),
                "scales": scales}, w.T

    return by_expert(folder, matrix, experts, hidden, ffn, **more)


def compressed(folder, experts=2, hidden=256, ffn=128, group=128, zero=8, shape=torch.int64,
               order=None, **more):
    """compressed-tensors, pack-quantized: codes and zero points are 8 more than they mean."""
    def matrix(rows, k, shared):
        codes = torch.randint(16, (rows, k))
        scales = (torch.rand(rows, k // group) / 10).half()
        zeros = torch.full((rows, k // group), 8) if zero == 8 else \
            torch.randint(16, (rows, k // group))
        spread = torch.Tensor.repeat_interleave
        w = (codes - spread(zeros, group, 1)) * spread(scales.double(), group, 1)
        tensors = {"weight_packed": words(codes, 1), "weight_scale": scales,
                   "weight_shape": torch.tensor([rows, k], dtype=shape)}
        if zero != 8:
            tensors["weight_zero_point"] = words(zeros, 0)
        if order is not None:
            tensors["weight_g_idx"] = order(k).int()
        return tensors, w

    return by_expert(folder, matrix, experts, hidden, ffn, **more)


def gpt_oss_original(folder, experts=3, hidden=64, ffn=96, layers=2, files=2):
    """The same tensors as gpt_oss's by the names of its folder original/."""
    values = gpt_oss(folder, experts, hidden, ffn, layers, files)
    for name in os.listdir(folder):
        if not name.endswith(".safetensors"):
            continue
        path = os.path.join(folder, name)
        save_file({original(key): t for key, t in load_file(path).items()}, path)
    os.remove(os.path.join(folder, "model.safetensors.index.json"))
    with open(os.path.join(folder, "config.json"), "w") as file:
        json.dump(dict(num_experts=experts, experts_per_token=2, hidden_size=hidden,
                       intermediate_size=ffn, swiglu_limit=7.0), file)
    return {original(name): value for name, value in values.items()}


def original(name):
    for before, after in (("model.layers.", "block."), (".mlp.experts", ".mlp"),
                          ("gate_up_proj", "mlp1"), ("down_proj", "mlp2"),
                          ("_blocks", "_weight.blocks"), ("_scales", "_weight.scales")):
        name = name.replace(before, after)
    return name


FORMATS = {"gpt-oss": gpt_oss, "gpt-oss-original": gpt_oss_original, "deepseek": deepseek,
           "nvfp4": nvfp4, "gptq": gptq, "awq": awq, "compressed-tensors": compressed}
