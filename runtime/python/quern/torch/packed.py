# SPDX-License-Identifier: Apache-2.0
"""Experts of checkpoints in few bits: docs/checkpoints.md."""

import json
import math
import os
import struct
import tempfile

import torch

from quern.packed import File, pack_files
from quern.torch import _checks
from quern.torch._recipes import scaling_of
from quern.torch.functions import recipe_for
from quern.torch.layer import moe
from quern.torch.mlp import grouped_mlp
from quern.torch.quantized import Quantized

_TYPES = {"U8": torch.uint8, "I8": torch.int8, "I32": torch.int32, "I64": torch.int64,
          "F8_E4M3": torch.float8_e4m3fn, "F16": torch.float16, "BF16": torch.bfloat16,
          "F32": torch.float32, "BOOL": torch.bool, "I16": torch.int16,
          "F8_E5M2": torch.float8_e5m2, "F64": torch.float64}
_NAMES = {dtype: name for name, dtype in _TYPES.items()}


# ---------------------------------------------------------------------------------- files


def _write(path, tensors):
    """A safetensors file; values are copied to the host one by one."""
    header, at = {}, 0
    for name, t in tensors.items():
        if not isinstance(t, torch.Tensor) or t.dtype not in _NAMES:
            raise TypeError(f"tensors: {name!r} is {getattr(t, 'dtype', type(t).__name__)}: a "
                            f"tensor of one of {', '.join(map(str, _NAMES))} is expected")
        bytes_ = t.numel() * t.itemsize
        header[name] = {"dtype": _NAMES[t.dtype], "shape": list(t.shape),
                        "data_offsets": [at, at + bytes_]}
        at += bytes_
    text = json.dumps(header).encode()
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for t in tensors.values():
            raw = t.detach().cpu().contiguous().reshape(-1).view(torch.uint8)
            file.write(memoryview(raw.numpy()))


def _tensor(file, name):
    """A tensor in the mapped file; None if the file has none of that name."""
    found = file.find(name)
    if found is None:
        return None
    kind, shape, begin = found
    dtype, count = _TYPES[kind], math.prod(shape)
    if not count:
        return torch.empty(shape, dtype=dtype, device="cpu")
    flat = torch.frombuffer(file.memory, dtype=torch.uint8, count=count * dtype.itemsize,
                            offset=begin)
    return (flat if begin & 15 == 0 else flat.clone()).view(dtype).reshape(shape)


# ---------------------------------------------------------------------------------- modules


def _type_of(recipe):
    """The type of tokens and of weights' values by a recipe."""
    return scaling_of(recipe).type or torch.bfloat16


class PackedExperts(torch.nn.Module):
    """The experts of a layer, frozen, as quern's operands.

        forward(x, indices, probs)  the sum over a token's choices, as quern.torch.moe; also the
                                    signature of the experts of transformers
        grouped_mlp(x, sizes)       tokens that are sorted already, as quern.torch.grouped_mlp
        w1, w2                      a Quantized each; b1, b2 in float32 or None

    Both take more arguments of these functions. The recipe is the one of these weights for the type
    of x, under autocast for its type; x of another type becomes that of the file's recipe. Moves to
    a device keep the types of the operands.
    """

    def __init__(self, file, layer):
        super().__init__()
        self.recipe, self.activation = layer["recipe"], layer["activation"]
        self.options = file.options(layer)
        self.experts, self.hidden, self.ffn = layer["experts"], layer["hidden"], layer["ffn"]
        for weight in ("w1", "w2"):
            for part in ("", ".sf", ".global"):
                t = _tensor(file, f"{layer['name']}.{weight}{part}")
                if t is not None and t.itemsize == 1:
                    t = t.view(torch.uint8).reshape(-1)
                self.register_buffer(weight + (part or ".codes").replace(".", "_"), t)
        for bias in ("b1", "b2"):
            self.register_buffer(bias, _tensor(file, f"{layer['name']}.{bias}"))
        if self.w1_codes is None or self.w2_codes is None:
            raise ValueError(f"{file.path}: tensor {layer['name']}.w1 or w2 is missing")

    def _apply(self, fn, recurse=True):
        for name, t in list(self._buffers.items()):
            if t is not None:
                made = fn(t)
                self._buffers[name] = made if made.dtype == t.dtype else t.to(made.device)
        return self

    def _weight(self, name, shape):
        return Quantized(getattr(self, name + "_codes"), getattr(self, name + "_sf"),
                         getattr(self, name + "_global"), None, None, None,
                         (self.experts, *shape), self.recipe, "w", _type_of(self.recipe))

    @property
    def w1(self):
        return self._weight("w1", (2 * self.ffn, self.hidden))

    @property
    def w2(self):
        return self._weight("w2", (self.hidden, self.ffn))

    def _begin(self, x, more):
        """x as it is multiplied, and the arguments; adapters of x's type become as x does."""
        _checks.tensor("x", x)
        if not x.is_floating_point() or x.itemsize < 2:
            raise TypeError(f"x is {x.dtype}: a float type of 16 bits or more is expected")
        recipe = recipe_for(self.recipe, x) or self.recipe
        kind = _type_of(recipe)
        for name in ("lora1", "lora2"):
            if isinstance(more.get(name), (list, tuple)):
                more[name] = tuple(t.to(kind) if getattr(t, "dtype", None) == x.dtype else t
                                   for t in more[name])
        return x.to(kind), {"recipe": recipe, "activation": self.activation, "b1": self.b1,
                            "b2": self.b2, **self.options, **more}

    def forward(self, x, indices, probs=None, **more):
        tokens, more = self._begin(x, more)
        y = moe(tokens, indices, probs, self.w1, self.w2, **more)
        return y.to(x.dtype)

    def grouped_mlp(self, x, sizes=None, **more):
        tokens, more = self._begin(x, more)
        y = grouped_mlp(tokens, self.w1, self.w2, sizes, **more)
        return y.to(x.dtype)

    def extra_repr(self):
        return f"{self.experts} experts, {self.hidden} x {self.ffn}, {self.recipe}"


def load_packed(path, *, into=None, device=None):
    """The experts of a file of quern pack: {layer: PackedExperts}.

        into    a model whose modules of these names are replaced by them
        device  where tensors go; None: they stay in the file, mapped to memory, privately
    """
    file = File(path)
    made = {name: PackedExperts(file, layer) for name, layer in file.layers.items()}
    for name, module in made.items():
        module.eval()
        if device is not None:
            module.to(device)
        if into is not None:
            into.set_submodule(name, module)
    return made


# ---------------------------------------------------------------------------------- pack


def pack(source, to=None, *, format=None, experts_of=None, recipe=None, config=None):
    """Turn the experts of a checkpoint into quern's operands.

        source      a model's folder, safetensors files, or {name: tensor}, as state_dict() has it
        to          the new file; None: only modules are made, from a temporary file
        format      gpt-oss, deepseek, nvfp4, gptq, ..; None: the one that the tensors have
        experts_of  a pattern of layers' names; the others stay as they are
        recipe      the operands' recipe; None: the format's
        config      of tensors: the model's configuration, a dict or one of transformers

    Returns {layer: PackedExperts}. ValueError names file, tensor and rule.
    """
    with tempfile.TemporaryDirectory(prefix="quern-pack-") as folder:
        if isinstance(source, dict):
            made = os.path.join(folder, "tensors.safetensors")
            _write(made, source)
            if config is not None:
                with open(os.path.join(folder, "config.json"), "w", encoding="utf-8") as file:
                    json.dump(config if isinstance(config, dict) else config.to_dict(), file,
                              default=str)
            files = [made]
        elif config is not None:
            raise ValueError("config: files have their own config.json")
        else:
            files = source
        path = to or os.path.join(folder, "packed.safetensors")
        pack_files(files, path, format=format, experts_of=experts_of, recipe=recipe)
        return load_packed(path)
