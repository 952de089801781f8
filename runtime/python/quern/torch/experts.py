# SPDX-License-Identifier: Apache-2.0
"""The experts of a layer, for the switches: products of sorted tokens, an activation.

Nothing here waits for the device, and everything compiles with fullgraph=True.
"""

import torch

import quern.torch as qt
from quern.torch import _checks
from quern.torch._autograd import once_differentiable
from quern.torch._checks import VALUES
from quern.torch._ops import WORDS
from quern.torch._recipes import scaling_of
from quern.torch.functions import product, recipe_for
from quern.torch.switches import warn_once

_NATIVE = {"bf16": torch.bfloat16, "fp16": torch.float16}  # recipes without scales
_own = torch._grouped_mm  # as it is before the switch of torchao wraps it


def check_recipe(recipe):
    """Raise the library's sentence if there is no such recipe. Returns it."""
    scaling_of(recipe)
    return recipe


def reason_against(recipe, **tensors):
    """Why a recipe does not multiply these tensors; None: it does."""
    for name, t in tensors.items():
        if not isinstance(t, torch.Tensor) or hasattr(t, "to_local"):
            return f"{name} is {type(t).__name__}: a tensor of this device is expected"
        if t.device.type not in ("cpu", "cuda"):
            return f"{name} is on {t.device.type}: cpu or cuda is expected"
        wanted = _NATIVE.get(recipe)
        if t.dtype not in WORDS or wanted not in (None, t.dtype):
            return (f"{name} is {t.dtype}: recipe {recipe} multiplies "
                    f"{wanted or VALUES}")
    return None


def reason_against_tokens(recipe, x):
    """Why a recipe of packed weights does not multiply x; None: it does, or autocast casts x."""
    scaling, kind = scaling_of(recipe), x.device.type
    if not scaling.is_packed or scaling.x != 1 or x.dtype == scaling.type or \
            kind != "meta" and torch.is_autocast_enabled(kind):
        return None
    return f"tokens are {x.dtype}: recipe {recipe} multiplies {scaling.type}"


def cast(recipe, *weights):
    """Weights in fp32, as a recipe without scales multiplies them under autocast to its type."""
    wanted, kind = _NATIVE.get(recipe), weights[0].device.type
    if wanted is None or kind == "meta" or not torch.is_autocast_enabled(kind) or \
            torch.get_autocast_dtype(kind) != wanted:
        return weights
    return [w.to(wanted) if w.dtype == torch.float32 else w for w in weights]


# -------------------------------------------------------------------------------------- products


def _unscaled(line, g, m, n, k, a, b, ends):
    return product(line, g, m, n, k, (a, None, None), (b, None, None), None, ends)


class _Transposed(torch.autograd.Function):
    """y[i] = x[i] @ w[e] for weights [experts, k, n]: dgrad's product, without a copy. Rows
    after the last expert's are zeros in y and in the gradient of x."""

    @staticmethod
    def forward(ctx, x, w, ends, recipe):
        ctx.save_for_backward(x, w, ends)
        ctx.recipe = recipe
        g, k, n = w.shape
        return _unscaled(f"dgrad {recipe} outside=zero", g, x.shape[0], n, k, x, w, ends)

    @staticmethod
    @once_differentiable
    def backward(ctx, dy):
        x, w, ends = ctx.saved_tensors
        g, k, n = w.shape
        m, dy, dx, dw = x.shape[0], _checks.gradient(dy), None, None
        if ctx.needs_input_grad[0]:
            dx = _unscaled(f"fprop {ctx.recipe} outside=zero", g, m, k, n, dy, w, ends)
        if ctx.needs_input_grad[1]:
            dw = _unscaled(f"wgrad {ctx.recipe}", g, k, n, m, x, dy, ends)
        return dx, dw, None, None


def linear(x, w, ends, recipe, bias=None, prob=None):
    """y[i] = x[i] @ w[e].T + bias[e] * prob[i] for w [experts, n, k], which may be a transposed
    view. Rows after the last expert's are zeros in y and in the gradient of x."""
    if w.stride(-1) == 1 or w.stride(-2) != 1 or recipe not in _NATIVE:
        return qt.grouped_mm(x, w.contiguous(), offs=ends, recipe=recipe, bias=bias, prob=prob,
                             outside="zero")
    y = _Transposed.apply(x, w.transpose(-2, -1), ends, recipe)
    if bias is None:
        return y
    rows = torch.arange(x.shape[0], device=x.device, dtype=ends.dtype)
    ids = torch.searchsorted(ends, rows, right=True)
    bias = torch.cat([bias, bias.new_zeros(1, bias.shape[1])])[ids]
    return y + (bias if prob is None else bias * prob[:, None]).to(y.dtype)


def grouped_mm(a, b, offs, recipe):
    """torch._grouped_mm of tokens [rows, k] and weights [experts, k, n] by a recipe."""
    reason = reason_against(recipe, mat_a=a, mat_b=b)
    if not reason:
        recipe = recipe_for(recipe, a) or recipe
        reason = reason_against_tokens(recipe, a)
    if not reason and (a.dim(), b.dim()) != (2, 3):
        reason = f"mat_a has {a.dim()} axes and mat_b {b.dim()}: 2 and 3 are expected"
    if reason:
        warn_once(f"torch computes this _grouped_mm: {reason}")
        return _own(a, b, offs=offs)
    return linear(a, b.transpose(-2, -1), offs, recipe)


def mlp(x, w1, w2, ends, activation, recipe, *, fused=None, b1=None, b2=None, prob=None):
    """The MLP of the rows of each expert, times prob [rows]. Rows after the last expert's are zeros
    in y and in the gradients of x and prob.

        activation  a function
        fused       arguments of quern.torch.grouped_mlp that say the same, or None
    """
    if fused and (w1.stride(-1) == 1 or recipe not in _NATIVE):
        return qt.grouped_mlp(x, w1.contiguous(), w2.contiguous(), offs=ends, recipe=recipe,
                              b1=b1, b2=b2, prob=prob, outside="zero", **fused)
    h = activation(linear(x, w1, ends, recipe, b1))
    if prob is not None:
        h = (h * prob[:, None]).to(h.dtype)
    return linear(h, w2, ends, recipe, b2, None if b2 is None else prob)
