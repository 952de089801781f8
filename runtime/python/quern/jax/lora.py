# SPDX-License-Identifier: Apache-2.0
"""Grouped layers with low-rank adapters next to weights in 16 bits or packed ones."""

import functools
import typing

import jax
import jax.numpy as jnp
from jax import lax
from jax.ad_checkpoint import checkpoint_name

from quern import GATED
from quern.jax import _checks, products
from quern.jax._batch import batched
from quern.jax._call import WORDS, call, vary_alike
from quern.jax._recipes import Scaling, check_gradients, recipe_of
from quern.jax.quantized import arrays_of, grouped_quantize


class Spec(typing.NamedTuple):
    """A product's arguments that are no arrays; types as lines spell them."""
    recipe: str
    scaling: Scaling
    y: str
    dx: str
    dw: str  # "": w has no gradient
    k: int
    n: int
    rank: int  # 0: no adapters
    factor: float
    layout: str  # of w and the adapters: [g, k, n], [g, k, rank] and [g, rank, n], or nk
    outside: str  # a word of lines
    has_bias: bool
    has_prob: bool


def check(name, pair, names, shape, recipe, scaling, layout):
    """The two adapters next to weights of a shape (g, k, n); names of x and w in errors."""
    if scaling.x != 1 or not (scaling.w == 1 or scaling.is_packed):
        raise ValueError(f"{name}: recipe {recipe} quantizes {names[0]}, or {names[1]} next to a "
                         f"columnwise tensor; {names[1]} in 16 bits or packed is expected")
    if not isinstance(pair, (list, tuple)) or len(pair) != 2:
        raise TypeError(f"{name}: a pair of arrays (a, b) is expected")
    a, b = (_checks.values(f"{name}[{i}]", t, 3, scaling.type) for i, t in enumerate(pair))
    g, k, n = shape
    rank = a.shape[2 if layout == "kn" else 1]
    if not 1 <= rank <= 256:
        raise ValueError(f"{name}: the rank is {rank}: 1 to 256 is expected")
    shapes = ((g, k, rank), (g, rank, n)) if layout == "kn" else ((g, rank, k), (g, n, rank))
    for i, (t, expected) in enumerate(zip((a, b), shapes)):
        _checks.shaped(f"{name}[{i}]", t, expected)
    return a, b


# --------------------------------------------------------------------------------- products


@functools.lru_cache(maxsize=None)
def _product(spec, op, sizes):
    """D, and with adapters lora_t, of tokens, adapters, the arrays of w and, of fprop, bias and
    prob."""
    is_fprop = op == "fprop"
    (n, k), d = ((spec.n, spec.k), spec.y) if is_fprop else ((spec.k, spec.n), spec.dx)
    is_values, is_kn = spec.scaling.w == 1, spec.layout == "kn"
    pair = ["lora_a", "lora_b"] if spec.rank else []
    w = ["b" + end for end in products.ENDS[:spec.scaling.w]]
    more = ["bias"] * (spec.has_bias and is_fprop) + ["prob"] * (spec.has_prob and is_fprop)
    names, results = ["a", *pair, *w, *more], ["d"] + ["lora_t"] * bool(pair)
    words = f"{op} {spec.recipe} d={d}" + (f" lora={spec.rank}" if pair else "")
    if is_values and is_kn:
        words += f" layout={'nn' if is_fprop else 'tn'}"
    words += spec.outside + "".join(f" {name}=1" for name in more)

    def run(sizes, *arrays):
        given, m = dict(sizes, **dict(zip(names, arrays))), arrays[0].shape[0]
        if is_kn and not is_values:  # packed weights are in the order nk
            given |= {name: jnp.swapaxes(given[name], 1, 2) for name in pair}
        if pair and spec.factor != 1:
            given["lora_scale"] = jnp.full((1,), spec.factor, jnp.float32)
        line = f"{words} g={products.groups_of(sizes)} m={m} n={n} k={k}"
        made = call(line, m, given, results)
        return tuple(made[name] for name in results)

    kinds = {"a": "rows", "prob": "rows"} | ({} if is_values else dict.fromkeys(w, "flat"))
    return batched(run, sizes, [kinds.get(name, "groups") for name in names],
                   ["rows"] * len(results))


def _forward(spec, x, pair, w, arrays, bias, prob, sizes):
    given = [*pair, *([w] if arrays is None else arrays[0]),
             *(a for a in (bias, prob) if a is not None)]
    return products.once("lora", _product(spec, "fprop", tuple(sizes)), *sizes.values(), x, *given)


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _multiply(spec, x, pair, w, arrays, bias, prob, sizes):
    """y of x [m, k], no adapters or two, w or the arrays of a Quantized that fprop and dgrad read,
    or both if w has a gradient, and bias [g, n], times prob [m]."""
    return _forward(spec, x, pair, w, arrays, bias, prob, sizes)[0]


def _keep(spec, x, pair, w, arrays, bias, prob, sizes):
    check_gradients(spec.recipe, spec.scaling)
    y, *t = _forward(spec, x, pair, w, arrays, bias, prob, sizes)
    x = checkpoint_name(x, products.RESIDUALS[0]) if spec.rank or spec.dw else None
    weights = [*pair, *([w] if arrays is None else arrays[1])]
    weights = [checkpoint_name(a, products.RESIDUALS[1]) for a in weights]
    t = [checkpoint_name(a, products.SAVED) for a in t]
    return y, (x, t, weights, bias if spec.has_prob else None, prob, sizes)


def _backward(spec, kept, dy):
    x, t, weights, bias, prob, sizes = kept
    dy = dy.astype(spec.scaling.type)
    dx, *dt = products.once("lora", _product(spec, "dgrad", tuple(sizes)), *sizes.values(), dy,
                            *weights)
    recipe = recipe_of(dy.dtype)

    def wgrad(left, right, d=spec.dx):
        """[g, left's features, right's], in the order of the layout."""
        pair = (left, right) if spec.layout == "kn" else (right, left)
        p = products.Product(recipe, d, products.X_T, products.X_T)
        return products.multiply(p, *pair, None, sizes)

    dbias = dprob = None
    if spec.has_prob:
        dbias, dprob = products.sum_rows_times(dy, prob, sizes), _dprob(dy, bias, sizes)
    elif spec.has_bias:
        dbias = products.sum_rows(dy, sizes)
    return (dx, (wgrad(x, dt[0]), wgrad(t[0], dy)) if spec.rank else (),
            wgrad(x, dy, spec.dw) if spec.dw else None, None, dbias, dprob, None)


def _dprob(dy, bias, sizes):
    """dy times its expert's bias, as products of BF16, which has the range of both: of the halves of
    the bias's digits, and of those of dy in FP16."""
    p = products.Product("bf16", "f32", products.X, products.W_T, " outside=zero")
    b = jnp.stack(_halves(bias), 1)
    return sum(products.multiply(p, half, b, None, sizes)
               for half in (_halves(dy) if dy.dtype == jnp.float16 else [dy])).sum(1)


def _halves(t):
    """Two terms of BF16, whose sum has 16 binary digits of t. XLA must not take them for one
    conversion and back."""
    t = t.astype(jnp.float32)
    high = lax.reduce_precision(t, 8, 7)
    return high.astype(jnp.bfloat16), (t - high).astype(jnp.bfloat16)


_multiply.defvjp(_keep, _backward)


def adapted(x, w, arrays, pair, factor, bias, sizes, shape, *, recipe, scaling, out, layout,
            outside, prob=None):
    """y of checked arguments and a pair of adapters, or None; shape is (g, k, n). prob [m]
    multiplies the bias."""
    if arrays is None and scaling.w != 1:
        copies = products.copies_of(layout, scaling)
        made = grouped_quantize(lax.stop_gradient(w), recipe, of="w", copies=copies[0])
        arrays = tuple(map(made.arrays, copies))
    rank = 0 if pair is None else pair[0].shape[2 if layout == "kn" else 1]
    given = x, pair or (), w, arrays, bias, prob, sizes
    spec = Spec(recipe, scaling, WORDS[out.name], WORDS[x.dtype.name],
                "" if w is None else WORDS[w.dtype.name], *shape[1:], rank, float(factor), layout,
                outside, bias is not None, prob is not None)
    return _multiply(spec, *vary_alike(given))


# ---------------------------------------------------------------------------------- experts


class Activation(typing.NamedTuple):
    """An activation's arguments that are no arrays."""
    words: str  # of lines
    is_gated: bool
    limits: tuple  # limit, slope, shift
    is_zero: bool  # outside of the groups


def _rows_of(made, dtype, m, columns):
    """[m, columns] of a result, which is bytes where rows are padded to 16 of them."""
    if made.ndim == 2:
        return made
    step = 16 // dtype.itemsize
    pitch = (columns + step - 1) // step * step
    return lax.bitcast_convert_type(made.reshape(m, pitch, dtype.itemsize), dtype)[:, :columns]


@functools.lru_cache(maxsize=None)
def _cast(spec, of, sizes, has_prob):
    """of="x": h of pre, and prob if there is one. of="dy": dpre, and dprob, of dh, pre and prob."""
    names = ["input"] + ["pre"] * (of == "dy") + ["prob"] * has_prob
    results = ["rowwise"] + ["dprob"] * (has_prob and of == "dy")

    def run(sizes, *arrays):
        given, (m, wide) = dict(sizes, **dict(zip(names, arrays))), arrays[-1 - has_prob].shape
        columns = wide // 2 if of == "x" and spec.is_gated else wide
        line = f"quantize {recipe_of(arrays[0].dtype)} of={of} " \
            f"in={products.word_of(arrays[0])} copies=rowwise {spec.words}" \
            f"{' prob=1' * has_prob}{' dprob=1' * ('dprob' in results)} " \
            f"g={products.groups_of(sizes)} m={m} k={columns}"
        made = call(line, m, given, results, limits=spec.limits)
        made["rowwise"] = _rows_of(made["rowwise"], arrays[0].dtype, m, columns)
        if "dprob" in made and spec.is_zero:
            made["dprob"] = products.zero_outside(made["dprob"], sizes)
        return tuple(made[name] for name in results)

    return batched(run, sizes, ["rows"] * len(names), ["rows"] * len(results))


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _activate(spec, pre, prob, sizes):
    """h = activation(pre) * prob, rounded to the type of pre."""
    return _activate_forward(spec, pre, prob, sizes)[0]


def _activate_forward(spec, pre, prob, sizes):
    pre = checkpoint_name(pre, products.SAVED)
    more = [] if prob is None else [prob]
    h = products.once("grouped_mlp", _cast(spec, "x", tuple(sizes), bool(more)), *sizes.values(),
                      pre, *more)[0]
    return h, (pre, more, sizes)


def _activate_backward(spec, kept, dh):
    pre, more, sizes = kept
    dpre, *dprob = products.once("grouped_mlp", _cast(spec, "dy", tuple(sizes), bool(more)),
                                 *sizes.values(), dh, pre, *more)
    return dpre, dprob[0] if dprob else None, None


_activate.defvjp(_activate_forward, _activate_backward)


def adapted_mlp(x, w1, w2, quantized, sizes, pairs, factor, shapes, *, recipe, scaling, layout,
                activation, interleave, limits, outside, prob, b1, b2):
    """grouped_mlp of checked arguments but the adapters next to w1, w2 or both: a product, the
    activation, a product; shapes are (g, k, n) of both. prob multiplies h and b2."""
    pairs = [None if pair is None else
             check(f"lora{i}", pair, ("x", f"w{i}"), shape, recipe, scaling, layout)
             for i, pair, shape in zip((1, 2), pairs, shapes)]
    copies = products.copies_of(layout, scaling)
    arrays = [None if q is None else arrays_of(name, q, copies)
              for name, q in zip(("w1", "w2"), quantized or (None, None))]
    more = dict(recipe=recipe, scaling=scaling, out=x.dtype, layout=layout,
                outside="" if outside is None else " outside=zero")
    pre = adapted(x, w1, arrays[0], pairs[0], factor, b1, sizes, shapes[0], **more)
    words = f"activation={activation}" + (f" interleave={interleave}" if interleave else "")
    spec = Activation(words, activation in GATED, limits, outside is not None)
    h = _activate(spec, *vary_alike((pre, prob, sizes)))
    return adapted(h, w2, arrays[1], pairs[1], factor, b2, sizes, shapes[1],
                   prob=None if b2 is None else prob, **more)
