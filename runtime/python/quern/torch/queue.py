# SPDX-License-Identifier: Apache-2.0
"""WgradQueue: weight gradients that are computed later, when a pipeline has time for them."""

import collections
import functools
import typing

import torch

from quern._checks import LAYERS, integer
from quern.torch._ops import library, ops


class _Entry(typing.NamedTuple):
    """Deferred work: its tensors live until the launch."""
    layer: int
    products: int
    tensors: tuple
    stream: typing.Any  # CUDA: the one that made the operands
    event: typing.Any  # CUDA: when they are complete
    seen: tuple  # of _noted
    done: typing.Any  # called after the launch, or None


def _noted(layer, **tensors):
    """The tensors that deferred work reads, with versions, as autograd has of those it saves."""
    return tuple((name, layer, t, t._version) for name, t in tensors.items()
                 if isinstance(t, torch.Tensor) and not t.is_inference())


def _check_unchanged(function, seen):
    for name, layer, t, version in seen:
        if t._version != version:
            raise RuntimeError(f"{function}: {name} of layer {layer} was changed in place after "
                               "the backward pass that deferred its weight gradient: flush before "
                               "that, or give a copy")


def _read_by_mlp(layer, operands):
    return _noted(layer, **{name: operands.get(name)
                            for name in ("dy", "x", "saved", "pending", "lengths", "ends")})


def _layer(layer):
    return None if layer is None else integer("layer", layer, 0, LAYERS)


class WgradQueue:
    """Weight gradients in the order in which backward passes gave them.

        queue = WgradQueue()
        y = grouped_mm(x, w, sizes, main_grad=main_grad, queue=queue, layer=3)
        y.backward(dy)         # the gradient of x; that of w waits
        queue.flush()          # launches it

    One thread at a time may use a queue. Its tensors are kept until a flush has launched their
    work, and are not reused before the device has finished it. A flush waits, on the device, for
    the streams that made the operands and for the last flush's stream.
    """

    def __init__(self, capacity=64):
        """capacity: how many products may wait, at most 65536; an MLP has two."""
        capacity = integer("capacity", capacity, 1, 65536)
        self._handle = library.quern_torch_queue_create(capacity)
        if not self._handle:
            raise RuntimeError(library.quern_torch_error().decode())
        self.capacity = capacity
        self._entries = collections.deque()
        self._last = None  # event and stream of the last flush that was not captured

    def __del__(self):
        handle, self._handle = getattr(self, "_handle", 0), 0
        if handle:
            library.quern_torch_queue_destroy(handle)

    def __len__(self):
        return self._count(-1)

    def __reduce__(self):
        raise TypeError("a WgradQueue holds work of this process: it cannot be copied or pickled")

    def _count(self, layer):
        count = library.quern_torch_queue_count(self._handle, layer)
        if count < 0:
            raise RuntimeError(library.quern_torch_error().decode())
        return count

    def put_product(self, layer, line, numbers, dy, x, lengths, ends, d, done):
        """Defer a product of this line into d; done is called after its launch."""
        ops.defer_product(self._handle, layer, line, *numbers, *dy, *x, lengths, ends, None, None,
                          d)
        self._keep(layer, 1, (*dy, *x, lengths, ends, d),
                   _noted(layer, dy=dy[0], x=x[0], lengths=lengths, ends=ends), done)

    def put_mlp(self, kind, layer, operands, dw1, dw2, done):
        """Defer the weight gradients of an MLP: the operands of defer_mlp, or with kind "moe" of
        defer_moe, by their names."""
        defer = getattr(ops, f"defer_{kind}")
        defer(queue=self._handle, layer=layer, **operands, dw1=dw1, dw2=dw2)
        self._keep(layer, 2, (*operands.values(), dw1, dw2), _read_by_mlp(layer, operands), done)

    def _keep(self, layer, products, tensors, seen, done):
        tensors = tuple(t for t in tensors if isinstance(t, torch.Tensor))
        stream = event = None
        if tensors[0].is_cuda:
            stream = torch.cuda.current_stream(tensors[0].device)
            event = stream.record_event()
        self._entries.append(_Entry(layer, products, tensors, stream, event, seen, done))

    def flush(self, layer=None, most=0):
        """Launch pending work of a layer, or of all, oldest first: `most` products, or all if 0.

        RuntimeError if the layer has no pending work, another layer's must come first, or a tensor
        that the work reads was changed in place since. Work that has not been launched then stays
        in the queue.
        """
        layer = _layer(layer)
        most = integer("most", most, 0, LAYERS)
        if not self._entries and layer is None:
            return
        self._check(layer, most)
        device = next(iter(self._entries)).tensors[0].device if self._entries else None
        stream = torch.cuda.current_stream(device) if device and device.type == "cuda" else None
        if stream is not None:
            self._wait(stream)
        before = len(self)
        failed = library.quern_torch_queue_flush(self._handle, -1 if layer is None else layer,
                                                 most, stream.cuda_stream if stream else None)
        error = library.quern_torch_error().decode() if failed else None
        self._leave(layer, before - len(self), stream)
        if stream is not None:
            is_captured = torch.cuda.is_current_stream_capturing()
            self._last = None if is_captured else (stream.record_event(), stream)
        if failed:
            raise RuntimeError(error)

    def _check(self, layer, most):
        left = most if most > 0 else self.capacity
        for entry in self._entries:
            if left > 0 and layer in (None, entry.layer):
                _check_unchanged("flush", entry.seen)
                left -= entry.products

    def _wait(self, stream):
        if self._last is not None and self._last[1] != stream:
            stream.wait_event(self._last[0])
        for entry in self._entries:
            if entry.stream != stream:
                stream.wait_event(entry.event)

    def _leave(self, layer, launched, stream):
        """Forget launched products, the oldest of the layer."""
        kept = collections.deque()
        for entry in self._entries:
            if not launched or layer not in (None, entry.layer):
                kept.append(entry)
                continue
            for t in entry.tensors if stream is not None else ():
                t.record_stream(stream)
            if launched < entry.products:
                kept.append(entry._replace(products=entry.products - launched))
                launched = 0
                continue
            launched -= entry.products
            if entry.done is not None:
                entry.done()
        self._entries = kept

    def drop(self, layer=None):
        """Forget pending work of a layer, or of all. RuntimeError as flush."""
        layer = _layer(layer)
        if not self._entries and layer is None:
            return
        if library.quern_torch_queue_drop(self._handle, -1 if layer is None else layer):
            raise RuntimeError(library.quern_torch_error().decode())
        self._entries = collections.deque(
            entry for entry in self._entries if layer not in (None, entry.layer))


class Later:
    """Weight gradients of one module, for its backward_dw(); no limit on their number."""

    def __init__(self):
        self._waiting = collections.deque()

    def __len__(self):
        return len(self._waiting)

    def put_product(self, layer, line, numbers, dy, x, lengths, ends, d, done):
        self._waiting.append((functools.partial(
            ops.product_, line, *numbers, *dy, *x, lengths, ends, None, None, d),
            _noted(layer, dy=dy[0], x=x[0], lengths=lengths, ends=ends), done))

    def put_mlp(self, kind, layer, operands, dw1, dw2, done):
        self._waiting.append((functools.partial(
            getattr(ops, f"{kind}_wgrad_"), **operands, dw1=dw1, dw2=dw2),
            _read_by_mlp(layer, operands), done))

    def run(self):
        """The oldest one. RuntimeError if a tensor that it reads was changed in place since."""
        launch, seen, done = self._waiting[0]
        _check_unchanged("backward_dw", seen)
        self._waiting.popleft()
        launch()
        if done is not None:
            done()
