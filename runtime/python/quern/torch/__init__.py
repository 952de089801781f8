# SPDX-License-Identifier: Apache-2.0
"""quern for PyTorch: the experts of mixture-of-experts layers, with gradients.

    import quern.torch
    y = quern.torch.grouped_mm(x, w, sizes, recipe="fp8_block")

    x      [tokens, k]   the tokens of all experts, one expert after the other
    w      [experts, n, k]
    sizes  [experts]     tokens of each expert, int32 or int64, on the device of x
    y      [tokens, n]

docs/pytorch.md describes all of it.
"""

from quern import add_specs, recipes, tune, version, why
from quern.packed import unpack
from quern.torch._tools import check
from quern.torch.functions import grouped_mm
from quern.torch.layer import combine, moe, permute, route
from quern.torch.linear import GroupedLinear
from quern.torch.mlp import grouped_mlp
from quern.torch.modules import (Activation, GroupedMLP, ScaledClampedQGeGLU, ScaledSwiGLU,
                                 Sequential, SwiGLU)
from quern.torch.packed import PackedExperts, load_packed, pack
from quern.torch.parallel import ExpertParallelMoE
from quern.torch.quantized import Quantized, dequantize, quantize
from quern.torch.queue import WgradQueue
from quern.torch.switches import Switch, TrainingConfig, install, replace_grouped_mm
from quern.torch.tensor_parallel import column_parallel_mm, row_parallel_mm

__all__ = ["Activation", "ExpertParallelMoE", "GroupedLinear", "GroupedMLP", "PackedExperts",
           "Quantized", "ScaledClampedQGeGLU", "ScaledSwiGLU", "Sequential", "SwiGLU", "Switch",
           "TrainingConfig", "WgradQueue", "add_specs", "check", "column_parallel_mm", "combine",
           "dequantize", "grouped_mlp", "grouped_mm", "install", "load_packed", "moe", "pack",
           "permute", "quantize", "recipes", "replace_grouped_mm", "route", "row_parallel_mm",
           "tune", "unpack", "version", "why"]
