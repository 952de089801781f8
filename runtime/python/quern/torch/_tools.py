# SPDX-License-Identifier: Apache-2.0
"""Questions to the library at run time."""

import torch

from quern.torch._ops import library


def check(device=None):
    """Wait for a CUDA device, default the current one, or the CPU; then RuntimeError with the first
    error that kernels found since, such as sizes that pass the rows."""
    device = torch.device(device if device is not None else
                          "cuda" if torch.cuda.is_available() else "cpu")
    index = -1 if device.type == "cpu" else device.index
    if index is None:
        index = torch.cuda.current_device()
    if index >= 0:
        torch.cuda.synchronize(index)
    error = library.quern_torch_check(index)
    if error:
        raise RuntimeError(error.decode(errors="replace"))
