# SPDX-License-Identifier: Apache-2.0
"""Shared by the tests: data whose tail is NaN, and products in float64.

On the CPU jax simulates four devices. QUERN_JAX_DEVICE=cuda runs the tests on a GPU, with a jax
that has one; those marked `gpu` need it.
"""

import os
import sys

DEVICE = os.environ.get("QUERN_JAX_DEVICE", "cpu")
if DEVICE == "cpu":
    os.environ["JAX_PLATFORMS"] = "cpu"
    os.environ["XLA_FLAGS"] = os.environ.get("XLA_FLAGS", "") + \
        " --xla_force_host_platform_device_count=4"
    os.environ["QUERN_THREADS"] = "1"

import jax
import jax.numpy as jnp
import numpy as np
import pytest

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(ROOT, "runtime", "python"))


def pytest_configure(config):
    config.addinivalue_line("markers", "gpu: needs a GPU")


def pytest_collection_modifyitems(items):
    for item in items:
        if DEVICE == "cpu" and item.get_closest_marker("gpu"):
            item.add_marker(pytest.mark.skip(reason="needs a GPU: QUERN_JAX_DEVICE=cuda"))


class Case:
    """Tokens of experts in more rows than they need: those after the last expert's are NaN."""

    def __init__(self, lengths, n, k, rows=None, dtype=jnp.bfloat16, seed=1):
        keys = jax.random.split(jax.random.key(seed), 3)
        self.lengths, self.n, self.k, self.tokens = lengths, n, k, sum(lengths)
        self.rows = rows or self.tokens + 7
        self.x = jax.random.normal(keys[0], (self.rows, k), dtype).at[self.tokens:].set(jnp.nan)
        self.dy = jax.random.normal(keys[1], (self.rows, n), dtype).at[self.tokens:].set(jnp.nan)
        self.w = jax.random.normal(keys[2], (len(lengths), k, n), dtype)
        self.sizes = jnp.array(lengths, jnp.int32)
        self.offsets = np.cumsum([0, *lengths])

    def parts(self, a):
        """Each expert's rows, in float64."""
        a = np.asarray(a, np.float64)
        return [a[i:j] for i, j in zip(self.offsets, self.offsets[1:])]

    def y(self, x=None, w=None):
        w = np.asarray(self.w if w is None else w, np.float64)
        return self.whole([a @ b for a, b in zip(self.parts(self.x if x is None else x), w)])

    def dx(self):
        return self.whole([a @ b.T for a, b in zip(self.parts(self.dy),
                                                   np.asarray(self.w, np.float64))])

    def dw(self):
        return np.stack([a.T @ b for a, b in zip(self.parts(self.x), self.parts(self.dy))])

    def whole(self, parts):
        """The experts' rows, and zeros after them."""
        rows = np.concatenate(parts)
        return np.concatenate([rows, np.zeros((self.rows - len(rows), rows.shape[1]))])

    def loss(self, function):
        """The sum of the groups' y times dy, whose gradients are dx and dw."""
        def loss(x, w, *more):
            y = function(x, w, self.sizes, *more)
            inside = jnp.arange(self.rows)[:, None] < self.tokens
            return (y.astype(jnp.float32) * jnp.where(inside, self.dy, 0).astype(jnp.float32)).sum()
        return loss

    def gradients(self, function, *more):
        """dx and dw of a function (x, w, sizes) for this dy, of which rows outside are NaN."""
        y, back = jax.vjp(lambda x, w: function(x, w, self.sizes, *more), self.x, self.w)
        return back(self.dy.astype(y.dtype))


def error(found, expected):
    """The largest difference, as a part of the largest expected value."""
    found, expected = np.asarray(found, np.float64), np.asarray(expected, np.float64)
    assert found.shape == expected.shape
    if not expected.size:
        return 0
    return np.nan_to_num(np.abs(found - expected), nan=np.inf).max() / max(
        np.abs(expected).max(), 1e-6)


def assert_near(found, expected, tolerance=2**-8):
    assert error(found, expected) <= tolerance


def assert_near_in_norm(found, expected, tolerance):
    """For values of few bits, whose largest error is no measure."""
    found, expected = np.asarray(found, np.float64), np.asarray(expected, np.float64)
    assert found.shape == expected.shape
    assert np.linalg.norm(found - expected) <= tolerance * np.linalg.norm(expected)


def same(found, expected):
    return bool((np.asarray(found, np.float64) == np.asarray(expected, np.float64)).all())


@pytest.fixture
def case():
    return Case([10, 0, 33, 5], n=48, k=64)
