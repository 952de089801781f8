# SPDX-License-Identifier: Apache-2.0
"""Grouped layers with low-rank adapters next to weights in 16 bits or packed ones."""

import functools
import typing

import jax
import jax.numpy as jnp
from jax import lax

from quern.jax import _checks, products
from quern.jax._batch import batched
from quern.jax._call import WORDS, call, vary_alike
from quern.jax._recipes import Scaling, check_gradients, recipe_of
from quern.jax.quantized import grouped_quantize


class Spec(typing.NamedTuple):
    """A call's arguments that are no arrays; types as lines spell them."""
    recipe: str
    scaling: Scaling
    y: str
    dx: str
    dw: str  # "": w has no gradient
    k: int
    n: int
    rank: int
    factor: float
    layout: str  # of w and the adapters: [g, k, n], [g, k, rank] and [g, rank, n], or nk
    outside: str  # a word of lines
    has_bias: bool


def _check(x, lora, factor, shape, dtype, recipe, scaling, layout):
    """The two adapters."""
    if scaling.x != 1 or not (scaling.w == 1 or scaling.is_packed):
        raise ValueError(f"lora: recipe {recipe} quantizes lhs, or rhs next to a columnwise tensor; "
                         "rhs in 16 bits or packed is expected")
    if not isinstance(lora, (list, tuple)) or len(lora) != 2:
        raise TypeError("lora: a pair of arrays (a, b) is expected")
    if type(factor) not in (int, float):
        raise TypeError(f"lora_scaling is {type(factor).__name__}: a number is expected")
    a, b = (_checks.values(f"lora[{i}]", t, 3, dtype) for i, t in enumerate(lora))
    g, k, n = shape
    rank = a.shape[2 if layout == "kn" else 1]
    if not 1 <= rank <= 256:
        raise ValueError(f"lora: the rank is {rank}: 1 to 256 is expected")
    shapes = ((g, k, rank), (g, rank, n)) if layout == "kn" else ((g, rank, k), (g, n, rank))
    for i, (t, expected) in enumerate(zip((a, b), shapes)):
        _checks.shaped(f"lora[{i}]", t, expected)
    return a, b


@functools.lru_cache(maxsize=None)
def _product(spec, op, sizes):
    """D and lora_t of tokens, adapters, the arrays of w and, of fprop, the bias."""
    (n, k), d = ((spec.n, spec.k), spec.y) if op == "fprop" else ((spec.k, spec.n), spec.dx)
    is_values, is_kn = spec.scaling.w == 1, spec.layout == "kn"
    has_bias = spec.has_bias and op == "fprop"
    layout = f" layout={'nn' if op == 'fprop' else 'tn'}" if is_values and is_kn else ""

    def run(batch, sizes, x, a, b, *more):
        w, bias = (more[:-1], more[-1]) if has_bias else (more, None)
        if is_kn and not is_values:  # packed weights are in the order nk
            a, b = jnp.swapaxes(a, 1, 2), jnp.swapaxes(b, 1, 2)
        line = f"{op} {spec.recipe} d={d} lora={spec.rank}{layout}{spec.outside}" \
            f"{' bias=1' if has_bias else ''} " \
            f"g={products.groups_of(sizes)} m={x.shape[0]} n={n} k={k}"
        scale = None if spec.factor == 1 else jnp.full((1,), spec.factor, jnp.float32)
        operands = dict(sizes, a=x, lora_a=a, lora_b=b, lora_scale=scale, bias=bias,
                        **{"b" + end: array for end, array in zip(products.ENDS, w)})
        made = call(line, x.shape[0], operands, ("d", "lora_t"))
        return made["d"], made["lora_t"]

    kinds = ["groups"] if is_values else ["flat"] * spec.scaling.w
    kinds += ["groups"] * has_bias
    return batched(run, sizes, ["rows", "groups", "groups", *kinds], ["rows", "rows"])


def _forward(spec, x, a, b, w, arrays, bias, sizes):
    given = [*([w] if arrays is None else arrays[0]), *([bias] if spec.has_bias else [])]
    return products.once("lora", _product(spec, "fprop", tuple(sizes)), *sizes.values(), x, a, b,
                         *given)


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _multiply(spec, x, a, b, w, arrays, bias, sizes):
    return _forward(spec, x, a, b, w, arrays, bias, sizes)[0]


def _keep(spec, x, a, b, w, arrays, bias, sizes):
    check_gradients(spec.recipe, spec.scaling)
    y, t = _forward(spec, x, a, b, w, arrays, bias, sizes)
    return y, (x, a, b, t, [w] if arrays is None else arrays[1], sizes)


def _backward(spec, kept, dy):
    x, a, b, t, weights, sizes = kept
    dy = dy.astype(x.dtype)
    dx, dt = products.once("lora", _product(spec, "dgrad", tuple(sizes)), *sizes.values(), dy, a, b,
                           *weights)

    def wgrad(left, right, d=spec.dx):
        """[g, left's features, right's], in the order of the layout."""
        pair = (left, right) if spec.layout == "kn" else (right, left)
        p = products.Product(recipe_of(x.dtype), d, products.X_T, products.X_T)
        return products.multiply(p, *pair, None, sizes)

    return (dx, wgrad(x, dt), wgrad(t, dy), wgrad(x, dy, spec.dw) if spec.dw else None, None,
            products.sum_rows(dy, sizes) if spec.has_bias else None, None)


_multiply.defvjp(_keep, _backward)


def adapted(x, w, arrays, lora, factor, bias, sizes, shape, *, recipe, scaling, out, layout,
            outside):
    """y of checked arguments and a pair of adapters; shape is (g, k, n)."""
    a, b = _check(x, lora, factor, shape, x.dtype, recipe, scaling, layout)
    if arrays is None and scaling.w != 1:
        copies = products.copies_of(layout, scaling)
        made = grouped_quantize(lax.stop_gradient(w), recipe, of="w", copies=copies[0])
        arrays = tuple(map(made.arrays, copies))
    rank = a.shape[2 if layout == "kn" else 1]
    x, w, arrays, bias, sizes, a, b = vary_alike((x, w, arrays, bias, sizes, a, b))
    spec = Spec(recipe, scaling, WORDS[out.name], WORDS[x.dtype.name],
                "" if w is None else WORDS[w.dtype.name], *shape[1:], rank, float(factor), layout,
                outside, bias is not None)
    return _multiply(spec, x, a, b, w, arrays, bias, sizes)
