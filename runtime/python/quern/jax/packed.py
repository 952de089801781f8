# SPDX-License-Identifier: Apache-2.0
"""Experts of checkpoints in few bits: docs/checkpoints.md."""

import dataclasses
import math
import os
import tempfile
import typing

import jax
import jax.numpy as jnp
import numpy as np

from quern.jax import _checks
from quern.jax._recipes import counterpart, scaling_of
from quern.jax.layer import moe
from quern.jax.mlp import grouped_mlp
from quern.jax.quantized import Quantized
from quern.packed import BYTES, File, pack_files

_TYPES = {"F16": jnp.float16, "BF16": jnp.bfloat16, "F32": jnp.float32}


def _type_of(recipe):
    """The type of tokens and of weights' values by a recipe."""
    return jnp.dtype(scaling_of(recipe).type or jnp.bfloat16)


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True, eq=False)
class PackedExperts:
    """The experts of a layer as quern's operands, a pytree.

        (x, indices, probs)    the sum over a token's choices, as moe
        grouped_mlp(x, sizes)  tokens that are sorted already, as quern.jax.grouped_mlp
        w1, w2                 a Quantized each, without a gradient; b1, b2 in float32 or None

    Both take more arguments of these functions. The recipe is the one of these weights for the type
    of x; x of another type becomes that of the file's recipe.
    """
    w1: Quantized
    w2: Quantized
    b1: typing.Any
    b2: typing.Any
    activation: str = dataclasses.field(metadata=dict(static=True))
    options: tuple = dataclasses.field(metadata=dict(static=True))  # (name, value), ..

    def _begin(self, x, more):
        """x as it is multiplied, and the arguments; adapters of x's type become as x does."""
        x = _checks.array("x", x)
        if not jnp.issubdtype(x.dtype, jnp.floating) or x.dtype.itemsize < 2:
            raise TypeError(f"x is {x.dtype}: a float type of 16 bits or more is expected")
        recipe = counterpart(self.w1.recipe, x.dtype) or self.w1.recipe
        kind = _type_of(recipe)
        for name in ("lora1", "lora2"):
            if isinstance(more.get(name), (list, tuple)):
                more[name] = tuple(t.astype(kind) if getattr(t, "dtype", None) == x.dtype else t
                                   for t in more[name])
        return x.astype(kind), dict(self.options, recipe=recipe, activation=self.activation,
                                    b1=self.b1, b2=self.b2, layout="nk") | more

    def __call__(self, x, indices, probs=None, **more):
        tokens, more = self._begin(x, more)
        y = moe(tokens, indices, probs, self.w1, self.w2, **more)
        return y.astype(x.dtype)

    def grouped_mlp(self, x, group_sizes, **more):
        tokens, more = self._begin(x, more)
        y = grouped_mlp(tokens, self.w1, self.w2, group_sizes, **more)
        return y.astype(x.dtype)


def _array(file, name, device, is_flat=False):
    """A copy of a tensor of the file, as bytes if it is flat; None if the file has none of that
    name."""
    found = file.find(name)
    if found is None:
        return None
    kind, shape, begin = found
    count = math.prod(shape)
    if is_flat:
        shape, dtype, count = (-1,), np.dtype(np.uint8), count * BYTES[kind]
    else:
        dtype = np.dtype(_TYPES[kind])
    array = np.frombuffer(file.memory, dtype, count, begin) if count else np.empty(0, dtype)
    return jax.device_put(array.copy().reshape(shape), device)


def _weight(file, layer, name, shape, device):
    arrays = [_array(file, f"{layer['name']}.{name}{end}", device, True)
              for end in ("", ".sf", ".global")]
    if arrays[0] is None:
        raise ValueError(f"{file.path}: tensor {layer['name']}.{name} is missing")
    return Quantized(*arrays, None, None, None, (layer["experts"], *shape), layer["recipe"], "w",
                     _type_of(layer["recipe"]))


def load_packed(path, *, device=None):
    """The experts of a file of quern pack: {layer: PackedExperts}.

        device  a device or a sharding, as jax.device_put has it
    """
    file, made = File(path), {}
    for name, layer in file.layers.items():
        hidden, ffn = layer["hidden"], layer["ffn"]
        made[name] = PackedExperts(
            _weight(file, layer, "w1", (2 * ffn, hidden), device),
            _weight(file, layer, "w2", (hidden, ffn), device),
            _array(file, f"{name}.b1", device), _array(file, f"{name}.b2", device),
            layer["activation"], tuple(file.options(layer).items()))
    return made


def pack(source, to=None, *, format=None, experts_of=None, recipe=None, device=None):
    """Turn the experts of a checkpoint into quern's operands: {layer: PackedExperts}.

        source      a model's folder, or safetensors files
        to          the new file; None: a temporary one
        format      gpt-oss, deepseek, nvfp4, gptq, ..; None: the one that the tensors have
        experts_of  a pattern of layers' names; the others stay as they are
        recipe      the operands' recipe; None: the format's

    ValueError names file, tensor and rule.
    """
    with tempfile.TemporaryDirectory(prefix="quern-pack-") as folder:
        path = to or os.path.join(folder, "packed.safetensors")
        pack_files(source, path, format=format, experts_of=experts_of, recipe=recipe)
        return load_packed(path, device=device)
