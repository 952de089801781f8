# SPDX-License-Identifier: Apache-2.0
"""Checks of users' arguments: each error names the argument and the rule."""

import torch

from quern._checks import GROUPS, LAYERS, flag, integer, number, word  # noqa: F401
from quern.torch._ops import WORDS

VALUES = "bfloat16, float16 or float32"


def address(t):
    """The first byte of a tensor; 0: it is a fake one or traced, without memory of its own, and
    operators copy slices that are not aligned."""
    if torch.compiler.is_compiling() or type(t) not in (torch.Tensor, torch.nn.Parameter):
        return 0
    return t.data_ptr()


def tensor(name, t):
    """A tensor outside of torch.func's transformations, whose tensors have no memory that an
    operator could read, and which our functions have no rules for."""
    if not isinstance(t, torch.Tensor):
        raise TypeError(f"{name} is {type(t).__name__}: a tensor is expected")
    if t.layout != torch.strided or t.is_nested:
        raise TypeError(f"{name} is {'nested' if t.is_nested else t.layout}: a dense tensor is "
                        "expected")
    if not torch.compiler.is_compiling() and torch._C._are_functorch_transforms_active():
        raise NotImplementedError(f"{name}: the transformations of torch.func are not supported; "
                                  "torch.autograd.grad is")


def values(name, t, ndim=None, dtype=None):
    """A tensor of values with so many axes, default two or more, of any type that quern reads or of
    this one."""
    tensor(name, t)
    if t.dtype not in WORDS or dtype not in (None, t.dtype):
        raise TypeError(f"{name} is {t.dtype}: {dtype or VALUES} is expected")
    if t.dim() < 2 if ndim is None else t.dim() != ndim:
        raise ValueError(f"{name} has {t.dim()} axes: {ndim or '2 or more'} are expected")


def shaped(name, t, shape, like):
    """A tensor of exactly this shape, on the device of another one."""
    tensor(name, t)
    if tuple(t.shape) != tuple(shape):
        raise ValueError(f"{name} has the shape {list(t.shape)}: {list(shape)} is expected")
    on_device(name, t, like)


def on_device(name, t, like):
    if t.device != like.device:
        raise ValueError(f"{name} is on {t.device} and the values on {like.device}")


def buffer(name, t, shape, like, dtypes, at_16=True):
    """Memory of the caller's that a result is written into; at_16: kernels begin there."""
    shaped(name, t, shape, like)
    if not dtypes:
        raise ValueError(f"{name}: the recipe has no gradient of the weights")
    if t.dtype not in dtypes:
        raise ValueError(f"{name} is {t.dtype}: {' or '.join(map(str, dtypes))} is expected")
    if not t.is_contiguous():
        raise ValueError(f"{name} is not contiguous")
    if not torch.compiler.is_compiling() and t.is_neg():
        raise ValueError(f"{name} is a negative view: memory that has its own values is expected")
    if at_16 and address(t) % 16:
        raise ValueError(f"{name} begins at {address(t):#x}: a multiple of 16 is expected")
    if t.requires_grad:
        raise ValueError(f"{name} requires a gradient: a buffer must not")


def results(x, n, dtype, out, dgrad_out, outside):
    """The caller's memory for results of x [tokens, k]; out without its history, if it is given."""
    word("outside", outside, (None, "zero"))
    if dgrad_out is not None:
        buffer("dgrad_out", dgrad_out, x.shape, x, (x.dtype,))
        if _shares(dgrad_out, x):
            raise ValueError("dgrad_out shares memory with x: the gradient of w is made after it "
                             "and reads x")
    if out is None:
        return None
    buffer("out", out, (x.shape[0], n), x, (dtype,))
    return out.detach()


def _shares(a, b):
    """Whether the ranges from the first to the last element of both meet; a tensor without elements
    or an address has none."""
    firsts = address(a), address(b)
    lasts = [first + t.itemsize * sum((n - 1) * step for n, step in zip(t.shape, t.stride()))
             for first, t in zip(firsts, (a, b))]
    return all(firsts) and a.numel() > 0 and b.numel() > 0 and max(firsts) <= min(lasts)


def written(out):
    """Tell autograd of memory of the caller's that was written without a graph, so that it finds
    who saved the old values."""
    if out is not None and not torch.compiler.is_compiling():
        torch.autograd.graph.increment_version(out)


def _overlaps(t):
    """Whether rows or matrices share memory, as after expand()."""
    least = 1
    for length, step in zip(reversed(t.shape), reversed(t.stride())):
        if length > 1:
            if step < least:
                return True
            least += step * (length - 1)
    return False


def aligned(t, may_have_strides):
    """A tensor as kernels read it: rows without gaps, or with strides, at multiples of 16 bytes.
    Others are copied, such as a slice that begins in the middle of 16 bytes, or shared rows; and
    the negative views of torch, which only torch's own operators read as such."""
    if not torch.compiler.is_compiling() and t.is_neg():
        t = t.resolve_neg()
    if not t.is_contiguous():
        steps = t.stride()[:-1]
        if not may_have_strides or t.stride(-1) != 1 or _overlaps(t) or \
                any(n * t.itemsize % 16 for n in steps):
            return t.contiguous()
    if address(t) % 16:
        return t.clone(memory_format=torch.contiguous_format)
    return t


def gradient(dy):
    """A gradient that a backward pass was given, as kernels read it."""
    if not torch.compiler.is_compiling() and (torch._C._functorch.is_legacy_batchedtensor(dy) or
                                              torch._C._functorch.is_functorch_wrapped_tensor(dy)):
        raise NotImplementedError("is_grads_batched=True, and torch.func around a backward pass, "
                                  "are not supported: call torch.autograd.grad for each gradient")
    return aligned(dy, False)


def dtype_of(name, dtype):
    if dtype not in WORDS:
        raise TypeError(f"{name} is {dtype}: {VALUES} is expected")


def factor(value):
    """The factor of adapters."""
    if type(value) is float or not isinstance(value, torch.Tensor):
        number("lora_scaling", value, "a number or a tensor")


def queued(queue, layer):
    """A queue of weight gradients, and the number of their layer."""
    if queue is not None and not hasattr(queue, "put_product"):
        raise TypeError(f"queue is {type(queue).__name__}: a WgradQueue is expected")
    integer("layer", layer, 0, LAYERS)


def first_microbatch(value):
    """None, a bool, or a tensor of one element."""
    name = "is_first_microbatch"
    if isinstance(value, torch.Tensor):
        if value.numel() != 1:
            raise ValueError(f"{name} has the shape {list(value.shape)}: [1] is expected")
        return value
    return None if value is None else flag(name, value)


def sizes_of(like, rows, groups, sizes, offs=None, name="sizes"):
    """The lengths and the ends on the device of the values: one of them is None.

    A list or, for CUDA values, a CPU tensor is checked and copied, which waits for the device.
    """
    if (sizes is None) == (offs is None):
        raise ValueError(f"{name}, offs: exactly one of them is expected")
    name, given = (name, sizes) if offs is None else ("offs", offs)
    if isinstance(given, (list, tuple)):
        given = _from_list(name, given)
    if not isinstance(given, torch.Tensor):
        raise TypeError(f"{name} is {type(given).__name__}: a tensor or a list is expected")
    tensor(name, given)
    if given.dtype not in (torch.int32, torch.int64):
        raise TypeError(f"{name} is {given.dtype}: torch.int32 or torch.int64 is expected")
    if given.dim() != 1 or groups is not None and given.shape[0] != groups:
        raise ValueError(f"{name} has the shape {list(given.shape)}: "
                         f"[{'experts' if groups is None else groups}] is expected")
    if given.device.type == "cpu" and (like.device.type == "cuda" or given is not sizes and
                                       given is not offs):
        given = _copied(name, given, rows, like)
    on_device(name, given, like)
    given = given.contiguous()
    return (given, None) if offs is None else (None, given)


def _from_list(name, given):
    if not all(type(n) is int and 0 <= n < 2**63 for n in given):
        given = [integer(f"{name}[{i}]", n, 0, 2**63 - 1) for i, n in enumerate(given)]
    return torch.tensor(given, dtype=torch.int64, device="cpu")


def _copied(name, given, rows, like):
    if like.device.type == "cuda" and torch.cuda.is_current_stream_capturing():
        raise RuntimeError(f"{name} is in host memory, which a CUDA graph would freeze: give a "
                           "tensor on the device while a stream captures")
    if type(given) is not torch.Tensor:  # a fake tensor, without values
        return given.to(like.device)
    steps = torch.diff(given, prepend=given.new_zeros(1)) if name == "offs" else given
    if steps.numel() and int(steps.min()) < 0:
        raise ValueError(f"{name}: an expert has {int(steps.min())} rows")
    if rows is not None and int(steps.sum()) > rows:
        raise ValueError(f"{name}: the experts have {int(steps.sum())} rows, and the values {rows}")
    return given.to(like.device)
