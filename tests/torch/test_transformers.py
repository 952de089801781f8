# SPDX-License-Identifier: Apache-2.0
"""Experts of transformers' own classes by quern, against transformers' eager implementation."""

import functools
import os
import subprocess
import sys
import warnings

import pytest
import torch
from conftest import ROOT
from peers import FOLDER, assert_ratio, decibels, fill, gradients, need

import quern.torch as qt

transformers = need("transformers")
from transformers.integrations import moe  # noqa: E402

SMALL = {"vocab_size": 64, "hidden_size": 72, "num_hidden_layers": 1, "num_attention_heads": 4,
         "num_key_value_heads": 4, "num_experts_per_tok": 2, "bos_token_id": 1, "eos_token_id": 2,
         "pad_token_id": 0, "head_dim": 18}
MODELS = {
    "Olmoe": {"intermediate_size": 44, "num_experts": 8},
    "Mixtral": {"intermediate_size": 40, "num_local_experts": 6},
    "Qwen3Moe": {"moe_intermediate_size": 44, "num_experts": 8},
    "GptOss": {"intermediate_size": 44, "num_local_experts": 8, "sliding_window": 16},
}
IDS = torch.randint(0, 64, (2, 40), generator=torch.Generator(torch.get_default_device()))


def make(name, dtype=torch.bfloat16, **more):
    config = getattr(transformers, name + "Config")(**{**SMALL, **MODELS[name], **more})
    model = getattr(transformers, name + "ForCausalLM")(config).to(dtype)
    model.set_experts_implementation("eager")
    return fill(model, 0.2)


def experts_of(model):
    return next(m for m in model.modules() if type(m).__name__.endswith("Experts"))


def step(model, function=None):
    model.zero_grad()
    loss = (model if function is None else function)(IDS, labels=IDS).loss
    loss.backward()
    return loss.item(), [p.grad.clone() for p in experts_of(model).parameters()]


def layer(experts):
    """The module as a function of tokens, choices and their weights."""
    return lambda x, weights, index: experts(x, index, weights)


def inputs(experts, tokens=50, choices=2, only=None):
    """Tokens, weights and choices; `only`: the experts that are chosen."""
    torch.manual_seed(3)
    width = experts.down_proj.shape[1 if not experts.is_transposed else 2]
    known = torch.arange(experts.num_experts) if only is None else torch.tensor(only)
    index = torch.stack([known[torch.randperm(len(known))[:choices]] for _ in range(tokens)])
    x = torch.randn(tokens, width).to(experts.down_proj.dtype)
    return x, torch.rand(tokens, choices).to(x.dtype), index


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("recipe, least", [("bf16", 35), ("fp8_block", 14), ("mxfp8", 14)])
def test_model_equals_eager(name, recipe, least):
    model = make(name)
    loss, expected = step(model)
    with qt.install("transformers", model, recipe=recipe):
        assert model.config._experts_implementation == f"quern_{recipe}"
        found_loss, found = step(model)
    assert abs(found_loss - loss) < (0.01 if recipe == "bf16" else 0.03) * loss
    assert_ratio(found, expected, least)
    assert model.config._experts_implementation == "eager"
    assert step(model)[0] == loss


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("is_compiled", [False, True])
def test_autocast_of_weights_in_fp32(name, is_compiled):
    """As a trainer of transformers has it with bf16=True: quern computes, without a warning."""
    model = make(name, torch.float32)

    def function(*args, **more):
        with torch.autocast(IDS.device.type, torch.bfloat16):
            return model(*args, **more)

    loss, expected = step(model, function)
    with qt.install("transformers", model), warnings.catch_warnings():
        warnings.filterwarnings("error", message="quern")
        found_loss, found = step(model, torch.compile(function, backend="aot_eager")
                                 if is_compiled else function)
    assert abs(found_loss - loss) < 0.01 * loss and found[0].dtype == torch.float32
    assert_ratio(found, expected, 30)


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("only", [None, [1, 4], [0, 2, 5]])
def test_experts_equal_eager(name, only):
    """Values and every gradient, with experts that have no token."""
    model = make(name)
    experts = experts_of(model)
    given = inputs(experts, only=only)
    expected = gradients(layer(experts), given, experts)
    with qt.install("transformers", model):
        assert_ratio(gradients(layer(experts), given, experts), expected, 38)


@pytest.mark.parametrize("name", ["Qwen3Moe", "GptOss"])
@pytest.mark.parametrize("recipe", ["bf16", "fp8_block"])
@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_compiled(name, recipe, backend):
    model = make(name)
    experts = experts_of(model)
    torch._dynamo.reset()
    with qt.install("transformers", model, recipe=recipe):
        compiled = torch.compile(layer(experts), fullgraph=True, backend=backend)
        for tokens in (50, 33):
            given = inputs(experts, tokens)
            expected = gradients(layer(experts), given, experts)
            found = gradients(compiled, given, experts)
            # inductor rounds less; then other values are quantized
            assert_ratio(found, expected, 38 if recipe == "bf16" else 20)


def test_compiled_model():
    model = make("Olmoe")
    torch._dynamo.reset()
    with qt.install("transformers", model):
        loss, expected = step(model)
        found_loss, found = step(model, torch.compile(model, fullgraph=True, backend="aot_eager"))
    assert found_loss == pytest.approx(loss, rel=1e-3)
    assert_ratio(found, expected, 38)


@pytest.mark.parametrize("name", ["Qwen3Moe", "GptOss"])
@pytest.mark.parametrize("recipe", ["bf16", "fp8_block"])
def test_sentinels(name, recipe):
    """Expert parallelism: choices of num_experts belong to other processes and have no weight."""
    model = make(name)
    experts = experts_of(model)
    x, weights, index = inputs(experts, 60)
    away = torch.rand(index.shape) < 0.4
    index = index.masked_fill(away, experts.num_experts)
    weights = weights.masked_fill(away, 0)
    expected = reference(experts, x, weights, index)
    with qt.install("transformers", model, recipe=recipe):
        found = gradients(layer(experts), (x, weights, index), experts)
    assert not found[2][away].any()  # the gradient of a weight that has no expert here
    assert_ratio(found, expected, 38 if recipe == "bf16" else 14)


def reference(experts, x, weights, index):
    """Expert by expert, each token that chose it; choices of num_experts are left out."""
    def forward(x, weights, index):
        y = torch.zeros_like(x)
        for e in range(experts.num_experts):
            token, choice = torch.where(index == e)
            w1, w2 = experts.gate_up_proj[e], experts.down_proj[e]
            if experts.is_transposed:
                w1, w2 = w1.T, w2.T
            h = x[token] @ w1.T
            if experts.has_bias:
                h = h + experts.gate_up_proj_bias[e]
            out = experts._apply_gate(h) @ w2.T
            if experts.has_bias:
                out = out + experts.down_proj_bias[e]
            y = y.index_add(0, token, out * weights[token, choice, None])
        return y

    return gradients(forward, (x, weights, index), experts)


@pytest.mark.parametrize("act", ["silu", "gelu", "gelu_pytorch_tanh", "relu", "relu2", "quick_gelu"])
def test_activations(act):
    model = make("Mixtral", hidden_act=act)
    experts = experts_of(model)
    expected = gradients(layer(experts), inputs(experts), experts)
    with qt.install("transformers", model):
        assert_ratio(gradients(layer(experts), inputs(experts), experts), expected, 36)


@pytest.mark.parametrize("folder, name, more", [
    ("nemotron_h", "NemotronH", {"n_routed_experts": 6, "moe_intermediate_size": 40,
                                 "moe_latent_size": None}),  # no gate
    ("openai_privacy_filter", "OpenAIPrivacyFilter", {"num_local_experts": 6,
                                                      "intermediate_size": 40}),  # halves, biases
])
@pytest.mark.parametrize("recipe, least", [("bf16", 34), ("fp8_block", 14)])
def test_layouts(folder, name, more, recipe, least):
    module = need(f"transformers.models.{folder}.modeling_{folder}")
    config = getattr(transformers, name + "Config")()
    for key, value in {"hidden_size": 72, **more}.items():
        setattr(config, key, value)
    config._experts_implementation = "eager"
    experts = fill(getattr(module, name + "Experts")(config).to(torch.bfloat16), 0.2)
    given = inputs(experts)
    expected = gradients(layer(experts), given, experts)
    with qt.install("transformers", recipe=recipe):
        config._experts_implementation = "quern"
        assert_ratio(gradients(layer(experts), given, experts), expected, least)


def losses(model):
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    found = []
    for _ in range(50):
        loss = model(IDS, labels=IDS).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        found.append(loss.item())
    return found


@functools.lru_cache(maxsize=None)
def eager_losses(name):
    return losses(make(name))


@pytest.mark.parametrize("recipe, within", [("bf16", 0.01), ("fp8_block", 0.03)])
@pytest.mark.parametrize("name", ["Qwen3Moe", "GptOss"])
def test_training(name, recipe, within):
    """50 steps: each loss is that of eager's training, within 1 % or 3 %."""
    expected = eager_losses(name)
    model = make(name)
    with qt.install("transformers", model, recipe=recipe):
        found = losses(model)
    assert expected[-1] < 0.9 * expected[0]
    assert max(abs(f - e) / e for f, e in zip(found, expected)) < within


def test_default_implementation_by_the_override():
    """transformers' own grouped_mm, with torch._grouped_mm replaced."""
    model = make("Olmoe", hidden_size=64, head_dim=16, intermediate_size=48)
    loss, expected = step(model)
    model.set_experts_implementation("grouped_mm")
    with qt.replace_grouped_mm():
        found_loss, found = step(model)
    assert found_loss == pytest.approx(loss, rel=0.01)
    assert_ratio(found, expected, 35)


# --------------------------------------------------------------------------------- on and off


def test_undo():
    before = dict(moe.ExpertsInterface._global_mapping)
    one, other = make("Olmoe"), make("Mixtral")
    first = qt.install("transformers", one, recipe="fp8_block")
    second = qt.install("transformers", other, recipe="fp8_block")
    registered = qt.install("transformers", recipe="mxfp8")
    assert {"quern", "quern_fp8_block"} == moe.ExpertsInterface._global_mapping.keys() - before
    first.undo()
    first.undo()  # does nothing
    step(other)
    assert one.config._experts_implementation == "eager"
    registered.undo()
    second.undo()
    assert moe.ExpertsInterface._global_mapping == before
    with pytest.raises(ValueError, match="quern"):
        one.set_experts_implementation("quern")


def test_from_config():
    with qt.install("transformers"):
        config = transformers.OlmoeConfig(**SMALL, **MODELS["Olmoe"])
        config._experts_implementation = "quern"
        model = fill(transformers.OlmoeForCausalLM(config).to(torch.bfloat16), 0.2)
        loss = step(model)[0]
    assert loss == pytest.approx(step(make("Olmoe"))[0], rel=0.01)


def test_bad_input():
    with qt.install("transformers"):
        with pytest.raises(ValueError, match="'quern' is installed with recipe bf16"):
            qt.install("transformers", recipe="mxfp8")
    with pytest.raises(ValueError, match="transformers has an implementation 'grouped_mm'"):
        qt.install("transformers", implementation="grouped_mm")
    with pytest.raises(RuntimeError, match="did you mean 'bf16'"):
        qt.install("transformers", recipe="bf17")
    with pytest.raises(ValueError, match="name is 'tensorflow'"):
        qt.install("tensorflow")


def test_fallback_warns_once():
    """Values that a recipe does not multiply: eager's bits, and one sentence."""
    qt._compile._said.clear()
    model = make("Olmoe", torch.float32)
    loss, expected = step(model)
    with qt.install("transformers", model), warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(2):
            found_loss, found = step(model)
    assert found_loss == loss and all(map(torch.equal, found, expected))
    told = [str(w.message) for w in caught if "quern" in str(w.message)]
    assert told == ["quern.torch: transformers' eager experts compute OlmoeExperts: gate_up_proj "
                    "is torch.float32: recipe bf16 multiplies torch.bfloat16"]


def test_packed_weights_in_float16():
    """A model in half precision takes the recipe of the same weights for it; recipes without one
    leave the experts to transformers, with a sentence."""
    qt._compile._said.clear()
    model = make("Qwen3Moe", torch.float16)
    experts = experts_of(model)
    expected = gradients(layer(experts), inputs(experts), experts)

    def by(recipe):
        with qt.install("transformers", model, recipe=recipe):
            return gradients(layer(experts), inputs(experts), experts)

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        found, named = by("w4a16_int4"), by("w4a16_int4_fp16")
        assert not [w for w in caught if "quern" in str(w.message)]
        same = by("w4a16_mxfp4")
    assert found[0].dtype == torch.float16
    assert all(map(torch.equal, found, named))
    assert_ratio(found[:1], expected[:1], 10)
    assert decibels(found[0], expected[0]) < 40  # it was quantized
    assert all(map(torch.equal, same, expected))
    assert [str(w.message) for w in caught if "quern" in str(w.message)] == [
        "quern.torch: transformers' eager experts compute Qwen3MoeExperts: tokens are "
        "torch.float16: recipe w4a16_mxfp4 multiplies torch.bfloat16"]


def test_scaled_recipes_take_float32():
    model = make("Olmoe", torch.float32)
    experts = experts_of(model)
    expected = gradients(layer(experts), inputs(experts), experts)
    with qt.install("transformers", model, recipe="fp8_block"):
        found = gradients(layer(experts), inputs(experts), experts)
    assert_ratio(found, expected, 14)
    assert decibels(found[0], expected[0]) < 60  # it was quantized


def test_example():
    paths = os.pathsep.join([os.path.join(ROOT, "runtime", "python"), FOLDER])
    program = os.path.join(ROOT, "examples", "torch_transformers.py")
    text = subprocess.run([sys.executable, program], check=True, capture_output=True, text=True,
                          env={**os.environ, "PYTHONPATH": paths}).stdout
    assert "in FP8 by quern" in text and "largest difference" in text
