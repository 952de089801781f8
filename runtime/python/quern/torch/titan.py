# SPDX-License-Identifier: Apache-2.0
"""torchtitan's experts by quern: its seam GroupedExperts._grouped_mm. Groups need no padding.

    --override.imports 'quern.torch.titan.experts={"recipe": "fp8_block"}'     as a configuration, or
    switch = quern.torch.install("torchtitan", recipe="fp8_block")             at any time
"""

import dataclasses
import functools
import types

from torchtitan.config.override import derive, override
from torchtitan.models.common.moe import GroupedExperts

from . import experts as _experts
from .switches import all_of, attribute


def _seam(recipe):
    _experts.check_recipe(recipe)

    def _grouped_mm(self, *, A, B_t, offs):
        return _experts.grouped_mm(A, B_t, offs, recipe)

    return _grouped_mm


@functools.lru_cache(maxsize=None)
def _class_of(base):
    """The subclass of a class with the seam, whose configuration also has a recipe."""
    class QuernGroupedExperts(base):

        @dataclasses.dataclass(kw_only=True, slots=True)
        class Config(base.Config):
            recipe: str = "bf16"

        def __init__(self, config):
            super().__init__(config)
            self.recipe = _experts.check_recipe(config.recipe)

        def _grouped_mm(self, *, A, B_t, offs):
            return _experts.grouped_mm(A, B_t, offs, self.recipe)

    QuernGroupedExperts.__qualname__ = QuernGroupedExperts.__name__ = f"Quern{base.__name__}"
    return QuernGroupedExperts


@override(target=GroupedExperts.Config, description="Products of experts by quern.")
def experts(config, recipe="bf16"):
    """The configuration of the same experts, by quern."""
    return derive(config, _class_of(type(config)._owner).Config, recipe=recipe)


def install(model=None, *, recipe="bf16"):
    """Let all GroupedExperts, or those of a model, multiply by a recipe. Returns a Switch."""
    seam = _seam(recipe)
    if model is None:
        return attribute(GroupedExperts, "_grouped_mm", seam)
    layers = [m for m in model.modules() if isinstance(m, GroupedExperts)]
    if not layers:
        raise ValueError("model: it has no torchtitan GroupedExperts")
    return all_of([attribute(m, "_grouped_mm", types.MethodType(seam, m)) for m in layers])
