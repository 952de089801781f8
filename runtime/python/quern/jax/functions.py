# SPDX-License-Identifier: Apache-2.0
"""ragged_dot and ragged_dot_general, with the signatures of jax.lax."""

import jax
import jax.numpy as jnp
import numpy as np

from quern.jax import _checks, products
from quern.jax._call import WORDS, vary_alike
from quern.jax._recipes import check_gradients, check_tokens, recipe_for, scaling_of
from quern.jax.lora import adapted, check
from quern.jax.quantized import Quantized, arrays_of, check_quantized, seeds
from quern.jax.scaling import check_state, no_state, vary_with


def ragged_dot(lhs, rhs, group_sizes, precision=None, preferred_element_type=None,
               group_offset=None, out_sharding=None, *, recipe=None, outside="zero", key=None,
               quantized=None, state=None, layout="kn", lora=None, lora_scaling=1.0):
    """jax.lax.ragged_dot: [m, k], [g, k, n] to [m, n], whose rows i of group e are
    lhs[i] @ rhs[e].

        rhs           values, or a Quantized of them, which has no gradient. If the recipe packs
                      weights (w4a16_.., w8a16_..) the gradient of lhs reads the same tensor as the
                      product, columnwise or in the layout nk rowwise
        quantized     a Quantized of rhs, so that its values are not quantized again; they have
                      their gradient
        group_sizes   [g] integers; with group_offset the sizes of all groups, of which rhs has
                      those from group_offset on
        recipe        how values are cast before they are multiplied: default as they are
        outside       "zero": zeros in rows outside of all groups, also in the gradient of lhs;
                      None: undefined
        key           jax.random's, of recipes that round at random
        state         of scaling_state(recipe, 3), for recipes with delayed scaling. Its gradient is
                      no derivative but the state after this call: use each state once
        layout        "nk": rhs is [g, n, k], as checkpoints and packed weights have it
        lora          (a, b): adapters [g, k, rank] and [g, rank, n], or [g, rank, k] and
                      [g, n, rank] in the layout nk, of up to 256 ranks and lhs' type, next to rhs
                      in 16 bits or packed: lora_scaling, a number, times lhs[i] @ a[e] @ b[e] is
                      added. All of lhs, a, b and values of rhs have gradients, once

    float32 needs a recipe: NotImplementedError, as for a precision other than the default.
    """
    if out_sharding is not None:
        raise NotImplementedError("out_sharding: call quern.jax inside of jax.shard_map")
    _checks.precision(precision)
    _checks.word("layout", layout, ("kn", "nk"))
    return linear(lhs, rhs, group_sizes, ("lhs", "rhs", "group_sizes"), recipe=recipe,
                  out_dtype=preferred_element_type, group_offset=group_offset, outside=outside,
                  key=key, quantized=quantized, state=state, layout=layout, lora=lora,
                  lora_scaling=lora_scaling)


def linear(x, w, sizes, names, *, recipe=None, out_dtype=None, group_offset=None, bias=None,
           outside=None, key=None, quantized=None, state=None, layout="kn", lora=None,
           lora_scaling=1.0):
    """y of x [m, k] and w [g, k, n], or [g, n, k] in the layout nk; `names` are those of the
    caller's arguments."""
    x = _checks.values(names[0], x, 2)
    lora_scaling = _checks.number("lora_scaling", lora_scaling)
    if isinstance(w, Quantized):
        w, quantized = None, w
    recipe = recipe_for(names[0], x, recipe, quantized)
    scaling = scaling_of(recipe)
    state = check_state(recipe, state, 3)
    check_tokens(names[0], x, recipe, scaling)
    if w is not None or quantized is None:
        w = _checks.values(names[1], w, 3, scaling.type if scaling.w == 1 else None)
    copies = products.copies_of(layout, scaling)
    like = _like(names[1], w, quantized, recipe)
    g, k, n = like.shape if layout == "kn" else (like.shape[i] for i in (0, 2, 1))
    if x.shape[1] != k:
        raise ValueError(f"{names[0]} has the shape {list(x.shape)} and {names[1]} "
                         f"{list(like.shape)}: {k} columns of {names[0]} are expected")
    out = _checks.dtype("preferred_element_type", x.dtype if out_dtype is None else out_dtype)
    _checks.word("outside", outside, (None, "zero"))
    word = "" if outside is None else " outside=zero"
    sizes = sizes_of(names[2], sizes, g, group_offset)
    if bias is not None:
        bias = _checks.f32("bias", bias, (g, n))
    arrays = None if quantized is None else arrays_of(names[1], quantized, copies)
    if lora is not None:
        pair = check("lora", lora, names, (g, k, n), recipe, scaling, layout)
        return adapted(x, w, arrays, pair, lora_scaling, bias, sizes, (g, k, n), recipe=recipe,
                       scaling=scaling, out=out, layout=layout, outside=word)
    x, w, arrays, bias, sizes, state = vary_with(state, x, w, arrays, bias, sizes)
    if scaling.is_plain:
        p = products.Product(recipe, WORDS[out.name], products.X,
                             products.W if layout == "kn" else products.W_T, word)
        return products.multiply(p, x, w, bias, sizes)
    bits = seeds(key, recipe, scaling)
    spec = products.Spec(recipe, scaling, WORDS[out.name], WORDS[x.dtype.name],
                         WORDS[like.dtype.name], k, n, word, bias is not None, bits is not None,
                         quantized is not None, w is not None, layout)
    return products.scaled(spec, x, w, arrays, bias, bits, sizes, state)


def ragged_wgrad(x, dy, sizes, names, *, recipe=None, out_dtype=None, group_offset=None, key=None,
                 accumulate=None):
    """x.T @ dy of each group's rows, [g, k, n]; added to `accumulate`, in its memory if XLA may."""
    x = _checks.values(names[0], x, 2)
    recipe = recipe_for(names[0], x, recipe)
    scaling = scaling_of(recipe)
    no_state(recipe)
    check_gradients(recipe, scaling)
    _checks.values(names[0], x, 2, scaling.type if scaling.x == 1 else None)
    dy = _checks.values(names[1], dy, 2, scaling.type if scaling.dy == 1 else None)
    if x.shape[0] != dy.shape[0]:
        raise ValueError(f"{names[0]} has {x.shape[0]} rows and {names[1]} {dy.shape[0]}: as many "
                         "are expected")
    groups = (_checks.counts(names[2], sizes) if accumulate is None else accumulate).shape[0]
    shape = groups, x.shape[1], dy.shape[1]
    out = _checks.dtype("preferred_element_type", x.dtype if out_dtype is None else out_dtype)
    sizes = sizes_of(names[2], sizes, groups, group_offset)
    if accumulate is not None:
        accumulate = _checks.values("accumulate", accumulate, 3)
        _checks.shaped("accumulate", accumulate, shape)
        if out_dtype is not None and out != accumulate.dtype:
            raise ValueError(f"preferred_element_type is {out}: that of accumulate, "
                             f"{accumulate.dtype}, is expected")
        out = accumulate.dtype
    x, dy, accumulate, sizes = vary_alike((x, dy, accumulate, sizes))
    if scaling.is_plain and accumulate is None:
        p = products.Product(recipe, WORDS[out.name], products.X_T, products.X_T)
        return products.multiply(p, x, dy, None, sizes)
    bits = seeds(key, recipe, scaling)
    spec = products.Spec(recipe, scaling, "", "", WORDS[out.name], x.shape[1], dy.shape[1],
                         is_seeded=bits is not None)
    return products.weights_gradient(spec, x, dy, accumulate, bits, sizes)


def wgrad(x, dy, group_sizes, *, recipe=None, accumulate=None, preferred_element_type=None,
          group_offset=None, key=None):
    """[g, k, n], x.T @ dy of the rows of each group: x [m, k], dy [m, n].

        accumulate    [g, k, n], f32 or a type that the recipe writes: the sum so far. The result
                      has its memory if the caller donates it
        group_offset  as in ragged_dot; accumulate then says how many groups there are

    Differentiable without accumulate, if the recipe has no scales.
    """
    return ragged_wgrad(x, dy, group_sizes, ("x", "dy", "group_sizes"), recipe=recipe,
                        accumulate=accumulate, out_dtype=preferred_element_type,
                        group_offset=group_offset, key=key)


def _like(name, w, quantized, recipe):
    """The weights or their Quantized: both have shape and dtype."""
    if quantized is None:
        return w
    check_quantized("quantized", quantized, recipe, "w")
    if w is not None and (w.shape, w.dtype) != (quantized.shape, quantized.dtype):
        raise ValueError(f"quantized is of {quantized.dtype}{list(quantized.shape)}: {name} is "
                         f"{w.dtype}{list(w.shape)}")
    return quantized


def sizes_of(name, sizes, groups, offset=None):
    """{name of a line's operand: array}."""
    if offset is None:
        return {"lengths": _checks.integers(name, sizes, (groups,))}
    sizes = _checks.numbers(name, sizes)
    given, offset = offset, _checks.numbers("group_offset", offset)
    if offset.size != 1:
        raise ValueError(f"group_offset has the shape {list(offset.shape)}: one number is expected")
    if sizes.ndim != 1 or sizes.shape[0] < groups:
        raise ValueError(f"{name} has the shape {list(sizes.shape)}: at least {groups} sizes are "
                         "expected, those of all groups")
    if not isinstance(given, jax.Array):
        _checks.integer("group_offset", np.asarray(given).item(), 0, sizes.shape[0] - groups)
    sizes, offset = vary_alike((sizes, offset.reshape(()).astype(sizes.dtype)))
    ends = jnp.cumsum(sizes, dtype=sizes.dtype)
    starts = jnp.concatenate([jnp.zeros_like(ends[:1]), ends])
    last = sizes.shape[0]  # groups before the first and after the last one have no rows
    places = jnp.clip(offset, -groups, last) + jnp.arange(groups + 1, dtype=sizes.dtype)
    return {"starts": starts[jnp.clip(places, 0, last)]}
