# SPDX-License-Identifier: Apache-2.0
"""Shared by the tests: data whose tail is NaN, and products in float64.

QUERN_TORCH_DEVICE=cuda runs them on a GPU, with a torch that has one.
"""

import concurrent.futures
import os
import sys

import pytest
import torch

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(ROOT, "runtime", "python"))


DEVICE = os.environ.get("QUERN_TORCH_DEVICE", "cpu")
if DEVICE != "cpu":
    torch.set_default_device(DEVICE)


class Case:
    """Tokens of experts in more rows than they need: those after the last expert's are NaN."""

    def __init__(self, lengths, n, k, rows=None, dtype=torch.bfloat16, seed=1):
        torch.manual_seed(seed)
        self.lengths, self.n, self.k, self.tokens = lengths, n, k, sum(lengths)
        self.rows = rows or self.tokens + 7
        self.x = torch.randn(self.rows, k).to(dtype)
        self.dy = torch.randn(self.rows, n).to(dtype)
        self.w = torch.randn(len(lengths), n, k).to(dtype)
        self.x[self.tokens:] = float("nan")
        self.dy[self.tokens:] = float("nan")

    def sizes(self, name="sizes", dtype=torch.int32):
        lengths = torch.tensor(self.lengths, dtype=dtype)
        return {name: lengths.cumsum(0, dtype=dtype) if name == "offs" else lengths}

    def parts(self, t):
        """Each expert's rows, in float64."""
        return t[:self.tokens].double().split(self.lengths)

    def fprop(self, x, w):
        return torch.cat([a @ b.T for a, b in zip(self.parts(x), w.double())])

    def dgrad(self, dy, w):
        return torch.cat([a @ b for a, b in zip(self.parts(dy), w.double())])

    def wgrad(self, dy, x):
        return torch.stack([a.T @ b for a, b in zip(self.parts(dy), self.parts(x))])


def assert_near(found, expected, tolerance=2**-8):
    """Within a part of the largest expected value."""
    assert found.isfinite().all()
    error = (found.double() - expected).abs().max() if expected.numel() else 0
    assert error <= tolerance * max(expected.abs().max() if expected.numel() else 0, 1e-6)


def shifted(t):
    """The same values, one element after memory that a kernel could read."""
    return torch.cat([t.flatten()[:1], t.flatten()])[1:].view(t.shape)


def uses(t):
    """How many tensors and views have this memory."""
    return torch._C._storage_Use_Count(t.untyped_storage()._cdata)


def in_threads(work):
    """Call work() in six threads at once, and raise what one of them raises."""
    with concurrent.futures.ThreadPoolExecutor(6) as pool:
        for call in [pool.submit(work) for _ in range(6)]:
            call.result()


def captured(step):
    """A graph of a step, made after one run of it on another stream; its results."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        step()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        results = step()
    return graph, results


@pytest.fixture(scope="module")
def group(tmp_path_factory):
    """NCCL's, of one process."""
    import torch.distributed as dist
    store = tmp_path_factory.mktemp("store") / "file"
    dist.init_process_group("nccl", init_method=f"file://{store}", rank=0, world_size=1,
                            device_id=torch.device("cuda", 0))
    yield dist.group.WORLD
    dist.destroy_process_group()


@pytest.fixture
def case():
    return Case([10, 0, 33, 5], n=48, k=64)
