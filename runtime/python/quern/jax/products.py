# SPDX-License-Identifier: Apache-2.0
"""The products of a grouped linear layer with their derivatives, on checked arguments.

    x [m, k], w [g, k, n], y [m, n], as jax.lax.ragged_dot has them
"""

import functools
import typing

import jax
import jax.numpy as jnp
from jax.ad_checkpoint import checkpoint_name

import quern
from quern.jax._batch import batched
from quern.jax._call import DTYPES, WORDS, axes_of, call, vary
from quern.jax._checks import signed
from quern.jax._recipes import Scaling, check_gradients, recipe_of
from quern.jax.scaling import ScalingState, put

RESIDUALS = ("quern_x", "quern_w")  # names of residuals, for policies of jax.checkpoint
SAVED = "quern_saved"  # of those that a layer has between its first product and its last one
ENDS = ("", ".sf", ".global")


class Spec(typing.NamedTuple):
    """A call's arguments that are no arrays; types as lines spell them."""
    recipe: str
    scaling: Scaling
    y: str
    dx: str
    dw: str
    k: int
    n: int
    outside: str = ""  # a word of lines
    has_bias: bool = False
    is_seeded: bool = False
    is_w_quantized: bool = False  # arrays of a Quantized are used instead of w
    has_dw: bool = True
    layout: str = "kn"  # of w: [g, k, n], or nk

    @property
    def copies(self):
        """The tensors of w that fprop and dgrad read."""
        return copies_of(self.layout, self.scaling)

    @property
    def what(self):
        """The subject of errors."""
        return f"recipe {self.recipe}"


def copies_of(layout, scaling):
    """The tensors of w that fprop and dgrad read."""
    names = ("columnwise", "rowwise") if layout == "kn" else ("rowwise", "columnwise")
    return (names[0], names[0]) if scaling.is_packed else names


def word_of(array):
    return WORDS[array.dtype.name]


def groups_of(sizes):
    return sizes["lengths"].shape[0] if "lengths" in sizes else sizes["starts"].shape[0] - 1


# ------------------------------------------------------------- recipes without scales, any order


class Matrix(typing.NamedTuple):
    """One operand of a contraction, or its result: two axes of each group's matrix."""
    ragged: str  # "rows" or "columns" are split among the groups; "groups": a third axis in front
    sum_axis: int  # 0 or 1; of results -1


class Product(typing.NamedTuple):
    """[a's other axis, b's other axis] of each group, of operands of a recipe without scales."""
    recipe: str
    d: str
    a: Matrix
    b: Matrix
    outside: str = ""

    @property
    def ragged(self):
        """The axis of the line that is split among the groups; None: these do not fit."""
        kinds = tuple("groups" if x.ragged == "groups" else
                      "sum" if (x.ragged == "columns") == x.sum_axis else "other"
                      for x in (self.a, self.b))
        return {("other", "groups"): "m", ("groups", "other"): "n", ("sum", "sum"): "k",
                ("groups", "groups"): "none"}.get(kinds)


X, X_T = Matrix("rows", 1), Matrix("rows", 0)
W, W_T = Matrix("groups", 0), Matrix("groups", 1)  # [g, k, n] and [g, n, k]


@functools.lru_cache(maxsize=None)
def _product(p, sizes, has_bias):
    ragged = p.ragged
    op = "wgrad" if ragged == "k" else "dgrad" if ragged == "m" and p.b.sum_axis else "fprop"
    layout = "nt"[p.b.sum_axis] + "tn"[p.a.sum_axis]

    def run(sizes, a, b, *bias):
        m, k = a.shape[-2:] if p.a.sum_axis else a.shape[:-3:-1]
        n = b.shape[-2:][1 - p.b.sum_axis]
        g = a.shape[0] if ragged == "none" else groups_of(sizes)
        if not bias and 0 in (g, m, n, k):  # in lines only rows may be 0
            zeros = jnp.zeros((m, n) if ragged in "mn" else (g, m, n), DTYPES[p.d])
            return (vary(zeros, axes_of(a, b, *sizes.values())),)
        line = f"{op} {p.recipe} d={p.d} ragged={ragged} layout={layout}" \
            f"{p.outside if ragged in 'mn' else ''}{' bias=1' if bias else ''} g={g} m={m} n={n} " \
            f"k={k}"
        rows = dict(m=m, n=n, k=k, none=0)[ragged]
        operands = dict(sizes, a=a, b=b, **({"bias": bias[0]} if bias else {}))
        return (call(line, rows, operands, ("d",))["d"],)

    result = dict(m="rows", n="columns").get(ragged, "groups")
    return batched(run, sizes, [p.a.ragged, p.b.ragged] + ["groups"] * has_bias, [result])


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def multiply(p, a, b, bias, sizes):
    """bias [g, n] only with ragged m."""
    more = () if bias is None else (bias,)
    return _product(p, tuple(sizes), bias is not None)(*sizes.values(), a, b, *more)[0]


def _multiply_backward(p, kept, u):
    """Each gradient is a contraction of the result's and the other operand, in the order that
    gives the operand's own layout."""
    a, b, bias, sizes = kept
    u = u.astype(a.dtype)
    kind = dict(m="rows", n="columns").get(p.ragged, "groups")

    def of(left, right, first, second, d):
        return multiply(Product(p.recipe, word_of(d), left, right, p.outside), first, second, None,
                        sizes)

    u_a, u_b = Matrix(kind, 1), Matrix(kind, 0)  # sums over b's other axis, and over a's
    b_, a_ = Matrix(p.b.ragged, 1 - p.b.sum_axis), Matrix(p.a.ragged, 1 - p.a.sum_axis)
    da = of(u_a, b_, u, b, a) if p.a.sum_axis else of(b_, u_a, b, u, a)
    db = of(u_b, a_, u, a, b) if p.b.sum_axis else of(a_, u_b, a, u, b)
    return da, db, None if bias is None else sum_rows(u, sizes), None


multiply.defvjp(lambda p, a, b, bias, sizes: (multiply(p, a, b, bias, sizes), (a, b, bias, sizes)),
                _multiply_backward)


# --------------------------------------------------------------------------- sums of groups' rows


@functools.lru_cache(maxsize=None)
def _sum_rows(sizes, has_prob):
    def run(sizes, u, *prob):
        recipe = "fp16" if u.dtype == jnp.float16 else "bf16"
        line = f"quantize {recipe} of=dy in={word_of(u)} copies=rowwise dbias=1" \
            f"{' prob=1' * has_prob} g={groups_of(sizes)} m={u.shape[0]} k={u.shape[1]}"
        operands = dict(sizes, input=u, prob=prob[0] if prob else None)
        return (call(line, u.shape[0], operands, ("dbias",))["dbias"],)

    return batched(run, sizes, ["rows"] * (1 + has_prob), ["groups"])


@jax.custom_vjp
def sum_rows(u, sizes):
    """f32 [g, n]: the sum of each group's rows."""
    return _sum_rows(tuple(sizes), False)(*sizes.values(), u)[0]


def _sum_rows_backward(kept, d):
    like, sizes = kept
    index, inside = group_of_rows(sizes, like.shape[0])
    return jnp.where(inside[:, None], d[index], 0).astype(like.dtype), None


sum_rows.defvjp(lambda u, sizes: (sum_rows(u, sizes), (u, sizes)), _sum_rows_backward)


def sum_rows_times(u, prob, sizes):
    """The same of rows times prob [m], without a derivative."""
    return once("prob", _sum_rows(tuple(sizes), True), *sizes.values(), u, prob)[0]


def group_of_rows(sizes, rows):
    """Each row's group, and whether it is in one."""
    starts, lengths = sizes.get("starts"), sizes.get("lengths")
    if lengths is not None:
        lengths = signed(lengths)
    if starts is None:
        ends = jnp.cumsum(lengths, dtype=lengths.dtype)
        starts = ends - lengths
    else:
        starts, ends = starts[:-1], starts[1:] if lengths is None else starts[:-1] + lengths
    row = jnp.arange(rows, dtype=starts.dtype)
    index = jnp.clip(jnp.searchsorted(ends, row, side="right"), 0, starts.shape[0] - 1)
    return index, (row >= starts[index]) & (row < ends[index])


def zero_outside(values, sizes):
    """Values [m], zeros in rows outside of all groups."""
    return jnp.where(group_of_rows(sizes, values.shape[0])[1], values, 0)


# --------------------------------------------------------------------------- recipes with scales


def names_of(copies, count):
    """The arrays of a quantized tensor."""
    wanted = ("rowwise", "columnwise") if copies == "both" else (copies,)
    return [copy + end for copy in wanted for end in ENDS[:count]]


def quantize(values, of, spec, copies, sizes, seed=None, dbias=False, state=None):
    """{name: array} of the line's results, in flat bytes."""
    count = getattr(spec.scaling, of)
    line = f"quantize {spec.recipe} of={of} in={word_of(values)} copies={copies}" \
        f"{' dbias=1' if dbias else ''}"
    g, rows = (values.shape[0], 0) if of == "w" else (groups_of(sizes), values.shape[0])
    whole = f"{line} g={g} m={values.shape[-2]} k={values.shape[-1]}"
    names = names_of(copies, count)
    wanted = names + ["dbias"] * dbias
    operands = dict(sizes if of != "w" else {}, input=values, random=seed)
    if state is not None and "history" in quern.describe(whole):
        wanted.append("history")
        operands |= state._asdict()
    return call(whole, rows, operands, wanted, flat=names)


def _operand(name, arrays):
    """{a: .., a.sf: ..} of up to three arrays."""
    return {name + end: array for end, array in zip(ENDS, arrays)}


def _pick(made, copy, count):
    return [made[name] for name in names_of(copy, count)]


def _numbers(sizes, m, n, k):
    return f"g={groups_of(sizes)} m={m} n={n} k={k}"


@functools.lru_cache(maxsize=None)
def _forward(spec, sizes, is_kept):
    """y; if is_kept then the quantized x and w that the backward pass reads, and the history."""
    scaling = spec.scaling
    has_history = is_kept and scaling.slots > 0
    keep_x = is_kept and scaling.x > 1 and spec.has_dw
    keep_w = is_kept and scaling.w > 1 and not spec.is_w_quantized

    def run(sizes, x, *more):
        more, later, histories = list(more), [], {}
        state, history = _states(scaling, more)
        seeds = _seeds(more.pop()) if spec.is_seeded else (None,) * 3
        operands = dict(sizes, bias=more.pop() if spec.has_bias else None)
        if scaling.x == 1:
            operands["a"] = x
        else:
            made = quantize(x, "x", spec, "both" if keep_x else "rowwise", sizes, seeds[0],
                            state=state[0])
            histories[0] = made.get("history")
            operands |= _operand("a", _pick(made, "rowwise", scaling.x))
            later += _pick(made, "columnwise", scaling.x) if keep_x else []
        if scaling.w == 1:
            more = [jnp.swapaxes(more[0], 1, 2) if spec.layout == "kn" else more[0]]
        elif not spec.is_w_quantized:
            is_both = keep_w and not scaling.is_packed
            made = quantize(more[0], "w", spec, "both" if is_both else spec.copies[0], {},
                            seed=seeds[1], state=state[1])
            histories[1] = made.get("history")
            more = _pick(made, spec.copies[0], scaling.w)
            later += _pick(made, spec.copies[1], scaling.w) if keep_w else []
        operands |= _operand("b", more)
        line = f"fprop {spec.recipe} d={spec.y}{spec.outside}" \
            f"{' bias=1' if spec.has_bias else ''} {_numbers(sizes, x.shape[0], spec.n, spec.k)}"
        if has_history:
            later.append(put(history, histories))
        return (call(line, x.shape[0], operands, ("d",))["d"], *later)

    w = ["flat"] * scaling.w if spec.is_w_quantized else ["groups"]
    kinds = ["rows", *w] + ["groups"] * spec.has_bias + ["flat"] * spec.is_seeded
    results = ["rows"] + ["bytes"] * scaling.x * keep_x + ["flat"] * scaling.w * keep_w
    return batched(run, sizes, kinds + ["state"] * 2 * bool(scaling.slots),
                   results + ["state"] * has_history)


def _states(scaling, arrays):
    """Those of x, w and dy, from the end of a list of arrays, and the whole history."""
    if not scaling.slots:
        return (None,) * 3, None
    history, scale = arrays.pop(), arrays.pop()
    return [ScalingState(scale[i], history[i]) for i in range(3)], history


@functools.lru_cache(maxsize=None)
def _backward(spec, sizes):
    """dx, dw if there is one, dbias if there is a bias, the history if there is one, from dy and
    the residuals."""
    scaling, need_w = spec.scaling, spec.has_dw

    def run(sizes, dy, *more):
        more, rows = list(more), dy.shape[0]
        state, history = _states(scaling, more)
        seed = _seeds(more.pop())[2] if spec.is_seeded else None
        made = {"rowwise": dy, "columnwise": dy}
        if scaling.dy > 1:
            made = quantize(dy, "dy", spec, "both" if need_w else "rowwise", sizes, seed,
                            spec.has_bias, state[2])
        is_fprop_w = scaling.is_packed or scaling.w == 1 and spec.layout == "nk"
        line = f"dgrad {spec.recipe} d={spec.dx}{spec.outside}" \
            f"{'' if is_fprop_w else ' layout=tn'} " \
            + _numbers(sizes, rows, spec.k, spec.n)
        operands = dict(sizes, **_operand("a", _pick(made, "rowwise", scaling.dy)),
                        **_operand("b", more[:scaling.w]))
        results = [call(line, rows, operands, ("d",))["d"]]
        if need_w:
            results.append(_wgrad(spec, sizes, rows, more[scaling.w:],
                                  _pick(made, "columnwise", scaling.dy)))
        if spec.has_bias:
            results.append(made["dbias"] if scaling.dy > 1 else sum_rows(dy, sizes))
        if scaling.slots:
            results.append(put(history, {2: made.get("history")}))
        return tuple(results)

    def kind(count, plain, quantized):
        return [plain] if count == 1 else [quantized] * count

    kinds = ["rows", *kind(scaling.w, "groups", "flat")]
    kinds += kind(scaling.x, "rows", "bytes") if need_w else []
    state = ["state"] * bool(scaling.slots)
    return batched(run, sizes, kinds + ["flat"] * spec.is_seeded + 2 * state,
                   ["rows"] + ["groups"] * need_w + ["groups"] * spec.has_bias + state)


def _wgrad(spec, sizes, rows, x, dy, added=None):
    """[g, k, n], in the memory of `added` if that is given, or as the layout says. The library's D
    is [g, n of dy, k of x], so that operands are swapped if they are quantized alike; else XLA
    transposes."""
    is_swapped = spec.layout == "kn" and spec.scaling.is_wgrad_symmetric
    is_turned = spec.layout == "kn" and not is_swapped
    a, b, m, n = (x, dy, spec.k, spec.n) if is_swapped else (dy, x, spec.n, spec.k)
    beta = "" if added is None or is_turned else " beta=1"
    # packed weights: of the values that w stands for
    recipe = recipe_of(spec.scaling.type) if spec.scaling.is_packed else spec.recipe
    line = f"wgrad {recipe} d={spec.dw}{beta} {_numbers(sizes, m, n, rows)}"
    operands = dict(sizes, **_operand("a", a), **_operand("b", b), d=added if beta else None)
    dw = call(line, rows, operands, ("d",))["d"]
    if not is_turned:
        return dw
    dw = jnp.swapaxes(dw, 1, 2)
    return dw if added is None else added + dw


def _seeds(bits):
    """128 bits each for x, w and dy."""
    return bits[0:4], bits[4:8], bits[8:12]


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def scaled(spec, x, w, quantized, bias, bits, sizes, state):
    """y of values that the recipe quantizes. quantized: the arrays of w that fprop and dgrad read,
    where w may be None and has no gradient; or None. The gradient of state is the next one."""
    return _fprop(spec, x, w, quantized, bias, bits, sizes, state, False)[0]


def _fprop(spec, x, w, quantized, bias, bits, sizes, state, is_kept):
    more = [*(quantized[0] if spec.is_w_quantized else [w]), *([bias] if spec.has_bias else []),
            *([bits] if spec.is_seeded else []), *(state or [])]
    return once(spec.what, _forward(spec, tuple(sizes), is_kept), *sizes.values(), x, *more)


def _scaled_forward(spec, x, w, quantized, bias, bits, sizes, state):
    check_gradients(spec.recipe, spec.scaling)
    y, *later = _fprop(spec, x, w, quantized, bias, bits, sizes, state, True)
    if state is not None:
        state = state._replace(history=later.pop())
    kept_x = [] if not spec.has_dw else [x] if spec.scaling.x == 1 else \
        [later.pop(0) for _ in range(spec.scaling.x)]
    kept_w = quantized[1] if spec.is_w_quantized else [w] if spec.scaling.w == 1 else later
    if spec.is_w_quantized and not kept_w:
        raise ValueError(f"rhs has no {spec.copies[1]} tensor, which the gradient of lhs reads: "
                         "quantize it with copies='both'")
    return y, ([checkpoint_name(a, RESIDUALS[0]) for a in kept_x],
               [checkpoint_name(a, RESIDUALS[1]) for a in kept_w], bits, sizes, state)


def _scaled_backward(spec, kept, dy):
    x, w, bits, sizes, state = kept
    if spec.scaling.dy == 1:
        dy = dy.astype(spec.scaling.type)
    dx, *more = once(spec.what, _backward(spec, tuple(sizes)), *sizes.values(), dy, *w, *x,
                     *([bits] if spec.is_seeded else []), *(state or []))
    if state is not None:
        state = state._replace(history=more.pop())
    dw = more.pop(0) if spec.has_dw else None
    return dx, dw, None, more.pop(0) if spec.has_bias else None, None, None, state


scaled.defvjp(_scaled_forward, _scaled_backward)


@functools.partial(jax.custom_vjp, nondiff_argnums=(0, 1))
def once(what, function, *arrays):
    """function(*arrays), whose derivatives are refused; `what` has no second ones."""
    return function(*arrays)


def _refuse(what, function, *arrays):
    raise NotImplementedError(f"{what}: second derivatives are those of ragged_dot and others with "
                              "recipes without scales, such as bf16")


once.defvjp(_refuse, _refuse)


# --------------------------------------------------------------------- the gradient of the weights


@functools.lru_cache(maxsize=None)
def _weights_gradient(spec, sizes, is_added):
    """From x, dy, the sum so far and seeds, if there are any."""
    scaling = spec.scaling

    def run(sizes, x, dy, *more):
        more = list(more)
        seeds = _seeds(more.pop()) if spec.is_seeded else (None,) * 3
        arrays = [[x], [dy]]
        for i, (of, values) in enumerate((("x", x), ("dy", dy))):
            count = getattr(scaling, of)
            if count > 1:
                made = quantize(values, of, spec, "columnwise", sizes, seeds[2 * i])
                arrays[i] = _pick(made, "columnwise", count)
        return (_wgrad(spec, sizes, x.shape[0], *arrays, *more),)

    kinds = ["rows", "rows"] + ["groups"] * is_added + ["flat"] * spec.is_seeded
    return batched(run, sizes, kinds, ["groups"])


def weights_gradient(spec, x, dy, added, bits, sizes):
    """[g, k, n], plus `added` if that is given."""
    more = [a for a in (added, bits) if a is not None]
    what = spec.what if added is None else "wgrad with accumulate has no derivative"
    return once(what, _weights_gradient(spec, tuple(sizes), added is not None),
                *sizes.values(), x, dy, *more)[0]
