# SPDX-License-Identifier: Apache-2.0
"""Packed experts: a checkpoint as gpt-oss has it, its layers against those of values, and its bytes
again."""

import functools
import json
import struct

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from conftest import assert_near, same

import quern.jax as qj

EXPERTS, HIDDEN, FFN, TOKENS, TOPK = 4, 64, 32, 37, 2
LAYER = "model.layers.0.mlp.experts"
WORDS = {"uint8": "U8", "int32": "I32", "float16": "F16", "bfloat16": "BF16"}


def write(path, tensors):
    """A safetensors file: https://github.com/huggingface/safetensors#format."""
    header, at = {}, 0
    for name, a in tensors.items():
        header[name] = {"dtype": WORDS[a.dtype.name], "shape": list(a.shape),
                        "data_offsets": [at, at + a.nbytes]}
        at += a.nbytes
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text +
                     b"".join(np.ascontiguousarray(a).tobytes() for a in tensors.values()))


@pytest.fixture
def model(tmp_path):
    """Two e2m1 values in a byte, a power of two for 32 of them; gate and up in turns."""
    random, tensors = np.random.default_rng(5), {}
    for name, rows, k in (("gate_up_proj", 2 * FFN, HIDDEN), ("down_proj", HIDDEN, FFN)):
        tensors[f"{LAYER}.{name}_blocks"] = random.integers(
            256, size=(EXPERTS, rows, k // 32, 16), dtype=np.uint8)
        tensors[f"{LAYER}.{name}_scales"] = random.integers(
            120, 124, size=(EXPERTS, rows, k // 32), dtype=np.uint8)
        tensors[f"{LAYER}.{name}_bias"] = np.asarray(
            jnp.asarray(random.normal(size=(EXPERTS, rows)), jnp.bfloat16))
    write(tmp_path / "model.safetensors", tensors)
    return tmp_path / "model.safetensors"


def tokens(seed=3):
    keys = jax.random.split(jax.random.key(seed), 3)
    indices = jnp.argsort(jax.random.uniform(keys[1], (TOKENS, EXPERTS)), 1)[:, :TOPK]
    return (jax.random.normal(keys[0], (TOKENS, HIDDEN), jnp.bfloat16), indices.astype(jnp.int32),
            jax.random.uniform(keys[2], (TOKENS, TOPK)))


def test_layer_and_round_trip(model, tmp_path):
    experts = qj.pack(model, tmp_path / "packed")[LAYER]
    x, indices, probs = tokens()
    dy = jax.random.normal(jax.random.key(9), x.shape, x.dtype)
    y, back = jax.vjp(lambda x, probs: jax.jit(experts)(x, indices, probs), x, probs)
    w1, w2 = (qj.dequantize(w, dtype=jnp.bfloat16) for w in (experts.w1, experts.w2))
    plain, back_of_plain = jax.vjp(lambda x, probs: qj.moe(
        x, indices, probs, w1, w2, b1=experts.b1, b2=experts.b2, layout="nk",
        activation=experts.activation, **dict(experts.options)), x, probs)
    for found, expected in zip((y, *back(dy)), (plain, *back_of_plain(dy))):
        assert np.asarray(expected, np.float32).any()
        assert_near(found, expected, 2**-7)
    qj.unpack(tmp_path / "packed", tmp_path / "again")
    assert (tmp_path / "again" / model.name).read_bytes() == model.read_bytes()


def test_adapters(model, tmp_path):
    """Next to packed weights as next to their values, from tokens and from sorted rows."""
    experts = qj.pack(model, tmp_path / "packed")[LAYER]
    x, indices, probs = tokens()
    dy = jax.random.normal(jax.random.key(9), x.shape, x.dtype)
    keys = iter(jax.random.split(jax.random.key(4), 4))
    pairs = [tuple(jax.random.normal(next(keys), (EXPERTS, *shape), jnp.bfloat16) / shape[1]**.5
                   for shape in ((8, k), (n, 8))) for n, k in ((2 * FFN, HIDDEN), (HIDDEN, FFN))]
    w1, w2 = (qj.dequantize(w, dtype=jnp.bfloat16) for w in (experts.w1, experts.w2))
    more = dict(b1=experts.b1, b2=experts.b2, activation=experts.activation, layout="nk",
                **dict(experts.options))

    def packed(x, probs, *pairs):
        return experts(x, indices, probs, lora1=pairs[0], lora2=pairs[1], lora_scaling=0.5)

    def plain(x, probs, *pairs):
        return qj.moe(x, indices, probs, w1, w2, lora1=pairs[0], lora2=pairs[1], lora_scaling=0.5,
                      **more)

    (y, back), (z, other) = (jax.vjp(jax.jit(f), x, probs, *pairs) for f in (packed, plain))
    assert_near(y, z, 2**-7)
    for a, b in zip(jax.tree.leaves(back(dy)), jax.tree.leaves(other(dy))):
        assert np.asarray(b, np.float32).any()
        assert_near(a, b, 2**-7)
    sizes = jnp.array([10, 0, 20, 7], jnp.int32)
    found = experts.grouped_mlp(x.astype(jnp.float32), sizes, lora2=pairs[1])
    assert found.dtype == jnp.float32
    assert_near(found, qj.grouped_mlp(x, w1, w2, sizes, lora2=pairs[1], **more), 2**-7)
    wide = tuple(a.astype(jnp.float32) for a in pairs[1])
    assert same(experts.grouped_mlp(x.astype(jnp.float32), sizes, lora2=wide), found)
    with pytest.raises(TypeError, match="x is int32: a float type of 16 bits or more is expected"):
        experts(x.astype(jnp.int32), indices, probs)


def gptq(path, zero):
    """Eight codes in a word, and for 128 input features of each row an f16 scale and a zero point
    less one; the values of w1 and w2 in float64."""
    random, tensors, values = np.random.default_rng(5), {}, {}

    def words(codes):
        return (codes.astype(np.uint32) << np.arange(0, 32, 4, dtype=np.uint32)).sum(
            -1, dtype=np.uint32).view(np.int32)

    for expert in range(EXPERTS):
        for role, n, k in (("gate_proj", 128, 256), ("up_proj", 128, 256), ("down_proj", 256, 128)):
            codes = random.integers(16, size=(n, k))
            scales = (random.random((k // 128, n)) / 100).astype(np.float16)
            zeros = np.full(scales.shape, zero) if zero else random.integers(1, 16, scales.shape)
            name = f"{LAYER}.{expert}.{role}"
            tensors[f"{name}.qweight"] = words(codes.T.reshape(k // 8, 8, n).swapaxes(1, 2))
            tensors[f"{name}.scales"] = scales
            tensors[f"{name}.qzeros"] = words(zeros.reshape(k // 128, n // 8, 8) - 1)
            w = (codes - zeros.T.repeat(128, 1)) * scales.T.repeat(128, 1).astype(np.float64)
            values.setdefault(role, []).append(w)
    write(path, tensors)
    return np.concatenate([values["gate_proj"], values["up_proj"]], 1), np.stack(values["down_proj"])


@pytest.mark.parametrize("zero", [8, None])
def test_tokens_in_fp16(tmp_path, zero):
    """GPTQ's integers: one file serves both types of tokens, each as it is."""
    w1, w2 = gptq(tmp_path / "model.safetensors", zero)
    experts = qj.pack(tmp_path / "model.safetensors", tmp_path / "packed")[LAYER]
    recipe = "w4a16_int4" if zero else "w4a16_int4_zeros"
    named = qj.pack(tmp_path / "model.safetensors", recipe=recipe + "_fp16")[LAYER]
    assert (experts.w1.recipe, named.w1.recipe) == (recipe, recipe + "_fp16")
    assert named.w1.dtype == jnp.float16
    _, indices, probs = tokens()
    keys = jax.random.split(jax.random.key(8))
    x, dy = (jax.random.normal(key, (TOKENS, 256), jnp.float16) for key in keys)

    def layer(experts):
        return jax.vjp(jax.jit(lambda x, probs: experts(x, indices, probs)), x, probs)

    y, back = layer(experts)
    again, _ = layer(named)
    assert y.dtype == jnp.float16 and same(y, again)
    # the same layer of values in fp16
    a, b = (jnp.asarray(w.astype(np.float16)) for w in (w1, w2))
    plain, back_of_plain = jax.vjp(lambda x, probs: qj.moe(
        x, indices, probs, a, b, layout="nk", activation=experts.activation), x, probs)
    for found, expected in zip((y, *back(dy)), (plain, *back_of_plain(dy))):
        assert np.asarray(expected, np.float32).any()
        assert_near(found, expected, 2**-10)
    sizes = jnp.array([10, 0, 20, 7], jnp.int32)
    half, narrow = (qj.grouped_mlp(x.astype(dtype), experts.w1, experts.w2, sizes, layout="nk",
                                   activation=experts.activation)
                    for dtype in (jnp.float16, jnp.bfloat16))
    assert not same(half, narrow)
    assert same(experts.grouped_mlp(x.astype(jnp.float32), sizes), narrow)
    assert same(named.grouped_mlp(x.astype(jnp.float32), sizes), half)
    assert same(named.grouped_mlp(x.astype(jnp.bfloat16), sizes), narrow)


def test_loaded_and_as_an_argument(model, tmp_path):
    """A pytree: an argument of a jitted function, and rows that are sorted already."""
    made = qj.pack(model, tmp_path / "packed")[LAYER]
    loaded = qj.load_packed(tmp_path / "packed", device=jax.devices()[-1])[LAYER]
    assert loaded.w1.rowwise.devices() == {jax.devices()[-1]}
    assert jax.tree.structure(made) == jax.tree.structure(loaded)
    assert all(map(same, jax.tree.leaves(made), jax.tree.leaves(loaded)))
    x, sizes = tokens()[0], jnp.array([10, 0, 20, 7], jnp.int32)
    found = jax.jit(lambda e, x: e.grouped_mlp(x, sizes))(made, x.astype(jnp.float32))
    assert found.dtype == jnp.float32
    w1, w2 = (qj.dequantize(w, dtype=jnp.bfloat16) for w in (made.w1, made.w2))
    assert_near(found, qj.grouped_mlp(x, w1, w2, sizes, b1=made.b1, b2=made.b2, layout="nk",
                                      activation=made.activation, **dict(made.options)), 2**-7)


def test_bad_files(model, tmp_path):
    bad = functools.partial(pytest.raises, ValueError)
    for function in (qj.load_packed, qj.pack):
        with pytest.raises(TypeError, match="(path|source) is NoneType: a path is expected"):
            function(None)
    with bad(match="was not written by quern pack"):
        qj.load_packed(model)
    qj.pack(model, tmp_path / "packed")
    whole = (tmp_path / "packed").read_bytes()
    (tmp_path / "short").write_bytes(whole[:-1])
    with bad(match="is truncated"):
        qj.load_packed(tmp_path / "short")
    (tmp_path / "empty").write_bytes(b"")
    with bad(match="is no safetensors file, or truncated"):
        qj.load_packed(tmp_path / "empty")
    with bad(match="format"):
        qj.pack(model, tmp_path / "other", format="awk")
    (tmp_path / "model.safetensors").write_bytes(model.read_bytes()[:-5])
    with bad(match="model.safetensors.*truncated"):
        qj.pack(model, tmp_path / "other")
    assert not (tmp_path / "other").exists()
