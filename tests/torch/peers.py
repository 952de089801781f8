# SPDX-License-Identifier: Apache-2.0
"""Shared by the tests of switches: libraries of others (.ci/torch_peers), and comparisons."""

import contextlib
import importlib
import importlib.machinery
import importlib.util
import os
import sys
import types
import warnings

import pytest
import torch
from conftest import ROOT

FOLDER = os.path.join(ROOT, "build", "torch", "peers")
if os.path.isdir(FOLDER):
    sys.path.append(FOLDER)


def need(name):
    """A module of a peer; the test file is skipped with the reason if it is not installed."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return pytest.importorskip(name, reason=f"needs {name}: .ci/torch_peers", exc_type=ImportError)


@contextlib.contextmanager
def fake_triton():
    """A mock of triton, which is 1 GB and of no use on a CPU, while a library is imported:

        torchtitan/distributed/minimal_async_ep/kernels.py, line 10: import triton
        ModuleNotFoundError: No module named 'triton'

    None of its kernels is called. Does nothing if triton is installed.
    """
    if importlib.util.find_spec("triton"):
        yield
        return
    importlib.import_module("torch._inductor.compile_fx")  # must not see the mock
    importlib.import_module("torch._dynamo.repro.after_dynamo")

    class Mock(types.ModuleType):
        def __init__(self, name):
            super().__init__(name)
            self.__spec__ = importlib.machinery.ModuleSpec(name, None)
            self.__path__ = []
            sys.modules[name] = self

        def __getattr__(self, name):
            if name.startswith("__"):
                raise AttributeError(name)
            return lambda *args, **more: args[0] if args and callable(args[0]) else lambda f: f

    Mock("triton").language = Mock("triton.language")
    try:
        yield
    finally:
        del sys.modules["triton"], sys.modules["triton.language"]


def decibels(found, expected):
    """The ratio of signal to noise, which torchao calls SQNR."""
    found, expected = found.double(), expected.double()
    return 20 * torch.log10(expected.norm() / (found - expected).norm().clamp(min=1e-30))


def assert_ratio(found, expected, least, names=None):
    """Each tensor of a list has at least so many decibels; zeros must be zeros."""
    assert len(found) == len(expected)
    for i, (f, e) in enumerate(zip(found, expected)):
        assert f.isfinite().all() and f.shape == e.shape and f.dtype == e.dtype
        if e.any():
            assert decibels(f, e) > least, f"{names[i] if names else i}: {decibels(f, e)}"
        else:
            assert not f.any()


def gradients(function, inputs, module):
    """The result, the gradients of `inputs` that need one, and those of a module's parameters."""
    module.zero_grad()
    inputs = [t.detach().clone().requires_grad_() if t.is_floating_point() else t for t in inputs]
    y = function(*inputs)
    torch.manual_seed(5)
    y.backward(torch.randn_like(y))
    grads = [t.grad for t in inputs if t.is_floating_point()]
    return [y.detach(), *grads, *(p.grad.clone() for p in module.parameters())]


def fill(module, std=0.1, seed=0):
    torch.manual_seed(seed)
    with torch.no_grad():
        for p in module.parameters():
            p.copy_(torch.randn(p.shape) * std)
    return module
