# SPDX-License-Identifier: Apache-2.0
"""grouped_mlp: both layers of each expert and the activation between them."""

import functools
import re
import typing

import jax
import jax.numpy as jnp
from jax.ad_checkpoint import checkpoint_name

import quern
from quern import GATED, PLAIN
from quern.jax import _checks, products
from quern.jax._batch import Window, batched
from quern.jax._call import WORDS, call
from quern.jax._recipes import Scaling, check_gradients, check_tokens, recipe_for, scaling_of
from quern.jax.functions import sizes_of
from quern.jax.lora import adapted_mlp
from quern.jax.quantized import Quantized, arrays_of, check_quantized, seeds
from quern.jax.scaling import ScalingState, check_state, put, vary_with
from quern.scaling import limits_of

FORWARD, BACKWARD = 0, 1
_KINDS = {name: "rows" for name in ("x", "dy", "prob")} | \
    {name: "state" for name in ("scale", "history")} | \
    {"c": "rows", "index": "index", "saved": "bytes"} | \
    {name: "groups" for name in ("w1", "w2", "b1", "b2")}


class Route(typing.NamedTuple):
    """A layer that begins and ends with tokens: their experts [tokens, topk], and a summand of
    the result, or None."""
    index: typing.Any
    residual: typing.Any
    prob: str  # where probabilities multiply, as lines spell it
    window: Window


class Spec(typing.NamedTuple):
    """A call's arguments that are no arrays."""
    recipe: str
    scaling: Scaling
    line: str  # without sizes
    hidden: int
    ffn: int
    layout: str
    limits: tuple  # limit, slope, shift, or none
    has_dw: bool
    is_zero: bool  # outside of the groups
    window: Window | None = None  # of a layer's experts
    of: str = "w"  # products.quantize reads the weights' cast from here

    @property
    def what(self):
        """The subject of errors."""
        return "moe" if self.window else "grouped_mlp"


def _line(spec, sizes, rows, is_kept=True):
    """The line; without the backward pass unless that follows."""
    words = spec.line
    if not is_kept and spec.scaling.dy:
        words = words.replace(" recompute=1", "") + " grad=0"
    if spec.window:
        words += f" first={sizes.first} experts={sizes.total}"
    return f"{words} g={_groups(spec, sizes)} m={rows} hidden={spec.hidden} " \
        f"ffn={spec.ffn}"


def _groups(spec, sizes):
    return sizes.groups if spec.window else products.groups_of(sizes)


def _operands(spec, sizes, given, reads):
    """Those of a phase."""
    return dict({} if spec.window else sizes, **{n: a for n, a in given.items() if n in reads})


@functools.lru_cache(maxsize=None)
def read_by(line, phase):
    line = re.sub(" interleave=[^ ]*", "", line)  # it need not divide this ffn
    return {o.name for o in quern.describe(line + " g=1 m=128 hidden=128 ffn=128").values()
            if o.read >> phase & 1}


def _as_read(w, layout):
    """[g, n, k], as the library has weights."""
    return jnp.swapaxes(w, 1, 2) if layout == "kn" else w


def _of_copies(made, name, layout, count):
    """{w1_rowwise: .., ..} of quantized weights, whose tensors change names in layout kn."""
    arrays = {}
    for copy, other in (("rowwise", "columnwise"), ("columnwise", "rowwise")):
        source = other if layout == "kn" else copy
        for end in products.ENDS[:count]:
            if source + end in made:
                arrays[f"{name}_{copy}{end}"] = made[source + end]
    return arrays


def _bits(bits):
    """Seeds of x, h, w1, w2, dy and dpre, and after them those of the weights' casts."""
    return bits[:24], {"w1": bits[24:28], "w2": bits[28:32]}


@functools.lru_cache(maxsize=None)
def _forward(spec, sizes, names, is_kept):
    """y; if is_kept then saved, the quantized weights that the backward pass reads, and the history
    of delayed scaling."""
    has_history = is_kept and spec.scaling.slots > 0
    kept = _kept_weights(spec, names) if is_kept else []

    def run(sizes, *arrays):
        given, rows = dict(zip(names, arrays)), arrays[0].shape[0]
        own = {}
        if "random" in given:
            given["random"], own = _bits(given["random"])
        for i, name in enumerate(("w1", "w2"), 2):
            if name in given and spec.scaling.w > 1:
                copies = "both" if is_kept and not spec.scaling.is_packed else \
                    products.copies_of(spec.layout, spec.scaling)[0]
                state = ScalingState(given["scale"][i], given["history"][i]) \
                    if spec.scaling.slots else None
                made = products.quantize(given.pop(name), "w", spec, copies, {},
                                         seed=own.get(name) if spec.scaling.is_random[1] else None,
                                         state=state)
                if state is not None:
                    given["history"] = put(given["history"], {i: made.get("history")})
                given |= _of_copies(made, name, spec.layout, spec.scaling.w)
            elif name in given:
                given[name] = _as_read(given[name], spec.layout)
        line = _line(spec, sizes, rows, is_kept)
        reads = read_by(spec.line, FORWARD)
        operands = _operands(spec, sizes, given, reads)
        results = ["y"] + ["saved"] * is_kept
        history = ["history"] * has_history
        made = call(line, rows, operands, results + history, FORWARD, spec.limits)
        return tuple([made[name] for name in results] + [given[name] for name in kept] +
                     [made[name] for name in history])

    return batched(run, sizes, [_KINDS.get(name, "flat") for name in names],
                   ["rows"] + ["bytes"] * is_kept + ["flat"] * len(kept) + ["state"] * has_history,
                   spec.window)


def _kept_weights(spec, names):
    """Arrays of weights that the forward pass makes and the backward pass reads."""
    if spec.scaling.w == 1 or "w1" not in names:
        return []
    return sorted(name for name in read_by(spec.line, BACKWARD) if name[:3] in ("w1_", "w2_"))


@functools.lru_cache(maxsize=None)
def _backward(spec, sizes, names):
    """dx, dprob, db1, db2, dw1, dw2 and history, of those that there are."""
    results = _results(spec, names)

    def run(sizes, *arrays):
        given, rows = dict(zip(names, arrays)), arrays[0].shape[0]
        if "random" in given:
            given["random"] = given["random"][:24]
        for name in ("w1", "w2"):
            if name in given:
                given[name] = _as_read(given[name], spec.layout)
        line = _line(spec, sizes, rows)
        reads = read_by(spec.line, BACKWARD) | (read_by(spec.line, 2) if spec.has_dw else set())
        operands = _operands(spec, sizes, given, reads)
        left = [o.name for o in quern.describe(line).values()
                if o.name in ("saved", "pending") and o.written >> BACKWARD & 1]
        made = call(line, rows, operands, (*results, *left), BACKWARD, spec.limits)
        if spec.is_zero and "dprob" in made:
            made["dprob"] = products.zero_outside(made["dprob"], sizes)
        for name in ("dw1", "dw2"):
            if name in made:
                made[name] = _as_read(made[name], spec.layout)
        return tuple(made[name] for name in results)

    kinds = {"dx": "rows", "dprob": "rows", "history": "state"}
    return batched(run, sizes, [_KINDS.get(name, "flat") for name in names],
                   [kinds.get(name, "groups") for name in results], spec.window)


def _results(spec, names):
    found = ["dx"] + ["dw1", "dw2"] * spec.has_dw
    found += ["dprob"] * ("prob" in names) + ["db1", "db2"] * (" bias=1" in spec.line)
    return found + ["history"] * ("history" in names)


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _mlp(spec, values, more, sizes):
    """values: {x, w1, w2, b1, b2, prob, c, scale, history}; more: {quantized arrays, random,
    index}. The gradient of scale and history is the next state."""
    return _run_forward(spec, values, more, sizes, False)[0]


def _run_forward(spec, values, more, sizes, is_kept):
    given = dict(values, **more)
    if any(name.endswith("wise") for name in more):
        given = {name: a for name, a in given.items() if name not in ("w1", "w2")}
    names = tuple(sorted(given, key=lambda name: name != "x"))
    function = _forward(spec, tuple(sizes), names, is_kept)
    made = products.once(spec.what, function, *sizes.values(), *[given[name] for name in names])
    if not is_kept:
        return made
    kept = dict(zip(_kept_weights(spec, names), made[2:]))
    reads = read_by(spec.line, BACKWARD) | (read_by(spec.line, 2) if spec.has_dw else set())
    kept |= {name: a for name, a in given.items() if name in reads and name not in kept}
    if spec.scaling.slots:
        kept["history"] = made[-1]
    if spec.scaling.w > 1:
        copy = products.copies_of(spec.layout, spec.scaling)[1]
        if any(n.endswith("wise") and n not in kept for n in read_by(spec.line, BACKWARD)):
            raise ValueError(f"w1, w2 have no {copy} tensor, which the backward pass reads: "
                             "quantize them with copies='both'")
    return made[0], dict(kept, saved=made[1])


def _mlp_forward(spec, values, more, sizes):
    check_gradients(spec.recipe, spec.scaling)
    y, kept = _run_forward(spec, values, more, sizes, True)
    names = {"x": products.RESIDUALS[0], "saved": products.SAVED}
    kept = {name: checkpoint_name(a, names.get(name, products.RESIDUALS[1]))
            for name, a in kept.items()}
    has = {name: a if name in ("b1", "b2", "prob") else None for name, a in values.items()}
    return y, (kept, sizes, has)


def _mlp_backward(spec, saved, dy):
    kept, sizes, has = saved
    kept = dict(kept, dy=dy)
    names = tuple(sorted(kept, key=lambda name: name != "dy"))
    made = products.once(spec.what, _backward(spec, tuple(sizes), names), *sizes.values(),
                         *[kept[name] for name in names])
    found = dict(zip(_results(spec, names), made))
    gradients = {name: found.get("d" + name) for name in has}
    if spec.scaling.slots:
        gradients |= dict(scale=kept["scale"], history=found["history"])
    if "c" in has:
        gradients["c"] = dy
    return gradients, None, None


_mlp.defvjp(_mlp_forward, _mlp_backward)


def grouped_mlp(x, w1, w2, group_sizes, *, activation="swiglu", prob=None, b1=None, b2=None,
                lora1=None, lora2=None, lora_scaling=1.0, interleave=0, recipe=None,
                recompute=False, layout="kn", limit=7.0, slope=1.702, shift=1.0, group_offset=None,
                outside="zero", key=None, quantized=None, state=None):
    """The MLP of each expert, over its tokens, with e a token's expert:
        pre = x @ w1[e] + b1[e];  h = activation(pre) * prob;  y = h @ w2[e] + b2[e] * prob

        x            [m, hidden]
        w1, w2       [g, hidden, 2 ffn or ffn] and [g, ffn, hidden], or with layout="nk"
                     [g, 2 ffn or ffn, hidden] and [g, hidden, ffn], for which XLA transposes
                     nothing; or both a Quantized, which have no gradient
        activation   swiglu, clamped_swiglu (limit, slope, shift), situ, geglu, reglu, or
                     squared_relu, relu, silu, gelu, gelu_tanh, whose w1 has ffn features
        prob         [m]; b1 [g, 2 ffn or ffn] and b2 [g, hidden], both or none
        lora1, lora2, lora_scaling  (a, b) next to w1 and to w2, both or one, as lora of ragged_dot:
                     lora_scaling * x @ a1[e] @ b1[e] is added to pre, and of h to y. pre and h are
                     then rounded to x's type; not with recompute
        interleave   length of alternating runs of the activation's two operands in w1; 0: halves
        recompute    backward computes pre again, to the same bits, and keeps less memory
        quantized    Quantized of w1 and w2, a pair, so that values are not quantized again
        state        of scaling_state(recipe, 6), for recipes with delayed scaling, as in ragged_dot
        group_sizes, recipe, group_offset, outside, key  as in ragged_dot

    Differentiable once in x, w1, w2, prob, b1, b2 and adapters.
    """
    return mlp(x, w1, w2, group_sizes, None, activation=activation, prob=prob, b1=b1, b2=b2,
               lora1=lora1, lora2=lora2, lora_scaling=lora_scaling, interleave=interleave,
               recipe=recipe, recompute=recompute, layout=layout, limit=limit, slope=slope,
               shift=shift, group_offset=group_offset, outside=outside, key=key,
               quantized=quantized, state=state)


def mlp(x, w1, w2, group_sizes, route, *, activation="swiglu", prob=None, b1=None, b2=None,
        lora1=None, lora2=None, lora_scaling=1.0, interleave=0, recipe=None, recompute=False,
        layout="kn", limit=7.0, slope=1.702, shift=1.0, group_offset=None, outside=None, key=None,
        quantized=None, state=None):
    """grouped_mlp, or with a Route instead of group_sizes a layer without adapters, whose prob is
    [tokens, topk]."""
    x = _checks.values("x", x, 2)
    lora_scaling = _checks.number("lora_scaling", lora_scaling)
    interleave = _checks.integer("interleave", interleave, 0)
    recompute = _checks.flag("recompute", recompute)
    if isinstance(w1, Quantized) != isinstance(w2, Quantized):
        raise ValueError("w1, w2: both or none a Quantized are expected")
    if isinstance(w1, Quantized):
        w1, w2, quantized = None, None, (w1, w2)
    recipe = recipe_for("x", x, recipe, quantized and quantized[0])
    scaling = scaling_of(recipe)
    state = check_state(recipe, state, 6)
    _checks.word("activation", activation, GATED + PLAIN)
    _checks.word("layout", layout, ("kn", "nk"))
    _checks.word("outside", outside, (None, "zero"))
    w1, w2, (g, hidden, wide), ffn, dtype = _check_weights(x, w1, w2, quantized, recipe, scaling,
                                                           activation, layout)
    values = {"x": x, "w1": w1, "w2": w2}
    if (b1 is None) != (b2 is None):
        raise ValueError("b1, b2: both or none are expected")
    if b1 is not None:
        values |= {"b1": _checks.f32("b1", b1, (g, wide)), "b2": _checks.f32("b2", b2, (g, hidden))}
    if prob is not None:
        values["prob"] = _checks.f32("prob", prob, x.shape[:1] if route is None else
                                     route.index.shape)
    limits = limits_of(limit, slope, shift)
    limits = limits if activation == "clamped_swiglu" else ()
    if lora1 is not None or lora2 is not None:
        if recompute:
            raise ValueError("lora1 or lora2 cannot be combined with recompute")
        return adapted_mlp(
            x, w1, w2, quantized, sizes_of("group_sizes", group_sizes, g, group_offset),
            (lora1, lora2), lora_scaling, ((g, hidden, wide), (g, ffn, hidden)), recipe=recipe,
            scaling=scaling, layout=layout, activation=activation, interleave=interleave,
            limits=limits, outside=outside, prob=values.get("prob"), b1=values.get("b1"),
            b2=values.get("b2"))
    line = f"{'mlp' if route is None else 'moe'} {recipe} in={WORDS[x.dtype.name]} " \
        f"dw={WORDS[dtype.name]} activation={activation}"
    where = int(prob is not None) if route is None else route.prob
    line += "".join(f" {key}={value}" for key, value in (
        ("interleave", interleave), ("prob", where), ("bias", int(b1 is not None)),
        ("recompute", int(recompute and scaling.dy > 0)), ("outside", outside)) if value)
    line += "" if scaling.dy else " grad=0"
    more, sizes = {}, {}
    if route is None:
        sizes = sizes_of("group_sizes", group_sizes, g, group_offset)
    else:
        more["index"], values["c"] = route.index, route.residual
        line += f" topk={route.index.shape[1]}" + " index=i64" * (route.index.dtype != jnp.int32) \
            + " residual=1" * (route.residual is not None)
    for name, q in zip(("w1", "w2"), quantized or ()):
        for copy in ("rowwise", "columnwise"):
            arrays = dict(zip([copy + end for end in products.ENDS], q.arrays(copy)))
            more |= _of_copies(arrays, name, layout, scaling.w)
    bits = seeds(key, recipe, scaling, 8)
    if bits is not None:
        more["random"] = bits
    values = {name: a for name, a in values.items() if a is not None}
    values, more, sizes, state = vary_with(state, values, more, sizes)
    if state is not None:
        values |= state._asdict()
    spec = Spec(recipe, scaling, line, hidden, ffn, layout, limits, w1 is not None,
                outside == "zero", None if route is None else route.window)
    return _mlp(spec, values, more, sizes)


def _check_weights(x, w1, w2, quantized, recipe, scaling, activation, layout):
    """w1 and w2 as arrays, the shape of w1 as [g, hidden, features], ffn, and the type of both;
    packed weights have that of x."""
    if quantized is not None:
        for name, q in zip(("w1", "w2"), quantized):
            check_quantized(name, q, recipe, "w")
            arrays_of(name, q, products.copies_of(layout, scaling))
    if quantized is None or w1 is not None or w2 is not None:
        kind = scaling.type if scaling.w == 1 else None
        w1 = _checks.values("w1", w1, 3, kind)
        w2 = _checks.values("w2", w2, 3, w1.dtype)
    like1, like2 = quantized if w1 is None else (w1, w2)
    check_tokens("x", x, recipe, scaling)
    order = (0, 1, 2) if layout == "kn" else (0, 2, 1)
    g, hidden, wide = (like1.shape[i] for i in order)
    gated = activation in GATED
    if hidden != x.shape[1]:
        raise ValueError(f"x has the shape {list(x.shape)} and w1 {list(like1.shape)}: {hidden} "
                         "columns of x are expected")
    expected = [(g, wide // 2 if gated else wide, hidden)[i] for i in order]
    if gated and wide % 2 or list(like2.shape) != expected:
        raise ValueError(f"w2 has the shape {list(like2.shape)}: {expected} is expected, since w1 "
                         f"has the shape {list(like1.shape)} and {activation} "
                         f"{'halves' if gated else 'keeps'} its features")
    return w1, w2, (g, hidden, wide), wide // 2 if gated else wide, \
        x.dtype if w1 is None and scaling.is_packed else like1.dtype
