# SPDX-License-Identifier: Apache-2.0
"""Checkpoints in each format that quern pack reads, against the formats' formulas in float64, and
byte for byte after undo. The last tests load packed experts into a model of transformers."""

import filecmp
import json
import os

import pytest
import torch
from peers import need

import quern.torch as qt

need("safetensors")
import checkpoints  # noqa: E402
from checkpoints import FORMATS  # noqa: E402
from safetensors.torch import load_file, safe_open, save_file  # noqa: E402


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(1)


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
    found = qt.pack(model, packed)
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
