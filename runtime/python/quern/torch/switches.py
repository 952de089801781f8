# SPDX-License-Identifier: Apache-2.0
"""Switches that make other libraries use quern: one line on, one line off.

    switch = quern.torch.replace_grouped_mm()
    switch = quern.torch.install("transformers", model, recipe="fp8_block")
    switch.undo()
"""

import importlib
import threading

import torch

from quern._switch import Switch
from quern.torch import _checks, _compile
from quern.torch._ops import library

PEERS = {"transformers": "transformers", "torchtitan": "titan", "torchao": "torchao",
         "megatron": "megatron"}  # and the modules here


def install(name, /, *args, **options):
    """Make a library use quern: "transformers", "torchtitan", "torchao" or "megatron".

    The other arguments are those of `install` in quern.torch.transformers, .titan, .torchao and
    .megatron. Returns a Switch.
    """
    _checks.word("name", name, PEERS)
    return importlib.import_module(f"quern.torch.{PEERS[name]}").install(*args, **options)


def TrainingConfig(recipe="fp8_block"):  # noqa: N802 (the name of a class, as torchao has them)
    """A configuration for torchao's quantize_: see quern.torch.torchao."""
    return importlib.import_module("quern.torch.torchao").TrainingConfig(recipe)


def attribute(owner, name, value):
    """Set an attribute; a Switch that restores the old one."""
    missing = object()
    old = vars(owner).get(name, missing)

    def undo():
        if old is missing:
            delattr(owner, name)
        else:
            setattr(owner, name, old)

    setattr(owner, name, value)
    return Switch(undo)


def all_of(switches):
    """One Switch of several, undone in the reverse order."""
    def undo():
        while switches:
            switches.pop().undo()

    return Switch(undo)


# ------------------------------------------------------------------------------------- warnings

def warn_once(sentence):
    """Warn of a switch, the first time that this sentence occurs in the process."""
    _compile.warn_once(f"quern.torch: {sentence}", 4)


# ----------------------------------------------------------------------------- torch._grouped_mm

_lock = threading.Lock()
_users = 0
_own = {}  # torch's kernels, by dispatch key
_space = None


def _call_own(keyset, *args):
    """torch's kernel of _grouped_mm. Its error returns as bytes: C throws it again."""
    key = "CUDA" if args[0].is_cuda else "CPU"
    try:
        return _own[key].call_boxed(keyset, *args)
    except Exception as e:  # noqa: BLE001 (any: a C frame is between here and the caller)
        sentence = str(e).split("\nException raised from")[0] or type(e).__name__
        return torch.frombuffer(bytearray(sentence.encode()), dtype=torch.uint8)


def _find_own():
    """Look torch's kernels up, before they are replaced, and let C call them."""
    global _space
    if not hasattr(torch.library, "get_kernel"):
        raise RuntimeError("replace_grouped_mm: torch.library.get_kernel is missing: "
                           f"torch {torch.__version__} is too old")
    for key in ("CPU", "CUDA"):
        try:
            _own[key] = torch.library.get_kernel("aten::_grouped_mm", key)
        except RuntimeError:  # a torch without CUDA
            continue
    _space = torch.library.Library("quern", "FRAGMENT")
    _space.define("grouped_mm_of_torch(Tensor self, Tensor mat2, Tensor? offs, Tensor? bias, "
                  "ScalarType? out_dtype) -> Tensor")
    for key in _own:
        _space.impl("grouped_mm_of_torch", _call_own, key, with_keyset=True)


def _replace(on):
    for key in _own:
        error = library.quern_torch_replace(key.encode(), int(on))
        if error:
            raise RuntimeError(f"replace_grouped_mm: {error.decode()}")


def replace_grouped_mm():
    """Let quern serve aten::_grouped_mm on CPU and CUDA tensors, and so torch._grouped_mm,
    torch.nn.functional.grouped_mm and everything on them, gradients and compiled code included.

    bfloat16 and float16, two or three axes each, any layout; other calls (float32, a bias, another
    out_dtype) go on to torch's kernel. Returns a Switch; torch's kernel is back when all are
    undone.
    """
    global _users
    with _lock:
        if not _own:
            _find_own()
        if not _users:
            _replace(True)
        _users += 1

    def undo():
        global _users
        with _lock:
            _users -= 1
            if not _users:
                _replace(False)

    return Switch(undo)
