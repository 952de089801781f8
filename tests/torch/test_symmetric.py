# SPDX-License-Identifier: Apache-2.0
"""Results written into symmetric memory, which other ranks read without a copy. One GPU shows
that the address is taken as it is; torch's memory of one rank needs no peer."""

import pytest
import torch

from conftest import DEVICE, Case

import quern.torch as qt

pytestmark = pytest.mark.skipif(DEVICE == "cpu", reason="symmetric memory needs a GPU")


@pytest.mark.parametrize("recipe", ["bf16", "fp8_block"])
def test_out_is_symmetric_memory(group, recipe):
    import torch.distributed._symmetric_memory as symmetric
    case = Case([10, 0, 33, 5], n=48, k=64)
    y = symmetric.empty((case.rows, case.n), dtype=torch.bfloat16, device="cuda:0")
    handle = symmetric.rendezvous(y, group)
    y.fill_(7)
    found = qt.grouped_mm(case.x, case.w, **case.sizes(), recipe=recipe, out=y)
    expected = qt.grouped_mm(case.x, case.w, **case.sizes(), recipe=recipe)
    assert found.data_ptr() == y.data_ptr()
    seen = handle.get_buffer(0, list(y.shape), y.dtype)  # as a peer maps it
    assert torch.equal(seen[:case.tokens], expected[:case.tokens])
    assert (seen[case.tokens:] == 7).all()
