# SPDX-License-Identifier: Apache-2.0
"""Megatron-Core's experts by quern, against Megatron's own SequentialMLP."""

import copy
import warnings

import pytest
import torch
import torch.nn.functional as F
from conftest import DEVICE
from peers import assert_ratio, decibels, fill, gradients, need

import quern.torch as qt

need("megatron.core")
with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from megatron.core import parallel_state
    from megatron.core.dist_checkpointing.mapping import apply_factories
    from megatron.core.models.gpt.moe_module_specs import get_moe_module_spec
    from megatron.core.process_groups_config import ProcessGroupCollection
    from megatron.core.transformer.moe.experts import SequentialMLP
    from megatron.core.transformer.spec_utils import build_module
    from megatron.core.transformer.transformer_config import TransformerConfig

EXPERTS, HIDDEN, FFN = 4, 72, 44


@pytest.fixture(scope="module", autouse=True)
def groups():
    """One process. Closed afterwards."""
    store = torch.distributed.HashStore()
    torch.distributed.init_process_group("gloo", store=store, rank=0, world_size=1)
    parallel_state.initialize_model_parallel()
    yield
    parallel_state.destroy_model_parallel()
    torch.distributed.destroy_process_group()


def configure(**more):
    return TransformerConfig(**{
        "num_layers": 1, "hidden_size": HIDDEN, "num_attention_heads": 4, "ffn_hidden_size": FFN,
        "num_moe_experts": EXPERTS, "moe_ffn_hidden_size": FFN, "gated_linear_unit": True,
        "activation_func": F.silu, "add_bias_linear": False, "bias_activation_fusion": False,
        "gradient_accumulation_fusion": False, "use_cpu_initialization": DEVICE == "cpu",
        "bf16": True, "params_dtype": torch.bfloat16, "moe_router_topk": 2, **more})


def experts_of_spec(config, grouped):
    spec = get_moe_module_spec(use_te=False, num_experts=EXPERTS, moe_grouped_gemm=grouped)
    pg = ProcessGroupCollection.use_mpu_process_groups()
    return build_module(spec.submodules.experts, EXPERTS, config, pg_collection=pg)


def both(config, recipe="bf16"):
    """Megatron's and ours, with the same weights."""
    theirs = fill(experts_of_spec(config, grouped=False), 0.2)
    with qt.install("megatron", recipe=recipe):
        ours = experts_of_spec(config, grouped=True)
    if config.add_bias_linear:
        for expert in theirs.local_experts:
            expert.linear_fc2.register_forward_hook(clone)
    with torch.no_grad():
        for name, path in (("weight1", "linear_fc1.weight"), ("weight2", "linear_fc2.weight"),
                           ("bias1", "linear_fc1.bias"), ("bias2", "linear_fc2.bias")):
            if hasattr(ours, name):
                getattr(ours, name).copy_(parameters(theirs, path))
    return theirs, ours


def clone(module, args, result):
    """Megatron adds the bias in place, which this torch refuses:

        Output 0 of _ReduceFromModelParallelRegionBackward is a view and is being modified inplace.
    """
    return result[0].clone(), result[1]


def parameters(theirs, path):
    return torch.stack([e.get_parameter(path) for e in theirs.local_experts])


def compare(config, lengths=(10, 0, 33, 5), recipe="bf16", least=38, function=None):
    theirs, ours = both(config, recipe)
    torch.manual_seed(2)
    counts, rows = torch.tensor(lengths), sum(lengths)
    given = torch.randn(rows, HIDDEN).to(torch.bfloat16), torch.rand(rows), counts
    expected = gradients(lambda x, p, n: theirs(x, n, p)[0], given, theirs)
    grads = [torch.stack([e.get_parameter(path).grad for e in theirs.local_experts])
             for path in ("linear_fc1.weight", "linear_fc2.weight", "linear_fc1.bias",
                          "linear_fc2.bias") if path.split(".")[1] == "weight"
             or config.add_bias_linear]
    forward = function(ours) if function else ours
    found = gradients(lambda x, p, n: forward(x, n, p)[0], given, ours)
    assert_ratio(found, expected[:3] + grads, least, ["y", "x", "probs", "w1", "w2", "b1", "b2"])
    return found, expected[:3] + grads


@pytest.mark.parametrize("more", [
    {},
    {"activation_func": F.gelu},
    {"activation_func_clamp_value": 1.0, "glu_linear_offset": 1.0},
    {"activation_func": F.relu, "gated_linear_unit": False},
    {"activation_func": F.gelu, "gated_linear_unit": False, "add_bias_linear": True},
    {"add_bias_linear": True},
    {"moe_apply_probs_on_input": True, "moe_router_topk": 1, "moe_router_pre_softmax": True},
])
def test_configurations(more):
    compare(configure(**more), least=36)


@pytest.mark.parametrize("lengths", [(0, 0, 17, 1), (128, 128, 128, 128), (1, 2, 3, 250)])
@pytest.mark.parametrize("recipe, least", [("bf16", 38), ("fp8_block", 14), ("mxfp8", 14)])
def test_lengths(lengths, recipe, least):
    found, expected = compare(configure(), lengths, recipe, least)
    assert decibels(found[0], expected[0]) < 60 or recipe == "bf16"


def test_no_tokens():
    _, ours = both(configure(add_bias_linear=True))
    x = torch.empty(0, HIDDEN, dtype=torch.bfloat16, requires_grad=True)
    y, bias = ours(x, torch.zeros(EXPERTS, dtype=torch.int64), torch.empty(0))
    y.sum().backward()
    assert y.shape == (0, HIDDEN) and bias is None and x.grad.shape == x.shape
    assert all(not p.grad.any() for p in ours.parameters())


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_compiled(backend):
    torch._dynamo.reset()
    compare(configure(add_bias_linear=True), least=36,
            function=lambda m: torch.compile(m, fullgraph=True, backend=backend))


@pytest.mark.parametrize("single", [False, True])
@pytest.mark.parametrize("bias", [False, True])
def test_checkpoints_have_the_tensors_of_sequential_mlp(single, bias):
    theirs, ours = both(configure(add_bias_linear=bias))
    metadata = {"singleton_local_shards": single}

    def shards(state):
        apply_factories(state)
        found, rest = {}, list(state.values())
        while rest:
            t = rest.pop()
            if isinstance(t, (list, dict)):
                rest += t.values() if isinstance(t, dict) else t
            elif hasattr(t, "global_offset") and "_extra_state" not in t.key:
                found[t.key, t.global_offset] = t
        return found

    expected = shards(theirs.sharded_state_dict("mlp.experts.", (), copy.copy(metadata)))
    found = shards(ours.sharded_state_dict("mlp.experts.", (), copy.copy(metadata)))
    assert found.keys() == expected.keys() and found
    for key, t in found.items():
        other = expected[key]
        assert (t.global_shape, t.local_shape, t.axis_fragmentations, t.prepend_axis_num) == \
               (other.global_shape, other.local_shape, other.axis_fragmentations,
                other.prepend_axis_num)
        assert torch.equal(t.data, other.data)


def test_checkpoints_load():
    _, ours = both(configure(add_bias_linear=True))
    state = ours.sharded_state_dict("mlp.experts.")
    for name, p in ours.named_parameters():
        factory = state[f"mlp.experts.{name}"]
        loaded = [shard.data for shard in factory.build()]
        assert torch.equal(factory.merge_fn(loaded), p)


def test_initial_values():
    with qt.install("megatron"):
        ours = experts_of_spec(configure(), grouped=True)
    theirs = experts_of_spec(configure(), grouped=False)
    for name, path in (("weight1", "linear_fc1.weight"), ("weight2", "linear_fc2.weight")):
        found, expected = getattr(ours, name), parameters(theirs, path)
        assert found.std().item() == pytest.approx(expected.std().item(), rel=0.05)
        assert found.allreduce and found.tensor_model_parallel


def test_undo():
    first = qt.install("megatron", recipe="fp8_block")
    second = qt.install("megatron", recipe="mxfp8")
    assert experts_of_spec(configure(), grouped=True).recipe == "mxfp8"
    second.undo()
    assert experts_of_spec(configure(), grouped=True).recipe == "fp8_block"
    assert type(experts_of_spec(configure(), grouped=False)) is SequentialMLP
    first.undo()
    spec = get_moe_module_spec(use_te=False, num_experts=EXPERTS, moe_grouped_gemm=True)
    assert spec.submodules.experts.module.__name__ == "GroupedMLP"


@pytest.mark.parametrize("more, sentence", [
    ({"delay_wgrad_compute": True, "overlap_moe_expert_parallel_comm": False},
     "config.delay_wgrad_compute is set"),
    ({"params_dtype": torch.float32, "bf16": False}, "params_dtype is torch.float32: recipe bf16"),
    ({"recompute_granularity": "selective", "recompute_modules": ["moe_act"]},
     "config.recompute_modules has moe_act"),
])
def test_fallback_warns(more, sentence):
    qt._compile._said.clear()
    config = configure()
    for key, value in more.items():
        setattr(config, key, value)
    with qt.install("megatron"), pytest.warns(UserWarning, match=sentence):
        assert type(experts_of_spec(config, grouped=True)) is SequentialMLP


def test_bad_input():
    with pytest.raises(RuntimeError, match="did you mean 'bf16'"):
        qt.install("megatron", recipe="bf17")
