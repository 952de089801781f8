# SPDX-License-Identifier: Apache-2.0
"""GroupedLinear: the linear layers of experts, with TransformerEngine's arguments."""

import contextlib

import torch

from quern.torch import _checks, _compile
from quern.torch._module import Experts, are_adjacent, as_one, default_device, local, one_of
from quern.torch.functions import grouped_linear


def normal(w):
    return torch.nn.init.normal_(w, 0.0, 0.023)


class GroupedLinear(Experts):
    """y[i] = inp[i] @ weight[e].T + bias[e] for each row i of expert e.

    The first arguments are those of TransformerEngine's GroupedLinear, by name and position.

        num_gemms, in_features, out_features   experts, k and n
        fuse_wgrad_accumulation  add weight gradients to each weight's main_grad, or overwrite it
                     where weight.overwrite_main_grad; weight.grad_added_to_main_grad becomes True
                     if it exists, and the gradient is then a dummy, of zeros if zero_out_wgrad
        init_method  called with each weight; default: normal, 0.023. get_rng_state_tracker and
                     rng_tracker_name fork its generator
        return_bias  the bias is not added but returned: (y, bias or list of biases)
        params_dtype, device  of the parameters; default torch's, and the GPU if there is one
        delay_wgrad_compute   weight gradients wait for backward_dw()
        save_original_input   keep inp itself for the backward pass, and quantize it again there
        single_grouped_weight, single_grouped_bias  one parameter `weight` [experts, n, k] or `bias`
                     [experts, n] instead of weight0, weight1, .. and bias0, bias1, .., which are
                     views of one allocation
        recipe       bf16, fp8_block, .. (quern.torch.recipes()); delayed scaling keeps its state in
                     buffers
        outside      "zero": rows after the last expert's are zeros in y and in inp's gradient
        scale_bias   forward takes prob, which multiplies the bias of each row
        wgrad_queue, layer  with delay_wgrad_compute: a WgradQueue that several modules share

    ValueError for tp_size above 1, sequence_parallel and ub_*: communicate around the module.
    """

    def __init__(self, num_gemms, in_features, out_features, sequence_parallel=False,
                 fuse_wgrad_accumulation=False, tp_group=None, tp_size=1,
                 get_rng_state_tracker=None, rng_tracker_name=None, init_method=None, bias=True,
                 return_bias=False, params_dtype=None, parallel_mode=None, device=None,
                 ub_overlap_rs=False, ub_overlap_ag=False, ub_name=None, delay_wgrad_compute=False,
                 save_original_input=False, single_grouped_weight=False, single_grouped_bias=False,
                 name=None, use_grouped_tensor=None, *, recipe="bf16", outside=None,
                 scale_bias=False, wgrad_queue=None, layer=0):
        refused = {"sequence_parallel": sequence_parallel, "tp_size": tp_size != 1,
                   "ub_overlap_rs": ub_overlap_rs, "ub_overlap_ag": ub_overlap_ag,
                   "ub_name": ub_name is not None}
        for argument, is_given in refused.items():
            if is_given:
                raise ValueError(f"{argument} is not supported: communicate around the module")
        _checks.word("parallel_mode", parallel_mode, (None, "column", "row"))
        num_gemms = _checks.integer("num_gemms", num_gemms, 1, _checks.GROUPS)
        in_features = _checks.integer("in_features", in_features, 1)
        out_features = _checks.integer("out_features", out_features, 1)
        bias, return_bias, save_original_input = map(
            _checks.flag, ("bias", "return_bias", "save_original_input"),
            (bias, return_bias, save_original_input))
        single_grouped_weight, single_grouped_bias, scale_bias = map(
            _checks.flag, ("single_grouped_weight", "single_grouped_bias", "scale_bias"),
            (single_grouped_weight, single_grouped_bias, scale_bias))
        super().__init__(recipe, fuse_wgrad_accumulation, delay_wgrad_compute, outside, wgrad_queue,
                         layer)
        self.num_gemms, self.in_features, self.out_features = num_gemms, in_features, out_features
        self.use_bias, self.return_bias, self.scale_bias = bias, return_bias, scale_bias
        self.apply_bias = bias and not return_bias
        self.save_original_input, self.name = save_original_input, name
        self.single_grouped_weight, self.single_grouped_bias = (single_grouped_weight,
                                                                single_grouped_bias)
        self._init = init_method or normal, get_rng_state_tracker, rng_tracker_name
        dtype, device = params_dtype or torch.get_default_dtype(), default_device(device)
        _checks.dtype_of("params_dtype", dtype)
        n, k = out_features, in_features
        self._add("weight", *((None, (num_gemms, n, k)) if single_grouped_weight else
                              (num_gemms, (n, k))), dtype, device)
        if bias:
            self._add("bias", *((None, (num_gemms, n)) if single_grouped_bias else
                                (num_gemms, (n,))), dtype, device)
        self._add_state(3, device)
        if device.type != "meta":
            self.reset_parameters()
        if delay_wgrad_compute:
            for parameter in self._list("weight"):
                parameter.skip_backward_post_hook = True

    def reset_parameters(self, defer_init=False):
        """Draw new weights, and set biases to 0."""
        if defer_init:
            return
        init, tracker, name = self._init
        fork = contextlib.nullcontext() if tracker is None else \
            tracker().fork(name) if name else tracker().fork()
        with torch.no_grad(), fork:
            for w in self._list("weight"):
                for each in w if self.single_grouped_weight else (w,):
                    init(each)
            for b in self._list("bias"):
                b.zero_()
        self._pack()

    @_compile.eager_if(lambda self, *_, **__: self._why_eager("weight"))
    def forward(self, inp, m_splits, is_first_microbatch=None, out=None, dgrad_out=None, prob=None):
        """y [.., out_features] of inp [.., in_features].

            m_splits   rows of each expert: a tensor int32 or int64 [num_gemms] on the device, which
                       CUDA graphs read at each replay, or a list
            is_first_microbatch  True: quantize the weights and keep them; False: use those kept;
                       None: quantize them for this call; or an integer or bool tensor [1] on the
                       device, read by the kernel. Delayed scaling steps unless it is False
            out, dgrad_out  contiguous [rows, out_features] and [rows, in_features] without
                       gradient: y and the gradient of inp are written there, and rows after the
                       last expert's are left. ValueError if they do not fit
            prob       with scale_bias: [rows], a factor of each row's bias
        """
        is_first_microbatch = _checks.first_microbatch(is_first_microbatch)
        if not isinstance(inp, torch.Tensor) or inp.dim() < 1 or inp.shape[-1] != self.in_features:
            raise ValueError("inp: a tensor whose last axis has in_features = "
                             f"{self.in_features} elements is expected")
        if (prob is not None) != (self.scale_bias and self.apply_bias):
            raise ValueError("prob: it is given if and only if scale_bias=True and there is a bias")
        rows = None if torch.compiler.is_compiling() else inp.numel() // self.in_features
        if not torch.compiler.is_compiling() or isinstance(m_splits, torch.Tensor):
            m_splits, _ = _checks.sizes_of(inp, rows, self.num_gemms, m_splits, name="m_splits")
        main_grad, addresses, overwrite = self._main_grad()
        w = one_of(self._list("weight"), main_grad is not None,
                   inp.requires_grad and self._is_read("weight"))
        if self._scaling.w == 1 and w.dtype != self._scaling.type:
            w = w.to(self._scaling.type)
        state = self._state((0, 1, 2), is_first_microbatch)
        quantized = self._quantized("weight", w, is_first_microbatch,
                                    None if state is None else (state[0][1], state[1][1]))
        y = grouped_linear(inp, w, quantized, m_splits, recipe=self.recipe,
                           bias=one_of(self._list("bias"), False) if self.apply_bias else None,
                           prob=prob, outside=self.outside, out=out, dgrad_out=dgrad_out,
                           main_grad=main_grad, queue=self._queue(), layer=self.layer,
                           addresses=addresses, overwrite=overwrite, state=state,
                           is_input_kept=self.save_original_input, sink=self._sink("weight"))
        if not self.return_bias:
            return y
        biases = [b.to(y.dtype) for b in self._list("bias")]
        return y, biases[0] if self.single_grouped_bias and biases else biases

    def _main_grad(self):
        """main_grad, the addresses of its matrices if separate, whether to overwrite it."""
        found, overwrite = self._main_grads("weight")
        if found is None:
            return None, None, False
        found = [local(t) for t in found]
        if len(found) == 1 and self.single_grouped_weight:
            return found[0].view(local(self.weight).shape), None, overwrite
        adjacent = are_adjacent(found)
        for i, t in enumerate(found):
            _checks.buffer(f"weight{i}.main_grad", t, (self.out_features, self.in_features),
                           self._list("weight")[0], (found[0].dtype,), not adjacent)
        if adjacent:
            return as_one(found), None, overwrite
        key = tuple(t.data_ptr() for t in found)
        if self._cache.get("key") != key:
            self._cache["key"] = key
            self._cache["addresses"] = torch.tensor(key, dtype=torch.int64,
                                                    device=found[0].device)
        return found[0], self._cache["addresses"], overwrite

    def extra_repr(self):
        return (f"num_gemms={self.num_gemms}, in_features={self.in_features}, "
                f"out_features={self.out_features}, bias={self.use_bias}, recipe={self.recipe!r}")
