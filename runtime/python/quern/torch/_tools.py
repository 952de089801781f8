# SPDX-License-Identifier: Apache-2.0
"""Questions to the library at run time."""

import torch

from quern.torch._ops import library


def check(device=None):
    """Wait for a CUDA device, default the current one, or the CPU; then RuntimeError with the first
    error that kernels found since, such as sizes that pass the rows."""
    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    try:
        found = torch.device(device if device is not None else "cuda" if count else "cpu")
    except (RuntimeError, TypeError):
        found = None
    if found is None or found.type != "cpu" and (found.type != "cuda" or
                                                 (found.index or 0) >= count):
        raise ValueError(f"device is {device!r}: 'cpu' or a CUDA device that is here is expected")
    index = -1 if found.type == "cpu" else found.index
    if index is None:
        index = torch.cuda.current_device()
    if index >= 0:
        torch.cuda.synchronize(index)
    error = library.quern_torch_check(index)
    if error:
        raise RuntimeError(error.decode(errors="replace"))
