# SPDX-License-Identifier: Apache-2.0
"""quern for JAX: the experts of mixture-of-experts layers, with gradients.

    import quern.jax
    y = quern.jax.ragged_dot(x, w, sizes, recipe="fp8_block")

    x      [tokens, k]   the tokens of all experts, one expert after the other
    w      [experts, k, n]
    sizes  [experts]     tokens of each expert, int32 or int64
    y      [tokens, n]

docs/jax.md describes all of it.
"""

from quern import add_specs, recipes, tune, version, why
from quern.jax.dense import GroupedTensor, grouped_dense, grouped_gemm
from quern.jax.functions import ragged_dot, wgrad
from quern.jax.general import ragged_dot_general
from quern.jax.layer import combine, moe, permute, route
from quern.jax.mlp import grouped_mlp
from quern.jax.packed import PackedExperts, load_packed, pack
from quern.jax.parallel import expert_parallel_moe
from quern.jax.quantized import Quantized, dequantize, grouped_quantize
from quern.jax.scaling import ScalingState, rescale, scaling_state
from quern.jax.switches import replace_ragged_dot
from quern.packed import unpack

__all__ = ["GroupedTensor", "PackedExperts", "Quantized", "ScalingState", "add_specs", "combine",
           "dequantize", "expert_parallel_moe", "grouped_dense", "grouped_gemm", "grouped_mlp",
           "grouped_quantize", "load_packed", "moe", "pack", "permute", "ragged_dot",
           "ragged_dot_general", "recipes", "replace_ragged_dot", "rescale", "route",
           "scaling_state", "tune", "unpack", "version", "wgrad", "why"]
