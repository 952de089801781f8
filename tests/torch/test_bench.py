# SPDX-License-Identifier: Apache-2.0
"""Benchmarks go on where a peer fails: its row is lost, not the run."""

import importlib
import json
import os
import sys
import types

import pytest
import torch



def load_bench():
    """bench/peers.py and bench/mlp.py; another file here is called peers, too."""
    other = sys.modules.pop("peers", None)
    sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "..", "bench"))
    try:
        loaded = importlib.import_module("peers"), importlib.import_module("mlp")
    finally:
        sys.path.pop(0)
        sys.modules.pop("peers", None)
        if other:
            sys.modules["peers"] = other
    return loaded


peers, mlp = load_bench()

REFUSED = "Can't process more than 1024 groups"


class Graph:
    def __init__(self, call):
        call()


class Plan:
    """Computes as torch does, group by group."""
    kernel = "a_kernel"

    def __init__(self, layer):
        self.run = lambda stream: layer.loop()

    def check(self, stream):
        pass

    def close(self):
        pass


@pytest.fixture(autouse=True)
def without_a_gpu(monkeypatch):
    """Graphs run once when they are captured, and all take a millisecond."""
    stream = types.SimpleNamespace(cuda_stream=0)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda: stream)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: None)
    monkeypatch.setattr(peers, "capture", lambda call, calls: Graph(call))
    monkeypatch.setattr(peers, "measure", lambda graphs, calls, rounds, watch: {
        name: {"ms": 1.0, "low": 1.0, "high": 1.0, "mhz": None, "watts": None} for name in graphs})
    monkeypatch.setattr(peers.deepgemm, "takes", lambda layer: False)
    peers.lost.clear()


def refuse(*arguments, **options):
    raise RuntimeError(REFUSED)


def layer_of(op, fails):
    """3 groups, one of them empty; torch takes them together unless it `fails`."""
    layer = peers.Layer.__new__(peers.Layer)
    layer.name, layer.op, layer.kind, layer.line = "many", op, "mild", "a line"
    layer.rows, layer.groups, layer.tokens, layer.n, layer.k = [3, 0, 5], 3, 8, 16, 32
    layer.flops, layer.bytes = 1e6, 1e6
    x, y, w = torch.randn(8, 32), torch.randn(8, 16), torch.randn(3, 16, 32)
    layer.a, layer.b, layer.d = {"fprop": (x, w, y), "dgrad": (y, w, x), "wgrad": (y, x, w)}[op]
    layer.sum, layer.plan = None, lambda library, kernel=None: Plan(layer)
    pairs = list(zip(layer.a.split(layer.rows), layer.b.split(layer.rows) if op == "wgrad" else w))
    together = {"fprop": lambda: torch.cat([a @ b.t() for a, b in pairs]),
                "dgrad": lambda: torch.cat([a @ b for a, b in pairs]),
                "wgrad": lambda: torch.stack([a.t() @ b for a, b in pairs])}[op]
    layer.grouped_mm = refuse if fails else together
    return layer


@pytest.mark.parametrize("op", ("fprop", "dgrad", "wgrad"))
@pytest.mark.parametrize("fails", (False, True))
def test_product(op, fails):
    options = types.SimpleNamespace(all=None, replay=0.02, rounds=3)
    rows = peers.bench_layer(layer_of(op, fails), None, options, None)
    expected = {"quern", "cublas_loop", "cublas_dense"} | (set() if fails else {"torch_grouped_mm"})
    assert {row["what"] for row in rows} == expected
    assert next(row for row in rows if row["what"] == "quern")["error"] < 1e-6
    names = [entry["names"][-1] for entry in peers.lost]
    assert names == (["torch_grouped_mm"] * 2 if fails else [])
    assert all(REFUSED in entry["error"] for entry in peers.lost)


def test_run(monkeypatch, tmp_path):
    """A case that fails as a whole is noted in the results, and the next one is measured."""
    class Watch:
        def __enter__(self):
            return self

        def __exit__(self, *error):
            pass

    def measure(case, library, rng, watch):
        return refuse() if case == "bad" else [{"what": "quern", "case": case}]

    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch, "zeros", lambda *a, **k: None)
    monkeypatch.setattr(peers, "Watch", Watch)
    monkeypatch.setattr(peers, "machine", lambda *a: {})
    monkeypatch.setattr(peers.libquern, "Library", lambda path, tune: None)
    out = tmp_path / "out.json"
    options = peers.parser_of("A program.").parse_args(["--json", str(out)])
    status = peers.compare(options, "a program", lambda: [([name], name) for name in ("bad", "good")],
                           measure, lambda rows: None)
    results = json.loads(out.read_text())
    assert status == 0
    assert results["rows"] == [{"what": "quern", "case": "good"}]
    assert results["lost"] == [{"names": ["bad"], "error": f"RuntimeError: {REFUSED}"}]


def test_mlp(monkeypatch):
    """The reference is torch's group by group then, and has the same results."""
    monkeypatch.setattr(torch, "compile", lambda function: function)
    layer = types.SimpleNamespace(
        name="many", kind="mild", rows=[3, 0, 5], ends=torch.tensor([3, 3, 8], dtype=torch.int32),
        x=torch.randn(8, 32), dy=torch.randn(8, 32), w1=torch.randn(3, 2 * 16, 32),
        w2=torch.randn(3, 32, 16), probability=torch.rand(8))
    monkeypatch.setattr(torch, "_grouped_mm", refuse)
    got = mlp.reference_of(layer)
    assert isinstance(got, mlp.TorchLoop)
    assert [entry["names"][-1] for entry in peers.lost] == ["torch_bf16"]
    w1, w2 = (w.clone().requires_grad_() for w in (layer.w1, layer.w2))
    x, begin, parts = layer.x.clone().requires_grad_(), 0, []
    for i, rows in enumerate(layer.rows):
        mine = slice(begin, begin + rows)
        parts.append(mlp.activate(x[mine] @ w1[i].t(), layer.probability[mine]) @ w2[i].t())
        begin += rows
    y = torch.cat(parts)
    y.backward(layer.dy)
    for mine, theirs in ((got.y, y), (got.dx, x.grad), (got.dw1, w1.grad), (got.dw2, w2.grad)):
        torch.testing.assert_close(mine, theirs, rtol=1e-4, atol=1e-4)


def test_rows_of_a_decoder():
    shapes = mlp.with_rows(mlp.SHAPES[:1], "1,256")
    assert [shape["tokens"] for shape in shapes] == [1, 256]
    assert [shape["name"] for shape in shapes] == ["dsv3_1", "dsv3_256"]
    assert mlp.with_rows(mlp.SHAPES, "") == mlp.SHAPES
