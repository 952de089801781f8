# SPDX-License-Identifier: Apache-2.0
"""Experts of checkpoints in few bits: docs/checkpoints.md.

The program `quern pack` does all of the work, so that files that others wrote are parsed by one
reader, in a process of its own. This file passes tensors to it and has the modules.
"""

import json
import math
import mmap
import os
import struct
import subprocess
import tempfile

import torch

import quern
from quern.torch.layer import moe
from quern.torch.mlp import grouped_mlp
from quern.torch.quantized import Quantized

_TYPES = {"U8": torch.uint8, "I8": torch.int8, "I32": torch.int32, "I64": torch.int64,
          "F8_E4M3": torch.float8_e4m3fn, "F16": torch.float16, "BF16": torch.bfloat16,
          "F32": torch.float32, "BOOL": torch.bool, "I16": torch.int16,
          "F8_E5M2": torch.float8_e5m2, "F64": torch.float64}
_NAMES = {dtype: name for name, dtype in _TYPES.items()}
_LONGEST = 100000000  # bytes of a header
_NORESERVE = getattr(mmap, "MAP_NORESERVE", 0x4000)  # files may be larger than memory


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


class _File:
    """A packed file's tensors, which stay in the file until they are read."""

    def __init__(self, path):
        self.path = os.fspath(path)
        with open(path, "rb") as file:
            size = os.fstat(file.fileno()).st_size
            length = struct.unpack("<Q", file.read(8))[0] if size >= 8 else _LONGEST + 1
            if length > min(_LONGEST, size - 8):
                raise ValueError(f"{self.path} is no safetensors file, or truncated")
            try:
                self.tensors = json.loads(file.read(length))
                about = json.loads(self.tensors.pop("__metadata__")["quern"])
                self.layers = {layer["name"]: layer for layer in about["layers"]}
                end = max(t["data_offsets"][1] for t in self.tensors.values())
            except (ValueError, KeyError, TypeError, AttributeError, IndexError):
                raise ValueError(f"{self.path} was not written by quern pack") from None
            if 8 + length + end != size:
                raise ValueError(f"{self.path} is truncated")
            self.first, self.bytes = 8 + length, size
            # private: who writes a tensor gets pages of his own, and the file stays
            self.memory = mmap.mmap(file.fileno(), 0, mmap.MAP_PRIVATE | _NORESERVE,
                                    mmap.PROT_READ | mmap.PROT_WRITE)

    def tensor(self, name):
        """A tensor in the mapped file; None if the file has none of that name."""
        if name not in self.tensors:
            return None
        t = self.tensors[name]
        dtype, shape, (begin, end) = _TYPES[t["dtype"]], t["shape"], t["data_offsets"]
        count = math.prod(shape)
        if min((begin, *shape)) < 0 or end - begin != count * dtype.itemsize or \
                self.first + end > self.bytes:
            raise ValueError(f"{self.path}: tensor {name!r} is not inside the file")
        if not count:
            return torch.empty(shape, dtype=dtype, device="cpu")
        flat = torch.frombuffer(self.memory, dtype=torch.uint8, count=end - begin,
                                offset=self.first + begin)
        return (flat if begin + self.first & 15 == 0 else flat.clone()).view(dtype).reshape(shape)


# ---------------------------------------------------------------------------------- modules


class PackedExperts(torch.nn.Module):
    """The experts of a layer, frozen, as quern's operands.

        forward(x, indices, probs)  the sum over a token's choices, as quern.torch.moe; also the
                                    signature of the experts of transformers
        grouped_mlp(x, sizes)       tokens that are sorted already, as quern.torch.grouped_mlp
        w1, w2                      a Quantized each; b1, b2 in float32 or None

    Both take more arguments of these functions. x is computed in bfloat16. Moves to a device keep
    the types of the operands.
    """

    def __init__(self, file, layer):
        super().__init__()
        # COUPLED: packed layers
        self.recipe, self.activation = layer["recipe"], layer["activation"]
        self.experts, self.hidden, self.ffn = layer["experts"], layer["hidden"], layer["ffn"]
        self.options = {key: layer[key] for key in ("interleave", "limit", "slope", "shift")
                        if key in layer}
        for weight in ("w1", "w2"):
            for part in ("", ".sf", ".global"):
                t = file.tensor(f"{layer['name']}.{weight}{part}")
                if t is not None and t.itemsize == 1:
                    t = t.view(torch.uint8).reshape(-1)
                self.register_buffer(weight + (part or ".codes").replace(".", "_"), t)
        for bias in ("b1", "b2"):
            self.register_buffer(bias, file.tensor(f"{layer['name']}.{bias}"))
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
                         (self.experts, *shape), self.recipe, "w", torch.bfloat16)

    @property
    def w1(self):
        return self._weight("w1", (2 * self.ffn, self.hidden))

    @property
    def w2(self):
        return self._weight("w2", (self.hidden, self.ffn))

    def _arguments(self, more):
        return {"recipe": self.recipe, "activation": self.activation, "b1": self.b1, "b2": self.b2,
                **self.options, **more}

    def forward(self, x, indices, probs=None, **more):
        y = moe(x.to(torch.bfloat16), indices, probs, self.w1, self.w2, **self._arguments(more))
        return y.to(x.dtype)

    def grouped_mlp(self, x, sizes=None, **more):
        y = grouped_mlp(x.to(torch.bfloat16), self.w1, self.w2, sizes, **self._arguments(more))
        return y.to(x.dtype)

    def extra_repr(self):
        return f"{self.experts} experts, {self.hidden} x {self.ffn}, {self.recipe}"


def load_packed(path, *, into=None, device=None):
    """The experts of a file of quern pack: {layer: PackedExperts}.

        into    a model whose modules of these names are replaced by them
        device  where tensors go; None: they stay in the file, mapped to memory, privately
    """
    file = _File(path)
    made = {name: PackedExperts(file, layer) for name, layer in file.layers.items()}
    for name, module in made.items():
        module.eval()
        if device is not None:
            module.to(device)
        if into is not None:
            into.set_submodule(name, module)
    return made


# ---------------------------------------------------------------------------------- pack


def _run(*arguments):
    """The program; its error as ours."""
    specs = [word for folder in quern.specs for word in ("--specs", folder)]
    done = subprocess.run([quern.find("../bin/quern"), "pack", "--json", *arguments, *specs],
                          capture_output=True, text=True, check=False)
    if done.returncode:
        try:
            message = json.loads(done.stderr.splitlines()[-1])["error"]
        except (ValueError, KeyError, IndexError):
            message = done.stderr.strip() or f"quern pack ended with {done.returncode}"
        raise ValueError(message)
    return json.loads(done.stdout)


def _words(**options):
    return [word for key, value in options.items() if value is not None
            for word in (f"--{key.replace('_', '-')}", os.fspath(value))]


def pack(source, to=None, *, format=None, experts_of=None, recipe=None, config=None):
    """Turn the experts of a checkpoint into quern's operands.

        source      a model's folder, safetensors files, or {name: tensor}, as state_dict() has it
        to          the new file; None: only modules are made, from a temporary file
        format      gpt-oss, deepseek, nvfp4, gptq or awq; None: the one that the tensors have
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
            files = [source] if isinstance(source, (str, os.PathLike)) else list(source)
        path = to or os.path.join(folder, "packed.safetensors")
        _run(*map(os.fspath, files), *_words(to=path, format=format, experts_of=experts_of,
                                             recipe=recipe))
        return load_packed(path)


def unpack(path, folder):
    """Write the files again from which quern pack made one, byte for byte, into a folder."""
    _run("--undo", os.fspath(path), "--to", os.fspath(folder))
