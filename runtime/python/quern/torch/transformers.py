# SPDX-License-Identifier: Apache-2.0
"""Experts of Hugging Face's transformers by quern.

    switch = quern.torch.install("transformers", model, recipe="fp8_block")
    switch.undo()

Without a model, the implementation is only registered, for set_experts_implementation("quern") or
from_pretrained(..., experts_implementation="quern").
"""

import functools

from transformers.integrations.moe import ExpertsInterface

from . import experts
from .switches import Switch, all_of, warn_once


def _weights(module):
    return (module.gate_up_proj if module.has_gate else module.up_proj), module.down_proj


def _biases(module):
    if not module.has_bias:
        return None
    first = module.gate_up_proj_bias if module.has_gate else module.up_proj_bias
    return first, module.down_proj_bias


def _forward(module, hidden, index, weights, *, recipe):
    """The signature of an experts implementation: hidden [tokens, features], index and weights
    [tokens, choices]; an index of num_experts is a choice that another process has."""
    w1, w2 = _weights(module)
    reason = experts.reason_against(recipe, gate_up_proj=w1, down_proj=w2)
    if reason:
        warn_once(f"transformers' eager experts compute {type(module).__name__}: {reason}")
        return type(module).forward.__wrapped__(module, hidden, index, weights)
    if module.is_transposed:
        w1, w2 = w1.transpose(1, 2), w2.transpose(1, 2)
    choices, biases = index.shape[-1], _biases(module)
    order, ids, ends, outside = experts.sort_by_expert(index.reshape(-1), module.num_experts)
    # The gradient of rows after the last expert's is undefined: masked here.
    x = hidden[order // choices].masked_fill(outside, 0).to(w1.dtype)
    y = experts.mlp(x, w1, w2, ends, module._apply_gate if module.has_gate else module.act_fn,
                    recipe, biases and (*biases, ids, outside, None))
    y = y.masked_fill(outside, 0) * weights.reshape(-1)[order].unsqueeze(-1)
    return experts.sum_of_choices(y, order, choices).to(hidden.dtype)


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

    Models whose weights the recipe does not multiply keep transformers' eager experts, with one
    warning that says why.
    """
    experts.check_recipe(recipe)
    name = implementation or ("quern" if model is None else f"quern_{recipe}")
    switches = [_register(name, recipe)]
    if model is not None:
        switches.append(_use(model, name))
    return all_of(switches)
