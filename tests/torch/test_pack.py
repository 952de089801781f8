# SPDX-License-Identifier: Apache-2.0
"""Checkpoints in each format that quern pack reads, against the formats' formulas in float64, and
byte for byte after undo. The last tests load packed experts into a model of transformers."""

import filecmp
import json
import os
import subprocess
import sys

import pytest
import torch
from conftest import DEVICE, ROOT
from peers import FOLDER, need

import quern.torch as qt

need("safetensors")
import checkpoints  # noqa: E402
from checkpoints import FORMATS  # noqa: E402
from safetensors.torch import load_file, safe_open, save_file  # noqa: E402


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(1)


def pack(*args, **more):
    return {name: module.to(DEVICE) for name, module in qt.pack(*args, **more).items()}


def dequantized(module, name):
    return qt.dequantize(getattr(module, name), dtype=torch.float32).double()


def assert_round_trip(tmp_path, model, packed):
    qt.unpack(packed, tmp_path / "again")
    names = [name for name in os.listdir(model) if name.endswith(".safetensors")]
    assert names and sorted(os.listdir(tmp_path / "again")) == sorted(names)
    for name in names:
        assert filecmp.cmp(model / name, tmp_path / "again" / name, shallow=False), name


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("files", [1, 3])
def test_values_and_round_trip(tmp_path, name, files):
    model, packed = tmp_path / "model", tmp_path / "packed.safetensors"
    expected = FORMATS[name](model, files=files, layers=2)
    found = pack(model, packed)
    assert found.keys() == expected.keys()
    for layer, values in expected.items():
        # one product of fp32, of values that fp32 holds: exact but for its one rounding
        for part, value in zip(("w1", "w2"), values):
            exact = value.float().double()
            assert torch.equal(dequantized(found[layer], part), exact), (layer, part)
        for part, value in zip(("b1", "b2"), values[2:]):
            got = getattr(found[layer], part)
            assert got is None if value is None else torch.equal(got.double(), value)
    assert_round_trip(tmp_path, model, packed)


def test_operands_are_those_of_describe(tmp_path):
    import quern
    FORMATS["gpt-oss"](tmp_path / "model", experts=3, hidden=96, ffn=160)
    pack(tmp_path / "model", tmp_path / "packed")
    line = "mlp w4a16_mxfp4 g=3 m=8 hidden=96 ffn=160 grad=0 bias=1 activation=clamped_swiglu"
    table = quern.describe(line + " interleave=1")
    with safe_open(tmp_path / "packed", "pt") as file:
        for layer in range(2):
            for name in ("w1_rowwise", "w1_rowwise.sf", "w2_rowwise", "w2_rowwise.sf", "b1", "b2"):
                t = file.get_tensor(f"model.layers.{layer}.mlp.experts."
                                    + name.replace("_rowwise", ""))
                assert t.numel() * t.itemsize == table[name].bytes.at(8), name
        about = json.loads(file.metadata()["quern"])
    assert about["layers"][1] == {
        "name": "model.layers.1.mlp.experts", "recipe": "w4a16_mxfp4", "experts": 3, "hidden": 96,
        "ffn": 160, "activation": "clamped_swiglu", "interleave": 1, "limit": 7, "slope": 1.702,
        "shift": 1}


def test_weights_next_to_fp8(tmp_path):
    """The same bytes for a recipe whose activations are FP8; a block that FP8 cannot hold is named."""
    expected = checkpoints.gpt_oss(tmp_path / "model", hidden=256, ffn=160, layers=1, files=1)
    (layer, values), = expected.items()
    found = pack(tmp_path / "model", tmp_path / "packed", recipe="w4a8_mxfp4")[layer]
    wide = pack(tmp_path / "model")[layer]
    assert torch.equal(dequantized(found, "w1"), values[0])
    assert_round_trip(tmp_path, tmp_path / "model", tmp_path / "packed")
    x = torch.randn(40, 256, dtype=torch.bfloat16, device=DEVICE)
    routes = torch.randint(3, (40, 2), device=DEVICE), torch.rand(40, 2, device=DEVICE)
    y, reference = (experts(x, *routes).double() for experts in (found, wide))
    assert (y - reference).norm() < 0.06 * reference.norm()  # of three bits in x and in h
    path = tmp_path / "model" / "model-00001-of-00001.safetensors"
    tensors = load_file(path)
    tensors[f"{layer}.down_proj_scales"][1, 7, 2] = 90
    save_file(tensors, path)
    with pytest.raises(ValueError, match=r"down_proj_scales': expert 1, row 7, block 2: its scale is 90"):
        pack(tmp_path / "model", recipe="w4a8_mxfp4")


def test_other_tensors_stay(tmp_path):
    FORMATS["nvfp4"](tmp_path / "model", layers=2)
    found = pack(tmp_path / "model", tmp_path / "packed", experts_of="*.layers.1.*")
    assert list(found) == ["model.layers.1.mlp.experts"]
    before = load_file(tmp_path / "model" / "model-00001-of-00001.safetensors")
    after = load_file(tmp_path / "packed")
    kept = [name for name in before if name in after]
    assert sum(".layers.0." in name for name in kept) == 3 * 3 * 4
    assert sum("layers" not in name for name in kept) == 2
    for name in kept:
        one, two = (t[name].reshape(-1).view(torch.uint8) for t in (before, after))
        assert torch.equal(one, two), name
    assert_round_trip(tmp_path, tmp_path / "model", tmp_path / "packed")


def test_tensors_in_memory(tmp_path):
    expected = FORMATS["gpt-oss"](tmp_path / "model")
    tensors = {}
    for name in os.listdir(tmp_path / "model"):
        if name.endswith(".safetensors"):
            tensors |= load_file(tmp_path / "model" / name)
    config = json.loads((tmp_path / "model" / "config.json").read_text())
    found = pack(tensors, config=dict(config, swiglu_limit=5.5))
    for layer, values in expected.items():
        assert torch.equal(dequantized(found[layer], "w2"), values[1])
        assert found[layer].options["limit"] == 5.5
    for limit in (-7, "7", 1e300, 0):
        with pytest.raises(ValueError, match="swiglu_limit: a number between"):
            pack(tensors, config=dict(config, swiglu_limit=limit))
    with pytest.raises(ValueError, match="config.json says 4, 64, 96"):
        pack(tensors, config=dict(config, num_local_experts=4))
    with pytest.raises(TypeError, match="tensors: 'x' is int: a tensor"):
        pack({"x": 1})


@pytest.mark.parametrize("version", [1, 2])
def test_gptq_versions(tmp_path, version):
    expected = checkpoints.gptq(tmp_path / "model", version=version)
    found = pack(tmp_path / "model")
    for layer, values in expected.items():
        assert torch.equal(dequantized(found[layer], "w1"), values[0].float().double())


@pytest.mark.parametrize("kind, more", [("awq", {}), ("gptq", {"version": 1}),
                                        ("gptq", {"version": 2}), ("compressed-tensors", {})])
def test_zero_points(tmp_path, kind, more):
    """Those that are not 8 are stored, and come back."""
    expected = FORMATS[kind](tmp_path / "model", zero=None, layers=2, files=3, **more)
    found = pack(tmp_path / "model", tmp_path / "packed")
    for layer, values in expected.items():
        assert found[layer].recipe == "w4a16_int4_zeros"
        for part, value in zip(("w1", "w2"), values):
            assert torch.equal(dequantized(found[layer], part), value.float().double())
    assert_round_trip(tmp_path, tmp_path / "model", tmp_path / "packed")
    with pytest.raises(ValueError, match="--recipe names one that stores them"):
        pack(tmp_path / "model", recipe="w4a16_int4")


def test_zero_points_of_8_by_name(tmp_path):
    expected = checkpoints.gptq(tmp_path / "model", hidden=128, ffn=384)
    found = pack(tmp_path / "model", tmp_path / "packed", recipe="w4a16_int4_zeros")
    for layer, values in expected.items():
        assert torch.equal(dequantized(found[layer], "w1"), values[0].float().double())
        assert (found[layer].w2_sf >> 16 == 8).all()
    assert_round_trip(tmp_path, tmp_path / "model", tmp_path / "packed")


def test_another_recipe(tmp_path):
    """FP8 on both sides, with padded scales."""
    expected = checkpoints.deepseek(tmp_path / "model", hidden=384)
    found = pack(tmp_path / "model", tmp_path / "packed", recipe="fp8_block")
    for layer, values in expected.items():
        assert found[layer].recipe == "fp8_block"
        for part, value in zip(("w1", "w2"), values):
            assert torch.equal(dequantized(found[layer], part), value.float().double())
    assert_round_trip(tmp_path, tmp_path / "model", tmp_path / "packed")
    with pytest.raises(ValueError, match="recipe 'fp8_blok' is unknown"):
        pack(tmp_path / "model", recipe="fp8_blok")
    with pytest.raises(ValueError, match="and recipe mxfp8 has w = e4m3 with a scale of type e8m0"):
        pack(tmp_path / "model", recipe="mxfp8")


# Checkpoints that have no exact form, and the sentence that names the rule.
REFUSED = {
    "zeros of gptq": (lambda m: checkpoints.gptq(m, zero=16),
                      r"gate_proj.qzeros': a zero point is one more .* element 0 is 15"),
    "order of gptq": (lambda m: checkpoints.gptq(m, order=lambda k: torch.arange(k) % 2),
                      r"g_idx': input feature i must have the scale i / 128; .* element 1 is 1"),
    "groups of gptq": (lambda m: checkpoints.gptq(m, group=32),
                       r"scales': a scale of type f16 is for 1 x 32 values of GPTQ, and recipe "
                       r"w4a16_int4 has .* for 1 x 128; --recipe names another"),
    "shape of compressed-tensors": (lambda m: checkpoints.compressed(m, shape=torch.int16),
                                    r"weight_shape': it is I16 \[2\]; I64 \[2\] is expected"),
    "order of compressed-tensors": (lambda m: checkpoints.compressed(
        m, order=lambda k: torch.arange(k) % 2), r"weight_g_idx': input feature i must have the"),
    "blocks of deepseek": (lambda m: checkpoints.deepseek(m, ffn=192),
                           r"the up projection begins after 192 rows, and 128 rows share a scale"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused(tmp_path, name):
    make, sentence = REFUSED[name]
    make(tmp_path / "model")
    with pytest.raises(ValueError, match=sentence):
        pack(tmp_path / "model", tmp_path / "packed")
    assert os.listdir(tmp_path) == ["model"]


# One tensor is missing or another one: format, name, change, sentence.
CHANGED = {
    "missing": ("deepseek", "1.up_proj.weight", None, r"experts.1.up_proj.weight' is missing"),
    "scales missing": ("nvfp4", "2.down_proj.weight_scale", None, r"weight_scale' is missing"),
    "expert missing": ("gptq", "1.down_proj.scales", None, r"1.down_proj.scales' is missing"),
    "mixed types": ("deepseek", "1.up_proj.weight", lambda t: t.to(torch.bfloat16),
                    r"it is BF16 \[128, 256\]; F8_E4M3 of two axes is expected"),
    "other shape": ("deepseek", "0.down_proj.weight", lambda t: t[:, :64],
                    r"it is a weight \[256, 64\], and other experts' gates need \[256, 128\]"),
    "other scales": ("deepseek", "0.gate_proj.weight_scale_inv", lambda t: t[:, :1],
                     r"it is F32 \[1, 1\]; F32 \[1, 2\] is expected"),
    "nan": ("deepseek", "1.gate_proj.weight_scale_inv", lambda t: t * float("nan"),
            r"weight_scale_inv': a scale is NaN: element 0"),
    "nan of e4m3": ("nvfp4", "1.gate_proj.weight_scale",
                    lambda t: (t.float() * float("nan")).to(t.dtype), r"a scale is NaN"),
    "globals differ": ("nvfp4", "1.up_proj.weight_scale_2", lambda t: t * 2,
                       r"it is not that of '.*1.gate_proj.weight_scale_2'; the gate's and the up "),
    "shape": ("compressed-tensors", "1.up_proj.weight_shape", lambda t: t + 1,
              r"weight_shape': it must be the shape of the codes: element 0 is 129"),
    "bias": ("gptq", "0.up_proj.bias", torch.ones(128), r"a bias of such experts must be zero"),
    "name taken": ("awq", "w1", torch.ones(1), r"'model.layers.0.mlp.experts.w1': an operand"),
}


@pytest.mark.parametrize("name", CHANGED)
def test_changed(tmp_path, name):
    kind, tensor, change, sentence = CHANGED[name]
    FORMATS[kind](tmp_path / "model")
    os.remove(tmp_path / "model" / "model.safetensors.index.json")
    path = tmp_path / "model" / "model-00001-of-00001.safetensors"
    tensors, full = load_file(path), f"model.layers.0.mlp.experts.{tensor}"
    if change is None:
        del tensors[full]
    else:
        tensors[full] = change(tensors[full]).contiguous() if callable(change) else change
    save_file(tensors, path)
    with pytest.raises(ValueError, match=sentence):
        pack(tmp_path / "model", tmp_path / "packed")
    assert os.listdir(tmp_path) == ["model"]


def test_files_are_complete(tmp_path):
    FORMATS["gptq"](tmp_path / "model", files=3)
    os.rename(tmp_path / "model" / "model-00002-of-00003.safetensors", tmp_path / "elsewhere")
    with pytest.raises(ValueError, match=r"has it in 'model-00002-of-00003.safetensors', which is "
                                         "missing"):
        pack(tmp_path / "model")
    whole = (tmp_path / "elsewhere").read_bytes()
    (tmp_path / "model" / "model-00002-of-00003.safetensors").write_bytes(whole[:-1])
    with pytest.raises(ValueError, match="it ends after the file's end: the file is truncated"):
        pack(tmp_path / "model")


def test_packed_files_are_checked(tmp_path):
    FORMATS["awq"](tmp_path / "model")
    pack(tmp_path / "model", tmp_path / "packed")
    with pytest.raises(ValueError, match="packed: it cannot be written: File exists"):
        pack(tmp_path / "model", tmp_path / "packed")
    whole = (tmp_path / "packed").read_bytes()
    for length in (0, 7, 100, len(whole) - 1):
        (tmp_path / "short").write_bytes(whole[:length])
        with pytest.raises(ValueError, match="truncated|is not inside the file|no safetensors"):
            qt.load_packed(tmp_path / "short")
        with pytest.raises(ValueError, match="truncated"):
            qt.unpack(tmp_path / "short", tmp_path / "again")
    with pytest.raises(ValueError, match="was not written by quern pack"):
        qt.load_packed(tmp_path / "model" / "model-00001-of-00001.safetensors")
    version = (b'\\"version\\":1', b'\\"version\\":2')
    for (old, new), says in {
        version: "was not written by this version of quern pack",
        (b'"shape":[', b'"shapE":['): "is not inside the file",
        (b'"dtype":"', b'"dtype":0'): "was not written by quern pack",
    }.items():
        assert len(old) == len(new) and old in whole
        (tmp_path / "other").write_bytes(whole.replace(old, new))
        with pytest.raises(ValueError, match=says):
            qt.load_packed(tmp_path / "other")
    deep = b"[" * 100000  # json's reader gives up
    (tmp_path / "other").write_bytes(len(deep).to_bytes(8, "little") + deep)
    with pytest.raises(ValueError, match="was not written by quern pack"):
        qt.load_packed(tmp_path / "other")
    assert not (tmp_path / "again").exists()
    layer = next(iter(qt.load_packed(tmp_path / "packed").values()))
    x, indices = (torch.zeros(3, n, dtype=kind, device="cpu") for n, kind in (
        (layer.hidden, torch.float32), (1, torch.int32)))
    for kind in (torch.int32, torch.complex64, torch.float8_e4m3fn):
        with pytest.raises(TypeError, match=f"x is {kind}: a float type of 16 bits or more"):
            layer(x.to(kind), indices)
    sums = {f"main_grad{i}": torch.zeros(w.shape, device="cpu")
            for i, w in ((1, layer.w1), (2, layer.w2))}
    with pytest.raises(ValueError, match="main_grad1: the recipe has no gradient of the weights"):
        layer(x, indices, **sums)
    layer.w1_sf.zero_()
    assert not layer.w1_sf.any() and (tmp_path / "packed").read_bytes() == whole


def reference(values, x, indices, probs, activation):
    """A layer in float64, whose activation takes pre [tokens, 2 ffn]."""
    w1, w2, b1, b2 = values

    def mlp(token, expert):
        pre = w1[expert] @ token.double() + (0 if b1 is None else b1[expert])
        return w2[expert] @ activation(pre) + (0 if b2 is None else b2[expert])

    return torch.stack([sum(p * mlp(token, e) for e, p in zip(chosen, weights.double()))
                        for token, chosen, weights in zip(x, indices, probs)])


def swiglu(pre):
    gate, up = pre.chunk(2)
    return torch.nn.functional.silu(gate) * up


def clamped(pre):
    gate, up = pre[::2].clamp(max=7), pre[1::2].clamp(-7, 7)
    return gate * torch.sigmoid(gate * 1.702) * (up + 1)


@pytest.mark.parametrize("name", FORMATS)
def test_layers_compute(tmp_path, name):
    expected = FORMATS[name](tmp_path / "model")
    x, probs = torch.randn(9, next(iter(expected.values()))[1].shape[1]), torch.rand(9, 2)
    scale = 2.0 ** round(float(torch.log2(next(iter(expected.values()))[0].abs().mean())))
    x = (x / scale / 16).to(torch.bfloat16)  # so that the activation is neither 0 nor clamped
    for layer, module in pack(tmp_path / "model").items():
        indices = torch.stack([torch.randperm(module.experts)[:2] for _ in range(9)])
        y = module(x, indices, probs)
        exact = reference(expected[layer], x, indices, probs,
                          clamped if name.startswith("gpt-oss") else swiglu)
        assert y.dtype == torch.bfloat16
        assert (y.double() - exact).norm() <= 2**-6 * exact.norm()
        moved = module.to(torch.float64)  # types of operands stay
        assert torch.equal(moved(x, indices, probs), y)


def test_formula_is_that_of_transformers(tmp_path):
    need("transformers")
    from transformers.integrations.mxfp4 import convert_moe_packed_tensors
    values = checkpoints.gpt_oss(tmp_path / "model", files=1)
    tensors = load_file(tmp_path / "model" / "model-00001-of-00001.safetensors")
    for layer, (w1, w2, _, _) in values.items():
        for part, w in (("gate_up_proj", w1), ("down_proj", w2)):
            theirs = convert_moe_packed_tensors(tensors[f"{layer}.{part}_blocks"],
                                                tensors[f"{layer}.{part}_scales"])
            assert torch.equal(theirs.double().cpu(), w.transpose(1, 2).cpu())


def assert_generates_the_same(model, pack_into):
    """Logits and tokens of a model, before and after its experts are replaced by packed ones."""
    ids = torch.randint(3, 64, (2, 12))
    with torch.no_grad():
        tokens = model.generate(ids, max_new_tokens=8, do_sample=False)
        logits = model(tokens).logits
        made = pack_into(model)
        assert model.get_submodule(list(made)[1]) is made[list(made)[1]]
        found, again = model(tokens).logits, model.generate(ids, max_new_tokens=8, do_sample=False)
    error = (found - logits).abs().max()
    # a token of a model without training may be decided by less than the format's error
    best = logits.topk(2).values
    sure = best[..., 0] - best[..., 1] > 2 * error
    assert sure.float().mean() > 0.5
    assert torch.equal(found.argmax(-1)[sure], logits.argmax(-1)[sure])
    for mine, theirs, certain in zip(again, tokens, sure):
        differ = (mine != theirs).nonzero()
        assert not len(differ) or not certain[differ[0] - 1]
    return float((found - logits).norm() / logits.norm())


def loader(tmp_path, **more):
    """Packs the folder's checkpoint and loads it into a model."""
    def pack_into(model):
        pack(tmp_path / "model", tmp_path / "packed", **more)
        return qt.load_packed(tmp_path / "packed", into=model, device=DEVICE)

    return pack_into


def test_transformers_model_generates_the_same(tmp_path):
    transformers = need("transformers")
    config = transformers.GptOssConfig(
        vocab_size=64, hidden_size=64, intermediate_size=96, num_hidden_layers=2, head_dim=16,
        num_attention_heads=4, num_key_value_heads=2, num_local_experts=4, num_experts_per_tok=2,
        sliding_window=16, bos_token_id=1, eos_token_id=2, pad_token_id=0)
    values = checkpoints.gpt_oss(tmp_path / "model", experts=4)
    model = transformers.GptOssForCausalLM(config).to(torch.bfloat16).eval()
    model.set_experts_implementation("eager")
    with torch.no_grad():
        for layer, (w1, w2, b1, b2) in values.items():
            experts = model.get_submodule(layer)
            experts.gate_up_proj.copy_(w1.transpose(1, 2))  # exact in bf16
            experts.down_proj.copy_(w2.transpose(1, 2))
            experts.gate_up_proj_bias.copy_(b1)
            experts.down_proj_bias.copy_(b2)
            # no token changes its experts by a last bit
            model.get_submodule(layer.replace("experts", "router")).weight.mul_(32)
    assert assert_generates_the_same(model, loader(tmp_path)) <= 2**-5


@pytest.mark.parametrize("zero", [8, None])
def test_model_in_fp16_generates_the_same(tmp_path, zero):
    """GPTQ's experts in a model in half precision; the file is that of a model in BF16."""
    transformers = need("transformers")
    config = transformers.Qwen3MoeConfig(
        vocab_size=64, hidden_size=128, intermediate_size=128, moe_intermediate_size=128,
        num_hidden_layers=2, head_dim=16, num_attention_heads=4, num_key_value_heads=2,
        num_experts=4, num_experts_per_tok=2, bos_token_id=1, eos_token_id=2, pad_token_id=0)
    values = checkpoints.gptq(tmp_path / "model", experts=4, hidden=128, layers=2, zero=zero)
    model = transformers.Qwen3MoeForCausalLM(config).to(torch.float16).eval()
    model.set_experts_implementation("eager")
    with torch.no_grad():
        for layer, (w1, w2, _, _) in values.items():
            experts = model.get_submodule(layer)
            experts.gate_up_proj.copy_(w1)  # rounded to f16, as by the recipe
            experts.down_proj.copy_(w2)
            model.get_submodule(layer.replace("experts", "gate")).weight.mul_(32)
    assert assert_generates_the_same(model, loader(tmp_path)) <= 2**-8


@pytest.mark.parametrize("name", FORMATS)
def test_gradients_pass_through(tmp_path, name):
    expected = FORMATS[name](tmp_path / "model")
    layer, module = next(iter(pack(tmp_path / "model").items()))
    scale = 2.0 ** round(float(torch.log2(expected[layer][0].abs().mean())))
    x = (torch.randn(9, module.hidden) / scale / 16).to(torch.bfloat16).requires_grad_()
    indices = torch.stack([torch.randperm(module.experts)[:2] for _ in range(9)])
    probs, dy = torch.rand(9, 2, requires_grad=True), torch.randn(9, module.hidden)
    exact_x, exact_probs = (t.detach().double().requires_grad_() for t in (x, probs))
    reference(expected[layer], exact_x, indices, exact_probs,
              clamped if name.startswith("gpt-oss") else swiglu).backward(dy.double())
    module(x, indices, probs).backward(dy.to(torch.bfloat16))
    for found, exact in ((x.grad, exact_x.grad), (probs.grad, exact_probs.grad)):
        assert (found.double() - exact).norm() <= 2**-6 * exact.norm()


def test_adapters_of_other_types(tmp_path):
    """Next to tokens in float32 adapters may be that, too."""
    FORMATS["gptq"](tmp_path / "model")
    module = next(iter(pack(tmp_path / "model").values()))
    x, indices = torch.randn(9, module.hidden), torch.zeros(9, 1, dtype=torch.int32)
    pair = [torch.randn(module.experts, *shape) / 16 for shape in
            ((4, module.ffn), (module.hidden, 4))]
    x, *pair = (t.to(torch.bfloat16).float().requires_grad_() for t in (x, *pair))
    narrow = [t.detach().to(torch.bfloat16).requires_grad_() for t in (x, *pair)]
    y = module(x, indices, lora2=pair)
    z = module(narrow[0], indices, lora2=narrow[1:])
    assert y.dtype == torch.float32 and torch.equal(y, z.float())
    y.sum().backward()
    z.sum().backward()
    for wide, other in zip((x, *pair), narrow):
        assert wide.grad.any() and torch.equal(wide.grad, other.grad.float())


@pytest.mark.parametrize("name", ["gptq", "awq", "compressed-tensors"])
@pytest.mark.parametrize("zero", [8, None])
def test_tokens_in_fp16(tmp_path, name, zero):
    """One file serves both types of tokens; nothing is rounded to BF16 on the way."""
    (layer, values), = FORMATS[name](tmp_path / "model", zero=zero).items()
    module = pack(tmp_path / "model", tmp_path / "packed")[layer]
    w1, w2 = (w.half().double() for w in values[:2])
    scale = 2.0 ** round(float(torch.log2(w1.abs().mean())))
    x = (torch.randn(9, module.hidden) / scale / 16).half().requires_grad_()
    indices = torch.stack([torch.randperm(module.experts)[:2] for _ in range(9)])
    probs, dy = torch.rand(9, 2, requires_grad=True), torch.randn(9, module.hidden).half()
    exact_x, exact_probs = (t.detach().double().requires_grad_() for t in (x, probs))
    exact = reference((w1, w2, None, None), exact_x, indices, exact_probs, swiglu)
    exact.backward(dy.double())
    y = module.half()(x, indices, probs)
    y.backward(dy)
    assert y.dtype == x.grad.dtype == torch.float16
    for found, expected in ((y, exact), (x.grad, exact_x.grad), (probs.grad, exact_probs.grad)):
        error = (found.detach().double() - expected.detach()).norm() / expected.detach().norm()
        assert error <= 2**-10
    by_name = pack(tmp_path / "model", tmp_path / "named", recipe=module.recipe + "_fp16")[layer]
    assert by_name.recipe == module.recipe + "_fp16" and by_name.w1.dtype == torch.float16
    assert torch.equal(by_name(x, indices, probs), y)
    assert_round_trip(tmp_path, tmp_path / "model", tmp_path / "named")
    sizes = [4, 5]
    with torch.no_grad():
        for dtype, recipe in ((torch.float16, by_name.recipe), (torch.bfloat16, module.recipe)):
            tokens = x.to(dtype)
            expected = qt.grouped_mlp(tokens, module.w1, module.w2, sizes, recipe=recipe)
            for experts in (module, by_name):
                assert torch.equal(experts.grouped_mlp(tokens, sizes), expected)
        # values in fp32 become those of the file's recipe, and under autocast those of its type
        wide, half = x.float(), module.grouped_mlp(x, sizes).float()
        narrow = module.grouped_mlp(x.bfloat16(), sizes).float()
        assert not torch.equal(half, narrow)
        assert torch.equal(by_name.grouped_mlp(wide, sizes), half)
        assert torch.equal(module.grouped_mlp(wide, sizes), narrow)
        with torch.autocast(DEVICE, torch.float16):
            assert torch.equal(module.grouped_mlp(wide, sizes), half)


def test_tokens_in_fp16_compile(tmp_path):
    """In one graph, with both types of tokens, and gradients."""
    checkpoints.gptq(tmp_path / "model")
    (module,) = pack(tmp_path / "model").values()
    torch._dynamo.reset()
    compiled = torch.compile(module, fullgraph=True, backend="aot_eager")
    indices, probs = torch.randint(2, (9, 2)), torch.rand(9, 2)
    for dtype in (torch.float16, torch.bfloat16):
        x = torch.randn(9, module.hidden).to(dtype).requires_grad_()
        y = module(x, indices, probs)
        y.backward(torch.ones_like(y))
        expected, x.grad = x.grad, None
        again = compiled(x, indices, probs)
        again.backward(torch.ones_like(y))
        assert again.dtype == dtype and torch.equal(again, y) and torch.equal(x.grad, expected)


def test_example():
    paths = os.pathsep.join([os.path.join(ROOT, "runtime", "python"), FOLDER])
    program = os.path.join(ROOT, "examples", "torch_checkpoint.py")
    text = subprocess.run([sys.executable, program], check=True, capture_output=True, text=True,
                          env={**os.environ, "PYTHONPATH": paths}).stdout
    assert "the same bytes again: yes" in text
    assert float(text.split("in BF16: ")[1].split()[0]) < 2**-6
