# SPDX-License-Identifier: Apache-2.0
"""The base of GroupedLinear and GroupedMLP: packed parameters, quantized weights kept over
microbatches, the state of delayed scaling, main_grad, and weight gradients computed later."""

import itertools
import weakref

import torch

from quern.scaling import OF
from quern.torch import _checks
from quern.torch._ops import ops
from quern.torch._recipes import scaling_of
from quern.torch.functions import add_grad
from quern.torch.quantized import Quantized, State, cast, refresh
from quern.torch.queue import Later


def default_device(device):
    """The device of new parameters: as given, that of `with torch.device()`, or a GPU."""
    if device is not None:
        return torch.device(device)
    device = torch.get_default_device()
    return torch.device("cuda") if device.type == "cpu" and torch.cuda.is_available() else device


def local(t):
    """This process's part of a DTensor."""
    if t is None or type(t) is torch.nn.Parameter or not hasattr(t, "to_local"):
        return t
    return t.to_local()


def are_adjacent(tensors):
    """Whether contiguous tensors follow each other in one allocation."""
    first = tensors[0]
    size, start = first.nbytes, _checks.address(first)
    if not size or [_checks.address(t) for t in tensors] != [start + i * size
                                                             for i in range(len(tensors))]:
        return False
    if not all(t.dtype == first.dtype and t.is_contiguous() for t in tensors):
        return False
    end = first.storage_offset() * first.itemsize + len(tensors) * size
    return end <= first.untyped_storage().nbytes()


def as_one(tensors):
    """Adjacent tensors as one with another axis, without a copy."""
    first = tensors[0].detach()
    return first.as_strided((len(tensors), *first.shape), (first.numel(), *first.stride()))


class _Weights(torch.autograd.Function):
    """Parameters as one tensor. If main_grad takes their gradient, grad_added_to_main_grad tells
    Megatron's hooks so, and they get a gradient of undefined values, or of zeros if
    zero_out_wgrad. Adjacent parameters have a version each, of which autograd sees only the
    first's: if the gradient of the tokens reads them, is_read, their versions are compared here."""

    @staticmethod
    def forward(ctx, is_fused, is_read, *weights):
        ctx.set_materialize_grads(False)
        ctx.weights, ctx.count = weights if is_fused else (), len(weights)
        ctx.seen = []
        if len(weights) == 1:
            return weights[0].detach()
        if not are_adjacent(weights):
            return torch.stack(weights)
        if is_read:
            ctx.seen = [(w, w._version) for w in weights]
        return as_one(weights)

    @staticmethod
    def backward(ctx, dw):
        for i, (w, version) in enumerate(ctx.seen):
            if w._version != version:
                raise RuntimeError(f"the weights of expert {i} were changed in place between the "
                                   "forward and the backward pass, which reads them")
        if dw is None:
            return None, None, *([_dummy(w) for w in ctx.weights] or [None] * ctx.count)
        return None, None, *((dw,) if ctx.count == 1 else dw.unbind(0))


def _dummy(w):
    if not w.requires_grad or not hasattr(w, "grad_added_to_main_grad"):
        return None
    w.grad_added_to_main_grad = True
    return torch.zeros_like(w) if getattr(w, "zero_out_wgrad", False) else torch.empty_like(w)


def one_of(weights, is_fused, is_read=False):
    """A list of parameters as one tensor, that has their gradients. is_read: the backward pass
    reads it."""
    weights = [local(w) for w in weights]
    if torch.compiler.is_compiling():
        return weights[0] if len(weights) == 1 else torch.stack(weights)
    if len(weights) == 1 and not is_fused:
        return weights[0]
    return _Weights.apply(is_fused, is_read and not weights[0].is_inference(), *weights)


_modules, _keys = weakref.WeakValueDictionary(), itertools.count()


@torch.compiler.assume_constant_result
def _reserve(key):
    """Make a module's quantized weights while torch.compile traces it: memory of a graph would be
    reused, and CUDA graphs write only to static addresses."""
    module = _modules[key]
    for name, i in {"weight": 1, "w1": 2, "w2": 3}.items():
        if module._list(name) and name not in module._cache:
            state = None
            if module._scaling.slots:  # a copy: the graph itself will step
                state = module.scaling_scale[i].clone(), module.scaling_history[i].clone()
            with torch.no_grad():
                module._make_cache(name, one_of(module._list(name), False).detach(), state)
        for t in module._cache[name][:6] if name in module._cache else ():
            if t is not None:
                torch._dynamo.mark_static_address(t)
    return True


class Experts(torch.nn.Module):
    """Base of the modules. `_lists` has the name and the tensors' names of each packed list;
    `_fused` the names whose gradients main_grad takes."""
    _fused = ("weight",)

    def __init__(self, recipe, is_fused, is_delayed, outside, wgrad_queue, layer):
        super().__init__()
        _checks.word("outside", outside, (None, "zero"))
        is_fused = _checks.flag("fuse_wgrad_accumulation", is_fused)
        is_delayed = _checks.flag("delay_wgrad_compute", is_delayed)
        layer = _checks.integer("layer", layer, 0, _checks.LAYERS)
        self.recipe, self.outside = recipe, outside
        self._scaling = scaling_of(recipe)
        self.fuse_wgrad_accumulation, self.delay_wgrad_compute = is_fused, is_delayed
        self.wgrad_queue, self.layer = wgrad_queue, layer
        if wgrad_queue is not None and not is_delayed:
            raise ValueError("wgrad_queue: it needs delay_wgrad_compute=True")
        self._later = Later() if is_delayed and wgrad_queue is None else None
        self._cache, self._hooks, self._lists = {}, [], {}
        self._register()

    def _register(self):
        self._key = next(_keys)
        _modules[self._key] = self

    # ------------------------------------------------------------------------------- parameters

    def _add(self, name, count, shape, dtype, device):
        """Parameters name0, name1, .. in one allocation; one called name if count is None."""
        if count is None:
            setattr(self, name, torch.nn.Parameter(torch.empty(shape, dtype=dtype, device=device)))
            return
        every = torch.empty((count, *shape), dtype=dtype, device=device)
        for i in range(count):
            setattr(self, f"{name}{i}", torch.nn.Parameter(every[i]))
        self._lists[name] = count

    def _list(self, name):
        if name not in self._lists:
            t = getattr(self, name, None)
            return [] if t is None else [t]
        found = [self._parameters.get(name + str(i)) for i in range(self._lists[name])]
        return [getattr(self, name + str(i)) if t is None else t for i, t in enumerate(found)]

    def _is_read(self, name):
        """Whether products read a list's weights themselves, no quantized tensor or cast."""
        return self._scaling.w == 1 and self._list(name)[0].dtype == self._scaling.type

    def _pack(self):
        """Give the parameters of each list one allocation again, after they were moved."""
        for name in self._lists:
            found = self._list(name)
            if all(type(t) is torch.nn.Parameter and t.device.type != "meta" and
                   t.shape == found[0].shape and t.dtype == found[0].dtype and
                   t.device == found[0].device for t in found) and not are_adjacent(found):
                every = torch.stack([t.detach() for t in found])
                for t, part in zip(found, every):
                    t.data = part

    def _apply(self, fn, recurse=True):
        state = {name: t for name, t in self._buffers.items() if name.startswith("scaling_")}
        super()._apply(fn, recurse)
        for name, t in state.items():  # delayed scaling is in fp32
            if self._buffers[name].dtype != t.dtype:
                self._buffers[name] = t.to(self._buffers[name].device)
        self._cache.clear()
        self._pack()
        return self

    def __getstate__(self):
        state = self.__dict__.copy()
        if self.wgrad_queue is not None:
            raise TypeError("wgrad_queue holds work of this process: the module cannot be copied "
                            "or pickled with it")
        state["_cache"], state["_hooks"] = {}, []
        state["_later"] = None if self._later is None else Later()
        return state

    def __setstate__(self, state):
        super().__setstate__(state)
        self._register()
        self._pack()

    def _load_from_state_dict(self, state_dict, prefix, *more):
        for name in ("weight", "bias"):
            self._convert(state_dict, prefix + name, self._lists.get(name), self._list(name))
        state_dict.pop(prefix + "_extra_state", None)  # TransformerEngine's scales
        super()._load_from_state_dict(state_dict, prefix, *more)
        self._cache.clear()
        self._pack()

    @staticmethod
    def _convert(state_dict, key, count, mine):
        """From one tensor to one for each expert, or the other way."""
        if not mine:
            return
        if count is not None and key in state_dict:
            for i, part in enumerate(state_dict.pop(key).unbind(0)):
                state_dict[f"{key}{i}"] = part
        elif count is None and key + "0" in state_dict and key not in state_dict:
            parts = [state_dict.pop(f"{key}{i}") for i in range(mine[0].shape[0])
                     if f"{key}{i}" in state_dict]
            state_dict[key] = torch.stack(parts)

    # -------------------------------------------------------------------------- quantized weights

    def _quantized(self, name, w, is_first, state=None):
        """The weights' quantized tensors of this microbatch; None: they are made anew each time."""
        if is_first is None or self._scaling.w == 1:
            return None
        if torch.compiler.is_compiling():
            _reserve(self._key)
        w, cached = w.detach(), self._cache.get(name)
        if cached is None:
            cached = self._make_cache(name, w, state)
        elif isinstance(is_first, torch.Tensor):
            _checks.on_device("is_first_microbatch", is_first, w)
            noop = (is_first.reshape(1) == 0).to(torch.int32)
            refresh(cached, w.contiguous(), self._scaling, noop, state)
        elif is_first:
            refresh(cached, w.contiguous(), self._scaling, None, state)
        return cached

    def _make_cache(self, name, w, state=None):
        if torch.is_inference_mode_enabled() and not torch.compiler.is_compiling():
            with torch.inference_mode(False):  # training may follow, which saves them
                return self._make_cache(name, w, state)
        arrays, _ = cast(w.contiguous(), "w", self.recipe, self._scaling, "both", state=state)
        self._cache[name] = Quantized(*arrays, tuple(w.shape), self.recipe, "w", w.dtype)
        return self._cache[name]

    def _add_state(self, count, device):
        """Buffers of delayed scaling for so many tensors."""
        if self._scaling.slots:
            self.register_buffer("scaling_scale", torch.ones(count, 2, device=device))
            self.register_buffer("scaling_history", torch.zeros(
                count, self._scaling.slots, device=device))

    def _state(self, kinds, is_first):
        """Scale and history, after the next scales were chosen at the start of a step. kinds: which
        tensor of x, w, dy each one is."""
        if not self._scaling.slots:
            return None
        is_recomputed = not torch.compiler.is_compiling() and \
            torch._C._current_graph_task_id() != -1  # by a checkpoint, in the backward pass
        if self.training and is_first is not False and not is_recomputed:
            for i, kind in enumerate(kinds):
                ops.rescale_(f"rescale {self.recipe} of={OF[kind]}", self.scaling_scale[i],
                             self.scaling_history[i])
        return State(self.scaling_scale, self.scaling_history)

    # --------------------------------------------------------------------------- weight gradients

    def _main_grads(self, name):
        """A list's main_grads, None if they are not fused; and whether to overwrite them."""
        weights = self._list(name)
        is_trained = {w.requires_grad for every in self._fused for w in self._list(every)}
        if not (self.fuse_wgrad_accumulation and torch.is_grad_enabled() and True in is_trained):
            return None, False
        if len(is_trained) > 1:
            raise ValueError("fuse_wgrad_accumulation: some weights require a gradient and others "
                             "do not: all or none")
        for w in weights:
            if getattr(w, "main_grad", None) is None:
                raise ValueError(f"fuse_wgrad_accumulation: {name} has no main_grad")
        return [w.main_grad for w in weights], getattr(weights[0], "overwrite_main_grad", False)

    def _why_eager(self, *names):
        """Why torch.compile cannot trace this module; None: it can."""
        if self.delay_wgrad_compute:
            return "delay_wgrad_compute keeps the weight gradients outside of graphs"
        for name in names if self.fuse_wgrad_accumulation else ():
            weights = self._list(name)
            if len(weights) > 1:
                return "main_grad of separate weights; single_grouped_weight=True can be compiled"
            if hasattr(weights[0], "grad_added_to_main_grad"):
                return "grad_added_to_main_grad is set in the backward pass"
        return None

    def _queue(self):
        return self._later if self.wgrad_queue is None else self.wgrad_queue

    def _sink(self, *names):
        """Adds queued gradients to those of the parameters."""
        def take(*gradients):
            for name, dw in zip(names, gradients):
                weights = self._list(name)
                for w, part in zip(weights, (dw,) if len(weights) == 1 else dw.unbind(0)):
                    add_grad(w, part)

        return take if self.delay_wgrad_compute else None

    def need_backward_dw(self):
        """Whether weight gradients wait for backward_dw()."""
        return self.delay_wgrad_compute

    def backward_dw(self):
        """Compute the weight gradients of the oldest backward pass that waits, or with a
        wgrad_queue all of this layer; then call the hooks. RuntimeError if none waits."""
        if not self.delay_wgrad_compute:
            return
        if self.wgrad_queue is not None:
            self.wgrad_queue.flush(self.layer)
        elif not len(self._later):
            raise RuntimeError("backward_dw: no backward pass waits for its weight gradients")
        else:
            self._later.run()
        for hook in self._hooks:
            hook()

    def register_wgrad_accumulation_and_reduce_hooks(self, wgrad_accumulation_and_reduce_hook):
        """Call this after each backward_dw()."""
        self._hooks.append(wgrad_accumulation_and_reduce_hook)
