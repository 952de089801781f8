# SPDX-License-Identifier: Apache-2.0
"""The operators of torch.ops.quern: loaded here, with a fake kernel for each."""

import ctypes
import glob
import os
import zlib

import torch
import torch.compiler.config

import quern

WORDS = {torch.bfloat16: "bf16", torch.float16: "f16", torch.float32: "f32"}
DTYPES = {word: dtype for dtype, word in WORDS.items()} | {"i32": torch.int32, "i64": torch.int64}
DTYPES |= {"f16_zero": torch.int32, "bf16_zero": torch.int32}  # scales with their zero points
NAMES = ("product", "product_", "product_lora", "defer_product", "quantize", "quantize_", "dbias",
         "activate", "activate_backward", "rescale_", "dequantize", "mlp_forward", "mlp_forward_",
         "mlp_backward", "mlp_backward_", "mlp_wgrad", "mlp_wgrad_", "defer_mlp", "moe_forward",
         "moe_forward_", "moe_backward", "moe_backward_", "moe_wgrad", "moe_wgrad_", "defer_moe",
         "route", "route_starts", "permute", "permute_", "permute_dprob", "combine",
         "combine_backward")
_PHASES = {"forward": 0, "backward": 1, "wgrad": 2}


def _load():
    c = ctypes.CDLL(quern.find("libquern_torch.so"))
    for function, result, arguments in (
            ("load", ctypes.c_char_p, ()), ("specs", ctypes.c_char_p, (ctypes.c_char_p,)),
            ("error", ctypes.c_char_p, ()),
            ("check", ctypes.c_char_p, (ctypes.c_int,)),
            ("replace", ctypes.c_char_p, (ctypes.c_char_p, ctypes.c_int)),
            ("queue_create", ctypes.c_int64, (ctypes.c_int,)),
            ("queue_destroy", None, (ctypes.c_int64,)),
            ("queue_flush", ctypes.c_int,
             (ctypes.c_int64, ctypes.c_int, ctypes.c_int, ctypes.c_void_p)),
            ("queue_drop", ctypes.c_int, (ctypes.c_int64, ctypes.c_int)),
            ("queue_count", ctypes.c_int, (ctypes.c_int64, ctypes.c_int))):
        called = getattr(c, "quern_torch_" + function)
        called.restype, called.argtypes = result, arguments
    error = c.quern_torch_load()
    if error:
        raise ImportError(f"quern.torch: {error.decode()}")
    return c


def _tag_caches(*paths):
    """Graphs that torch.compile keeps on disk have the shapes of the operators' results: those of
    other files than these, a build or specs, must not be found."""
    crc = 0
    for path in paths:
        with open(path, "rb") as file:
            crc = zlib.crc32(file.read(), crc)
    torch.compiler.config.cache_key_tag += f" quern {crc}"


def _add_specs(folder):
    error = library.quern_torch_specs(os.fsencode(folder))
    if error:
        raise RuntimeError(error.decode())
    _tag_caches(*sorted(glob.glob(os.path.join(glob.escape(folder), "**/*.lua"), recursive=True)))


library = _load()
_tag_caches(quern.find("libquern.so.0"))  # COUPLED: soname
for _folder in quern.specs:
    _add_specs(_folder)
quern._told.append(_add_specs)
ops = torch.ops.quern


def _ragged(line):
    """The key of a line that counts the rows of all groups; None: no key does."""
    words = line.split()
    if "of=w" in words or "ragged=none" in words or words[0] == "rescale":
        return None
    given = [word[7:] for word in words if word.startswith("ragged=")]
    return given[0] if given else "k" if words[0] == "wgrad" else "m"


def _fake(name):
    """A fake kernel, whose results have the shapes of the line's operands."""
    schema = getattr(ops, name).default._schema
    names = [argument.name for argument in schema.arguments]
    keys = [a.name for a in schema.arguments if str(a.type) == "int"
            and a.name not in ("queue", "layer")]
    results = [result.name for result in schema.returns]
    phase = _PHASES.get(name.strip("_")[4:], 0)

    def fake(*args, **more):
        if not results:
            return None
        given = dict(zip(names, args), **more)
        ragged = _ragged(given["line"])
        rows = given[ragged] if ragged else 0
        numbers = [f"{key}={128 if key == ragged else int(given[key])}" for key in keys]
        table = quern.describe(" ".join([given["line"], *numbers]))
        made = {operand.name.replace(".", "_"): operand for operand in table.values()
                if operand.written >> phase & 1}
        like = next(value for value in given.values() if isinstance(value, torch.Tensor))
        made = [_empty(like, made.get(result), rows) for result in results]
        return made[0] if len(made) == 1 else tuple(made)

    torch.library.register_fake(f"quern::{name}", fake)


def _empty(like, operand, rows):
    """As the operator allocates it: narrow types and padded rows are bytes, a missing result is
    empty."""
    if operand is None:
        return like.new_empty(0, dtype=torch.uint8)
    if operand.type in DTYPES and operand.shape and not operand.is_padded:
        return like.new_empty([extent.at(rows) for extent in operand.shape],
                              dtype=DTYPES[operand.type])
    return like.new_empty(operand.bytes.at(rows), dtype=torch.uint8)


for _name in NAMES:
    _fake(_name)
