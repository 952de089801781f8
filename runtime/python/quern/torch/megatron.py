# SPDX-License-Identifier: Apache-2.0
"""Megatron-Core's experts by quern: sizes stay on the device, groups need no padding.

    switch = quern.torch.install("megatron", recipe="fp8_block")
    spec = get_moe_module_spec(use_te=..., num_experts=..., moe_grouped_gemm=True)
    switch.undo()

Specs that are made in between have Experts instead of TEGroupedMLP or GroupedMLP. Configurations
that Experts lacks get SequentialMLP, with one warning that says why.
"""

import functools

import torch
import torch.nn.functional as F
from megatron.core.activations import quick_gelu, squared_relu
from megatron.core.dist_checkpointing import ShardedTensor
from megatron.core.dist_checkpointing.mapping import ShardedTensorFactory
from megatron.core.extensions.transformer_engine_spec_provider import TESpecProvider
from megatron.core.models.backends import LocalSpecProvider
from megatron.core.tensor_parallel.layers import (
    _initialize_affine_weight_cpu,
    _initialize_affine_weight_gpu,
    set_tensor_model_parallel_attributes,
)
from megatron.core.tensor_parallel.utils import divide
from megatron.core.transformer.mlp import MLPSubmodules
from megatron.core.transformer.module import MegatronModule
from megatron.core.transformer.moe.experts import SequentialMLP

from . import experts
from .switches import all_of, attribute, warn_once

_KEYS = {"weight1": "linear_fc1.weight", "bias1": "linear_fc1.bias",
         "weight2": "linear_fc2.weight", "bias2": "linear_fc2.bias"}  # SequentialMLP's


def _reason_against(config, recipe):
    """Why Experts lacks a configuration; None: it does not."""
    for name in ("fp8", "fp4", "use_te_activation_func", "delay_wgrad_compute"):
        if getattr(config, name, None):
            return f"config.{name} is set"
    if "moe_act" in (getattr(config, "recompute_modules", None) or ()):
        return "config.recompute_modules has moe_act"
    if getattr(config, "fine_grained_activation_offloading", False):
        return "config.fine_grained_activation_offloading is set"
    return experts.reason_against(recipe, params_dtype=torch.empty(0, dtype=config.params_dtype,
                                                                   device="cpu"))


class Experts(MegatronModule):
    """The arguments and the forward of TEGroupedMLP.

        weight1  [experts, ffn, hidden], twice as many with a gate: gates, then values
        weight2  [experts, hidden, ffn]
        bias1, bias2  with config.add_bias_linear
    """

    recipe = "bf16"

    def __new__(cls, num_local_experts, config, submodules=None, pg_collection=None):
        reason = _reason_against(config, cls.recipe)
        if not reason:
            return super().__new__(cls)
        warn_once(f"megatron's SequentialMLP computes the experts: {reason}")
        return SequentialMLP(num_local_experts, config, submodules, pg_collection)

    def __init__(self, num_local_experts, config, submodules=None, pg_collection=None):
        super().__init__(config=config)
        self.num_local_experts = num_local_experts
        self.ep_group, self.tp_group = pg_collection.ep, pg_collection.expt_tp
        self.dp_group = pg_collection.expt_dp
        hidden = getattr(config, "moe_latent_size", None) or config.hidden_size
        ffn, gates = config.moe_ffn_hidden_size, 1 + config.gated_linear_unit
        self._add("weight1", (gates * ffn, hidden), 0, config.init_method, gates)
        self._add("weight2", (hidden, ffn), 1, config.output_layer_init_method)
        if config.add_bias_linear:
            self._add("bias1", (gates * ffn,), 0)
            self._add("bias2", (hidden,))

    def _add(self, name, shape, axis=None, init=None, stride=1):
        """A parameter of each expert; `axis` is split among the ranks of tensor parallelism."""
        config, ranks = self.config, self.tp_group.size()
        part = [divide(n, ranks) if i == axis else n for i, n in enumerate(shape)]
        on_cpu = config.use_cpu_initialization
        values = torch.zeros(self.num_local_experts, *part, dtype=config.params_dtype,
                             device="cpu" if on_cpu else torch.cuda.current_device())
        for expert in values if init and config.perform_initialization else ():
            if on_cpu:
                _initialize_affine_weight_cpu(
                    expert, *shape, part[axis], axis, init, stride=stride,
                    params_dtype=config.params_dtype, rank=self.tp_group.rank(), world_size=ranks)
            else:
                _initialize_affine_weight_gpu(expert, init, axis, stride=stride, is_expert=True)
        parameter = torch.nn.Parameter(values)
        parameter.allreduce = config.expert_model_parallel_size == 1
        if axis is not None:
            set_tensor_model_parallel_attributes(parameter, True, 1 + axis, stride)
        setattr(self, name, parameter)

    def _activate(self, h):
        config = self.config
        if not config.gated_linear_unit:
            return config.activation_func(h)
        gate, value = h.chunk(2, dim=-1)
        limit = getattr(config, "activation_func_clamp_value", None)
        if limit is not None:
            gate, value = gate.clamp(max=limit), value.clamp(min=-limit, max=limit)
        return config.activation_func(gate) * (value + getattr(config, "glu_linear_offset", 0))

    def _fused(self):
        """The activation as grouped_mlp has it, or None."""
        config = self.config
        limit = getattr(config, "activation_func_clamp_value", None)
        shift = getattr(config, "glu_linear_offset", 0)
        if not config.gated_linear_unit:
            name = {squared_relu: "squared_relu", F.relu: "relu", F.silu: "silu",
                    F.gelu: "gelu"}.get(config.activation_func)
            return {"activation": name} if name else None
        if config.activation_func is quick_gelu and limit is not None:
            return {"activation": "clamped_swiglu", "limit": limit, "slope": 1.702, "shift": shift}
        name = {F.silu: "swiglu", F.relu: "reglu"}.get(config.activation_func)
        return {"activation": name} if name and limit is None and not shift else None

    def forward(self, permuted_local_hidden_states, tokens_per_expert, permuted_probs):
        """Rows sorted by expert, [experts] lengths, a factor for each row -> (rows, None)."""
        x, probs = permuted_local_hidden_states, permuted_probs
        if self.config.moe_apply_probs_on_input:
            assert self.config.moe_router_topk == 1, "moe_apply_probs_on_input needs topk 1"
            x, probs = (probs[:, None] * x).to(x.dtype), None
        lengths = tokens_per_expert.to(x.device, non_blocking=True)
        y = experts.mlp(x.to(self.weight1.dtype), self.weight1, self.weight2,
                        lengths.cumsum(0, dtype=torch.int32), self._activate, self.recipe,
                        fused=self._fused(), b1=getattr(self, "bias1", None),
                        b2=getattr(self, "bias2", None), prob=probs)
        return y, None

    def backward_dw(self):
        """Nothing: weight gradients are not delayed."""

    def sharded_state_dict(self, prefix="", sharded_offsets=(), metadata=None):
        """In a checkpoint these are the tensors of SequentialMLP and TEGroupedMLP."""
        single = (metadata or {}).get("singleton_local_shards", False)
        state = {}
        for name, p in self.named_parameters(recurse=False):
            rank = self.tp_group.rank() if name == "bias2" else 0  # bias2 is on each of them
            build = functools.partial(self._shards, name, sharded_offsets, single)
            state[prefix + name] = ShardedTensorFactory(
                f"{prefix}experts.", p, build, functools.partial(_join, self._parts(name)),
                (0, rank, self.dp_group.rank()))
        return state

    def _parts(self, name):
        return 2 if self.config.gated_linear_unit and name in ("weight1", "bias1") else 1

    @torch.no_grad()
    def _shards(self, name, offsets, single, key, values, replica, *_):
        """Shards of each expert: a gate and a value are two of them."""
        ranks, rank = self.tp_group.size(), self.tp_group.rank()
        parts = self._parts(name)
        axis = {"weight1": 0, "bias1": 0, "weight2": 1}.get(name)
        experts_of_all = self.ep_group.size() * self.num_local_experts
        shards = []
        for i, expert in enumerate(values, self.ep_group.rank() * self.num_local_experts):
            of_expert = offsets if single else (*offsets, (len(offsets), i, experts_of_all))
            before = len(of_expert)
            for part, piece in enumerate(expert.chunk(parts)):
                word = f"{i}.{_KEYS[name]}" if single else _KEYS[name]
                place, places = rank + part * ranks, parts * ranks
                if single and parts > 1:
                    word, place, places = f"{word}_{'wv'[part]}", rank, ranks
                split = () if axis is None else ((before + axis, place, places),)
                shards.append(ShardedTensor.from_rank_offsets(
                    key + word, piece, *of_expert, *split, replica_id=replica,
                    prepend_axis_num=before))
        return shards

    def extra_repr(self):
        return f"experts={self.num_local_experts}, recipe={self.recipe}"


@torch.no_grad()
def _join(parts, shards):
    """The parameter of loaded shards."""
    return torch.stack([torch.cat(shards[i:i + parts]) for i in range(0, len(shards), parts)])


@functools.lru_cache(maxsize=None)
def experts_class(recipe):
    """Experts of a recipe, for specs of one's own."""
    return type("QuernExperts", (Experts,), {"recipe": experts.check_recipe(recipe)})


def install(*, recipe="bf16"):
    """Let specs with moe_grouped_gemm have Experts. Returns a Switch."""
    module = experts_class(recipe)
    switches = []
    for provider in (LocalSpecProvider, TESpecProvider):
        def grouped_mlp_modules(self, moe_use_grouped_gemm, *legacy, old=None):
            if not moe_use_grouped_gemm:
                return old(self, moe_use_grouped_gemm, *legacy)
            return module, MLPSubmodules(linear_fc1=self.column_parallel_linear(),
                                         linear_fc2=self.row_parallel_linear())

        old = provider.grouped_mlp_modules
        switches.append(attribute(provider, "grouped_mlp_modules",
                                  functools.partialmethod(grouped_mlp_modules, old=old)))
    return all_of(switches)
