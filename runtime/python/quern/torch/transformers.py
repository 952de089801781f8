# SPDX-License-Identifier: Apache-2.0
"""Experts of Hugging Face's transformers by quern.

    switch = quern.torch.install("transformers", model, recipe="fp8_block")
    switch.undo()

Without a model, the implementation is only registered, for set_experts_implementation("quern") or
from_pretrained(..., experts_implementation="quern").
"""

import functools

import torch
from transformers.integrations.moe import ExpertsInterface, _default_apply_gate

from . import experts, layer
from .switches import Switch, all_of, warn_once


_GATES = {"SiLU": "swiglu", "SiLUActivation": "swiglu", "ReLU": "reglu", "GELUTanh": "geglu"}
_PLAIN = {"ReLUSquaredActivation": "squared_relu", "ReLU": "relu", "SiLU": "silu",
          "SiLUActivation": "silu", "GELUActivation": "gelu", "GELUTanh": "gelu_tanh"}


def _fused(module):
    """The activation as grouped_mlp has it, or None."""
    act = type(getattr(module, "act_fn", None)).__name__
    if not module.has_gate:
        return {"activation": _PLAIN[act]} if act in _PLAIN else None
    if type(module)._apply_gate is _default_apply_gate:
        return {"activation": _GATES[act]} if act in _GATES else None
    if type(module).__name__ not in ("GptOssExperts", "OpenAIPrivacyFilterExperts"):
        return None
    return {"activation": "clamped_swiglu", "limit": module.limit, "slope": module.alpha,
            "shift": 1.0, "interleave": 0 if module.is_concatenated else 1}


def _forward(module, hidden, index, weights, *, recipe):
    """The signature of an experts implementation: hidden [tokens, features], index and weights
    [tokens, choices]; an index of num_experts is a choice that another process has."""
    first = "gate_up_proj" if module.has_gate else "up_proj"
    w1, w2 = experts.cast(recipe, getattr(module, first), module.down_proj)
    recipe = experts.recipe_for(recipe, w1) or recipe
    reason = experts.reason_against(recipe, **{first: w1, "down_proj": w2}) or \
        experts.reason_against_tokens(recipe, w1)
    if reason:
        warn_once(f"transformers' eager experts compute {type(module).__name__}: {reason}")
        return type(module).forward.__wrapped__(module, hidden, index, weights)
    if module.is_transposed:
        w1, w2 = w1.transpose(1, 2), w2.transpose(1, 2)
    b1, b2 = (getattr(module, first + "_bias"), module.down_proj_bias) if module.has_bias else (
        None, None)
    sizes, inverse = layer.route(index, module.num_experts)
    y = experts.mlp(layer.permute(hidden.to(w1.dtype), inverse), w1, w2,
                    sizes.cumsum(0, dtype=torch.int32),
                    module._apply_gate if module.has_gate else module.act_fn, recipe,
                    fused=_fused(module), b1=b1, b2=b2, prob=layer.move_each(weights, inverse))
    return layer.combine(y, inverse).to(hidden.dtype)


_users = {}  # how many switches an implementation has, and its recipe, by name


def _register(name, recipe):
    count, known = _users.get(name, (0, recipe))
    if known != recipe:
        raise ValueError(f"implementation: {name!r} is installed with recipe {known}: undo that first")
    if not count and name in (*ExpertsInterface._global_mapping, "eager"):
        raise ValueError(f"implementation: transformers has an implementation {name!r}")
    _users[name] = count + 1, recipe
    ExpertsInterface.register(name, functools.partial(_forward, recipe=recipe))

    def undo():
        count = _users.pop(name)[0] - 1
        if count:
            _users[name] = count, recipe
        else:
            del ExpertsInterface._global_mapping[name]

    return Switch(undo)


def _use(model, name):
    before = model.config._experts_implementation
    model.set_experts_implementation(name)
    return Switch(lambda: model.set_experts_implementation(before))


def install(model=None, *, recipe="bf16", implementation=None):
    """Register an experts implementation, and let `model` use it. Returns a Switch.

        implementation  its name, default "quern"; with a model, which may have another recipe than
                        the next one, "quern_" and the recipe

    Models in float16 take the recipe of the same packed weights for them, such as w4a16_int4_fp16
    for w4a16_int4. Models whose weights the recipe does not multiply keep transformers' eager
    experts, with one warning that says why.
    """
    experts.check_recipe(recipe)
    name = implementation or ("quern" if model is None else f"quern_{recipe}")
    switches = [_register(name, recipe)]
    if model is not None:
        switches.append(_use(model, name))
    return all_of(switches)
