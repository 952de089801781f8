# SPDX-License-Identifier: Apache-2.0
"""GroupedMLP, activations, and Sequential, which runs a linear layer, an activation and a linear
layer as one MLP."""

import torch
import torch.nn.functional as F

from quern import GATED, PLAIN
from quern.scaling import limits_of
from quern.torch import _checks, _compile
from quern.torch._module import Experts, default_device, local, one_of
from quern.torch.linear import GroupedLinear, normal
from quern.torch.mlp import mlp_linear


class GroupedMLP(Experts):
    """The MLP of each expert: quern.torch.grouped_mlp with parameters w1 [experts, 2 ffn or ffn,
    hidden], w2 [experts, hidden, ffn] and, with bias, b1 and b2.

        activation, interleave, recompute, limit, slope, shift, outside  as grouped_mlp has them
        fuse_wgrad_accumulation, delay_wgrad_compute, params_dtype, device, init_method, recipe,
        wgrad_queue, layer  as GroupedLinear has them; of w1 and w2
    """

    _fused = ("w1", "w2")

    def __init__(self, num_experts, hidden, ffn, *, activation="swiglu", recipe="bf16", bias=False,
                 interleave=0, recompute=False, limit=7.0, slope=1.702, shift=1.0, outside=None,
                 fuse_wgrad_accumulation=False, delay_wgrad_compute=False, wgrad_queue=None,
                 layer=0, params_dtype=None, device=None, init_method=None):
        super().__init__(recipe, fuse_wgrad_accumulation, delay_wgrad_compute, outside, wgrad_queue,
                         layer)
        _checks.word("activation", activation, GATED + PLAIN)
        num_experts = _checks.integer("num_experts", num_experts, 1, _checks.GROUPS)
        hidden, ffn = _checks.integer("hidden", hidden, 1), _checks.integer("ffn", ffn, 1)
        bias, recompute = _checks.flag("bias", bias), _checks.flag("recompute", recompute)
        interleave = _checks.integer("interleave", interleave, 0)
        self.num_experts, self.hidden, self.ffn = num_experts, hidden, ffn
        self.activation, self.interleave, self.recompute = activation, interleave, recompute
        self.limits, self._init = limits_of(limit, slope, shift), init_method or normal
        dtype, device = params_dtype or torch.get_default_dtype(), default_device(device)
        _checks.dtype_of("params_dtype", dtype)
        wide = 2 * ffn if activation in GATED else ffn
        shapes = {"w1": (num_experts, wide, hidden), "w2": (num_experts, hidden, ffn)}
        if bias:
            shapes.update(b1=(num_experts, wide), b2=(num_experts, hidden))
        for name, shape in shapes.items():
            self._add(name, None, shape, dtype, device)
        self._add_state(6, device)
        if device.type != "meta":
            self.reset_parameters()
        if delay_wgrad_compute:
            self.w1.skip_backward_post_hook = self.w2.skip_backward_post_hook = True

    def reset_parameters(self):
        """Draw new weights, and set biases to 0."""
        with torch.no_grad():
            for w in (*self.w1, *self.w2):
                self._init(w)
            for b in self._list("b1") + self._list("b2"):
                b.zero_()

    @_compile.eager_if(lambda self, *_, **__: self._why_eager("w1"))
    def forward(self, x, sizes, prob=None, is_first_microbatch=None, out=None, dgrad_out=None):
        """y [.., hidden] of x [.., hidden]; prob [rows] multiplies each row of the result. The
        other arguments are those of GroupedLinear.forward."""
        return self._run(x, prob, is_first_microbatch, sizes=sizes, outside=self.outside, out=out,
                         dgrad_out=dgrad_out)

    def _run(self, x, prob, is_first_microbatch, **more):
        """mlp_linear with this module's parameters and options."""
        is_first_microbatch = _checks.first_microbatch(is_first_microbatch)
        (main1, overwrite), (main2, _) = self._main_grads("w1"), self._main_grads("w2")
        is_fused = main1 is not None
        w1, w2 = one_of([self.w1], is_fused), one_of([self.w2], is_fused)
        if self._scaling.w == 1 and w1.dtype != self._scaling.type:
            w1, w2 = w1.to(self._scaling.type), w2.to(self._scaling.type)
        state = self._state((0, 0, 1, 1, 2, 2), is_first_microbatch)
        quantized = [self._quantized(name, w, is_first_microbatch,
                                     None if state is None else (state[0][i], state[1][i]))
                     for name, w, i in (("w1", w1, 2), ("w2", w2, 3))]
        return mlp_linear(
            x, w1, w2, *quantized, recipe=self.recipe, activation=self.activation, prob=prob,
            b1=local(getattr(self, "b1", None)), b2=local(getattr(self, "b2", None)),
            interleave=self.interleave, recompute=self.recompute, limits=self.limits,
            main_grad1=local(main1[0]).view(w1.shape) if is_fused else None,
            main_grad2=local(main2[0]).view(w2.shape) if is_fused else None, queue=self._queue(),
            layer=self.layer, overwrite=overwrite, state=state, sink=self._sink("w1", "w2"), **more)

    def extra_repr(self):
        return (f"num_experts={self.num_experts}, hidden={self.hidden}, ffn={self.ffn}, "
                f"activation={self.activation!r}, recipe={self.recipe!r}")


# ----------------------------------------------------------------------------------- activations


def _situ(a, b):
    return 4 * torch.tanh(a / 4) * torch.sigmoid(a) * 25 * torch.tanh(b / 25)


_FORMULAS = {
    "swiglu": lambda a, b, *_: F.silu(a) * b,
    "clamped_swiglu": lambda a, b, limit, slope, shift: (
        a.clamp(max=limit) * torch.sigmoid(slope * a.clamp(max=limit)) *
        (b.clamp(-limit, limit) + shift)),
    "situ": lambda a, b, *_: _situ(a, b),
    "geglu": lambda a, b, *_: F.gelu(a, approximate="tanh") * b,
    "reglu": lambda a, b, *_: F.relu(a) * b,
    "squared_relu": lambda a, *_: F.relu(a).square(),
    "relu": lambda a, *_: F.relu(a),
    "silu": lambda a, *_: F.silu(a),
    "gelu": lambda a, *_: F.gelu(a),
    "gelu_tanh": lambda a, *_: F.gelu(a, approximate="tanh"),
}


class Activation(torch.nn.Module):
    """The activation of an MLP by itself, in PyTorch's operations.

        activation  swiglu, clamped_swiglu (limit, slope, shift), situ, geglu, reglu, squared_relu,
                    relu, silu, gelu, gelu_tanh
        is_scaled   forward takes prob [rows], a factor of each row
        interleave  length of alternating runs of the two operands; 0: halves
    """

    def __init__(self, activation="swiglu", *, is_scaled=False, interleave=0, limit=7.0,
                 slope=1.702, shift=1.0):
        super().__init__()
        _checks.word("activation", activation, GATED + PLAIN)
        self.activation, self.is_scaled = activation, _checks.flag("is_scaled", is_scaled)
        self.interleave = _checks.integer("interleave", interleave or 0, 0)
        self.limits = limits_of(limit, slope, shift)

    def forward(self, x, prob=None):
        if (prob is not None) != self.is_scaled:
            raise ValueError("prob: it is given if and only if the activation is scaled")
        if self.activation in PLAIN:
            h = _FORMULAS[self.activation](x.float())
        else:
            run = self.interleave or max(x.shape[-1] // 2, 1)
            if x.shape[-1] % (2 * run):
                raise ValueError(f"x has the shape {list(x.shape)}: a last axis of a multiple of "
                                 f"{2 * run if self.interleave else 2} is expected")
            a, b = x.float().unflatten(-1, (-1, 2, run)).unbind(-2)
            h = _FORMULAS[self.activation](a.flatten(-2), b.flatten(-2), *self.limits)
        return (h if prob is None else h * prob.float().unsqueeze(-1)).to(x.dtype)

    def extra_repr(self):
        return f"{self.activation!r}, is_scaled={self.is_scaled}, interleave={self.interleave}"


class SwiGLU(Activation):
    """silu(a) * b, as transformer_engine.pytorch.ops.SwiGLU."""

    def __init__(self, *, glu_interleave_size=None):
        super().__init__("swiglu", interleave=glu_interleave_size)


class ScaledSwiGLU(Activation):
    """silu(a) * b * prob, as transformer_engine.pytorch.ops.ScaledSwiGLU."""

    def __init__(self, glu_interleave_size=None):
        super().__init__("swiglu", is_scaled=True, interleave=glu_interleave_size)


class ScaledClampedQGeGLU(Activation):
    """gpt-oss's activation with prob, as TransformerEngine's class of this name."""

    def __init__(self, glu_interleave_size=None, *, limit=7.0, alpha=1.702, glu_linear_offset=1.0):
        super().__init__("clamped_swiglu", is_scaled=True, interleave=glu_interleave_size,
                         limit=limit, slope=alpha, shift=glu_linear_offset)


# ------------------------------------------------------------------------------------ Sequential

_OPTIONS = {"output": "out", "grad_input": "dgrad_out", "is_first_microbatch": None}


class Sequential(torch.nn.Sequential):
    """Modules one after the other, as transformer_engine.pytorch.ops.Sequential:

        Sequential(fc1, ScaledSwiGLU(), fc2)(x, sizes, prob, sizes,
            op_kwargs={fc2: {"output": y}, fc1: {"grad_input": dx}})

    Extra inputs are consumed in order: a GroupedLinear takes sizes and, with scale_bias, prob; a
    scaled activation takes prob. Options of GroupedLinear: output, grad_input and
    is_first_microbatch. GroupedLinear, Activation, GroupedLinear run as one grouped_mlp where
    why_not_fused() finds no reason against it.
    """

    def forward(self, x, *extra, op_kwargs=None):
        modules = list(self)
        options = self._options(modules, op_kwargs or {})
        inputs, at = [], 0
        for module in modules:
            count = _extra_inputs(module)
            inputs.append(extra[at:at + count])
            at += count
        if at != len(extra):
            raise ValueError(f"Sequential: {at} extra inputs are expected, and {len(extra)} given")
        i = 0
        while i < len(modules):
            if why_not_fused(modules[i:i + 3], inputs[i:i + 3], options[i:i + 3]) is None:
                x = _run_fused(x, modules[i:i + 3], inputs[i:i + 3], options[i:i + 3])
                i += 3
                continue
            x = _run(x, modules[i], inputs[i], options[i])
            i += 1
        return x

    @staticmethod
    def _options(modules, given):
        for module, wanted in given.items():
            if not any(module is one for one in modules):
                raise ValueError(f"op_kwargs: {type(module).__name__} is no module of this "
                                 "Sequential")
            known = _OPTIONS if isinstance(module, GroupedLinear) else {}
            for name in wanted:
                if name not in known:
                    raise ValueError(f"op_kwargs: {type(module).__name__} has no option {name!r}; "
                                     f"known: {', '.join(known) or 'none'}")
        return [{_OPTIONS[name] or name: value for name, value in given.get(module, {}).items()}
                for module in modules]


def _extra_inputs(module):
    if isinstance(module, GroupedLinear):
        return 2 if module.scale_bias and module.apply_bias else 1
    return int(isinstance(module, Activation) and module.is_scaled)


def _run(x, module, extra, options):
    if isinstance(module, GroupedLinear):
        return module(x, extra[0], prob=extra[1] if len(extra) > 1 else None, **options)
    return module(x, *extra)


def _has_own_call(module):
    """Whether calling it does more than the library's forward: hooks, such as those of FSDP2 that
    gather parameters, or a subclass."""
    forward = GroupedLinear.forward if isinstance(module, GroupedLinear) else Activation.forward
    return type(module).forward is not forward or any((
        module._forward_hooks, module._forward_pre_hooks, module._backward_hooks,
        module._backward_pre_hooks))


def why_not_fused(modules, extra, options):
    """Why three modules with these inputs are not one grouped_mlp; None: they are."""
    if len(modules) < 3 or not (isinstance(modules[0], GroupedLinear) and
                                isinstance(modules[1], Activation) and
                                isinstance(modules[2], GroupedLinear)):
        return "they are no GroupedLinear, Activation, GroupedLinear"
    first, activation, last = modules
    gated = 2 if activation.activation in GATED else 1
    for sentence, holds in (
            ("a module has hooks or a forward of its own",
             not any(map(_has_own_call, modules[:3]))),
            ("recipe and outside differ", (first.recipe, first.outside) == (last.recipe,
                                                                            last.outside)),
            ("delayed scaling has its state in each layer", not first._scaling.slots),
            ("return_bias", not (first.return_bias or last.return_bias)),
            ("only one layer has a bias", first.use_bias == last.use_bias),
            ("features differ", first.out_features == gated * last.in_features),
            ("hidden features differ", first.in_features == last.out_features),
            ("delay_wgrad_compute", not (first.delay_wgrad_compute or last.delay_wgrad_compute)),
            ("fuse_wgrad_accumulation of one layer",
             first.fuse_wgrad_accumulation == last.fuse_wgrad_accumulation),
            ("the bias and the activation have different factors", not last.use_bias or
             (last.scale_bias == activation.is_scaled and not first.scale_bias)),
            ("the first layer's output is wanted", "out" not in options[0]),
            ("the last layer's gradient is wanted", "dgrad_out" not in options[2]),
            ("the layers' sizes are two tensors", extra[0][0] is extra[2][0]),
            ("the layers' is_first_microbatch differ", options[0].get("is_first_microbatch") is
             options[2].get("is_first_microbatch")),
            ("the probabilities are two tensors", len(extra[2]) < 2 or extra[2][1] is extra[1][0])):
        if not holds:
            return sentence
    if first.fuse_wgrad_accumulation and torch.is_grad_enabled():
        if not torch.compiler.is_compiling() and (first._main_grad()[1] is not None or
                                                  last._main_grad()[1] is not None):
            return "the experts' main_grad are separate tensors"
    return None


@_compile.eager_if(lambda x, modules, *_: modules[0]._why_eager("weight") or
                   modules[2]._why_eager("weight"))
def _run_fused(x, modules, extra, options):
    first, activation, last = modules
    is_first = _checks.first_microbatch(options[0].get("is_first_microbatch"))
    (main1, _, overwrite), (main2, _, _) = first._main_grad(), last._main_grad()
    weights = [one_of(fc._list("weight"), main1 is not None, need and fc._is_read("weight"))
               for fc, need in ((first, x.requires_grad), (last, True))]
    if first._scaling.w == 1:
        weights = [w if w.dtype == fc._scaling.type else w.to(fc._scaling.type)
                   for fc, w in zip((first, last), weights)]
    quantized = [fc._quantized("weight", w, is_first) for fc, w in zip((first, last), weights)]
    b1, b2 = [one_of(fc._list("bias"), False) if fc.apply_bias else None for fc in (first, last)]
    return mlp_linear(x, *weights, *quantized, extra[0][0], recipe=first.recipe,
                      activation=activation.activation, prob=extra[1][0] if extra[1] else None,
                      b1=b1, b2=b2, interleave=activation.interleave, limits=activation.limits,
                      outside=first.outside, out=options[2].get("out"),
                      dgrad_out=options[0].get("dgrad_out"), main_grad1=main1, main_grad2=main2,
                      overwrite=overwrite)
