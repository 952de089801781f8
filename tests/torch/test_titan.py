# SPDX-License-Identifier: Apache-2.0
"""torchtitan's experts by quern, against torchtitan's own."""

import importlib.util
import os
import sys
import warnings

import pytest
import torch
from peers import assert_ratio, decibels, fake_triton, fill, gradients, need

import quern.torch as qt

need("torchtitan")
with fake_triton():
    need("torchtitan.models.common.moe")
from torchtitan.config.override import OverrideConfig, apply_overrides  # noqa: E402
from torchtitan.models.common.moe import GroupedExperts, RoutedExperts  # noqa: E402
from torchtitan.models.common.token_dispatcher import LocalTokenDispatcher  # noqa: E402

LENGTHS = [10, 8, 12, 9, 11, 7, 10, 13]


def gpt_oss_experts():
    """The class of torchtitan/models/gpt_oss/moe.py. Its package needs a newer torch:

        torchtitan/distributed/fsdp.py, line 13: ImportError: cannot import name
        'DataParallelMeshDims' from 'torch.distributed.fsdp'
    """
    folder = os.path.dirname(sys.modules["torchtitan"].__file__)
    spec = importlib.util.spec_from_file_location(
        "titan_gpt_oss", os.path.join(folder, "models", "gpt_oss", "moe.py"))
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module.GptOssGroupedExperts


CLASSES = {"GroupedExperts": GroupedExperts, "GptOssGroupedExperts": gpt_oss_experts()}


def make(name="GroupedExperts", dim=64, hidden=48, experts=8):
    config = CLASSES[name].Config(dim=dim, hidden_dim=hidden, num_experts=experts)
    return fill(config.build().to(torch.bfloat16))


def inputs(lengths, dim=64):
    torch.manual_seed(1)
    return torch.randn(sum(lengths), dim).to(torch.bfloat16), torch.tensor(lengths)


@pytest.mark.parametrize("name", CLASSES)
@pytest.mark.parametrize("whole", [True, False])
@pytest.mark.parametrize("recipe, least", [("bf16", 45), ("fp8_block", 17), ("mxfp8", 17)])
@pytest.mark.parametrize("lengths", [LENGTHS, [0, 0, 21, 1, 0, 40, 0, 0]])
def test_experts_equal_torchtitans(name, whole, recipe, least, lengths):
    experts, given = make(name), inputs(lengths)
    expected = gradients(experts, given, experts)
    with qt.install("torchtitan", *(() if whole else (experts,)), recipe=recipe):
        found = gradients(experts, given, experts)
    assert_ratio(found, expected, least)
    assert recipe == "bf16" or decibels(found[0], expected[0]) < 60
    assert all(map(torch.equal, gradients(experts, given, experts), expected))


@pytest.mark.parametrize("dim, hidden, recipe", [(128, 256, "bf16"), (256, 128, "fp8_block")])
def test_grouped_mm_compiles_and_runs(dim, hidden, recipe):
    """torchtitan's case: 8 experts with uneven lengths, fullgraph, inductor."""
    experts, given = make(dim=dim, hidden=hidden), inputs(LENGTHS, dim)
    torch._dynamo.reset()
    with qt.install("torchtitan", recipe=recipe):
        compiled = torch.compile(experts, fullgraph=True, backend="inductor")
        expected = gradients(experts, given, experts)
        assert_ratio(gradients(compiled, given, experts), expected,
                     38 if recipe == "bf16" else 20)


@pytest.mark.parametrize("name", CLASSES)
@pytest.mark.parametrize("recipe", ["bf16", "mxfp8"])
def test_override(name, recipe):
    """As --override.imports names it, in a tree of configurations."""
    inner = CLASSES[name].Config(dim=64, hidden_dim=48, num_experts=8)
    dispatcher = LocalTokenDispatcher.Config(num_experts=8, top_k=2)
    tree = RoutedExperts.Config(inner_experts=inner, token_dispatcher=dispatcher)
    told = apply_overrides(OverrideConfig(imports=[("quern.torch.titan.experts",
                                                    {"recipe": recipe})]), tree)
    assert len(told) == 1 and tree.inner_experts.recipe == recipe
    ours = fill(tree.build().to(torch.bfloat16)).inner_experts
    theirs, given = make(name), inputs(LENGTHS)
    assert isinstance(ours, CLASSES[name]) and ours.state_dict().keys() == theirs.state_dict().keys()
    assert_ratio(gradients(ours, given, ours), gradients(theirs, given, theirs),
                 45 if recipe == "bf16" else 17)


def test_undo():
    seam, experts = GroupedExperts._grouped_mm, make()
    first, second = qt.install("torchtitan"), qt.install("torchtitan", experts, recipe="mxfp8")
    assert GroupedExperts._grouped_mm is not seam and "_grouped_mm" in vars(experts)
    second.undo()
    first.undo()
    assert GroupedExperts._grouped_mm is seam and "_grouped_mm" not in vars(experts)


@pytest.mark.parametrize("backend", [None, "aot_eager"])
def test_fallback_warns_once(backend):
    """The seam multiplies bfloat16; a recipe of float16 leaves that to torch."""
    qt._compile._said.clear()
    torch._dynamo.reset()
    experts, given = make(), inputs(LENGTHS)
    expected = gradients(experts, given, experts)
    run = torch.compile(experts, fullgraph=True, backend=backend) if backend else experts
    with qt.install("torchtitan", recipe="fp16"), warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        found = gradients(run, given, experts)
    assert all(map(torch.equal, found, expected))
    assert [str(w.message) for w in caught if "quern" in str(w.message)] == [
        "quern.torch: torch computes this _grouped_mm: mat_a is torch.bfloat16: recipe fp16 "
        "multiplies torch.float16"]


def test_bad_input():
    with pytest.raises(ValueError, match="model: it has no torchtitan GroupedExperts"):
        qt.install("torchtitan", torch.nn.Linear(2, 2))
    with pytest.raises(RuntimeError, match="did you mean 'bf16'"):
        qt.install("torchtitan", recipe="bf17")
