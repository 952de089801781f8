# SPDX-License-Identifier: Apache-2.0
"""A torchao conversion: the experts of a model multiply by a recipe of quern.

    quantize_(model, quern.torch.TrainingConfig("fp8_block"), filter_fn)
    quern.torch.torchao.undo(model)

Parameters and state dicts stay as they are. Grouped products that a converted module, or a module
in it, asks torch for are quantized as the recipe says; groups need no padding.
"""

import dataclasses
import functools
import threading
import weakref

import torch
from torchao.core.config import AOBaseConfig
from torchao.quantization import quantize_
from torchao.quantization.transform_module import register_quantize_module_handler

from . import experts
from .switches import Switch, attribute, warn_once


@dataclasses.dataclass
class TrainingConfig(AOBaseConfig):
    """Train the experts that a filter of quantize_ finds with a recipe of quern."""

    recipe: str = "fp8_block"

    def __post_init__(self):
        experts.check_recipe(self.recipe)


# -------------------------------------------------------------------------------------- products
#
# torch.compile does not let a TorchFunctionMode see torch._grouped_mm, so functions of torch are
# wrapped while there are converted modules. Elsewhere the wrappers pass everything on.


class _Current(threading.local):
    """The recipe of the converted module that runs now, and how many products it had."""

    recipe = None
    products = 0


_current = _Current()


def _wrap(function):
    @functools.wraps(function)
    def grouped_mm(mat_a, mat_b, offs=None, bias=None, out_dtype=None):
        if _current.recipe is None:
            return function(mat_a, mat_b, offs=offs, bias=bias, out_dtype=out_dtype)
        _current.products += 1
        if offs is None or bias is not None or out_dtype not in (None, mat_a.dtype):
            warn_once("torch computes a grouped product without offs, with a bias or with another "
                      "out_dtype")
            return function(mat_a, mat_b, offs=offs, bias=bias, out_dtype=out_dtype)
        return experts.grouped_mm(mat_a, mat_b, offs, _current.recipe)

    return grouped_mm


_wrappers = []
_converted = weakref.WeakSet()


def _note(module):
    """A module is converted; torch's functions are wrapped from the first one on."""
    _converted.add(module)
    if not _wrappers:
        for owner, name in ((torch, "_grouped_mm"), (torch.nn.functional, "grouped_mm")):
            _wrappers.append(attribute(owner, name, _wrap(getattr(owner, name))))


# --------------------------------------------------------------------------------------- modules


@functools.lru_cache(maxsize=None)
def _class_of(base):
    """The class of a converted module. Instances are copied and pickled by their first class."""
    class Quern(base):

        def forward(self, *args, **kwargs):
            before, _current.recipe = _current.recipe, self._quern_recipe
            _current.products = 0
            try:
                result = super().forward(*args, **kwargs)
            finally:
                _current.recipe = before
            if not _current.products:
                warn_once(f"{type(self).__name__} asked torch for no grouped product: it computes "
                          "as before")
            return result

        def __reduce_ex__(self, protocol):
            return _make, (base,), self.__dict__.copy()

    Quern.__qualname__ = Quern.__name__ = f"Quern{base.__name__}"
    Quern.__module__ = base.__module__
    return Quern


def _make(base):
    module = _class_of(base).__new__(_class_of(base))
    _note(module)
    return module


def _is_converted(module):
    return "_quern_recipe" in vars(module)


@register_quantize_module_handler(TrainingConfig)
def _convert(module, config):
    if not _is_converted(module):
        module.__class__ = _class_of(type(module))
    _note(module)
    module._quern_recipe = config.recipe
    return module


def undo(model):
    """Restore the modules of a converted model."""
    for module in model.modules():
        if _is_converted(module):
            module.__class__ = type(module).__mro__[1]
            del module._quern_recipe
            _converted.discard(module)
    while _wrappers and not _converted:
        _wrappers.pop().undo()


def install(model, *, recipe="fp8_block", filter_fn=None):
    """quantize_ with a TrainingConfig; the default filter finds modules with parameters of three
    axes. Returns a Switch."""
    quantize_(model, TrainingConfig(recipe), filter_fn or _has_experts)
    if not any(map(_is_converted, model.modules())):
        raise ValueError("model: filter_fn found no module")
    return Switch(lambda: undo(model))


def _has_experts(module, name):
    return any(p.dim() == 3 for p in module.parameters(recurse=False))
