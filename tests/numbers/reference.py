# SPDX-License-Identifier: Apache-2.0
"""Quantization to the bit, written a second time.

Nothing here comes from the specs, the generator or the library: narrow formats are those of
ml_dtypes, scales follow the definitions that TransformerEngine, OCP MX v1.0 and DeepSeek-V3
publish, all arithmetic is numpy's fp32, each operation rounded once. The library's output is
compared with it byte for byte by check.py.

A group's matrix is quantized with blocks along its columns: as it is for the rowwise tensor,
transposed for the columnwise one. How the parts of all groups are in memory is in memory.py.
"""
import dataclasses

import ml_dtypes
import numpy as np

F32 = np.float32
FLT_MAX = np.finfo(F32).max
SIGNS = np.array([1, 1, 1, -1, 1, -1, -1, -1, -1, -1, -1, 1, -1, 1, -1, -1], F32)


# ------------------------------------------------------------------------------------- elements


@dataclasses.dataclass(frozen=True)
class Element:
    dtype: object  # of ml_dtypes; integers are numpy's
    most: float
    nan: int  # the code that NaN becomes
    bits: int  # that a value takes in memory
    zero: int = 0  # the code that stands for 0, of integers without a sign


ELEMENTS = {
    "e4m3": Element(ml_dtypes.float8_e4m3fn, 448, 0x7F, 8),
    "e5m2": Element(ml_dtypes.float8_e5m2, 57344, 0x7F, 8),
    "e2m3": Element(ml_dtypes.float6_e2m3fn, 7.5, 0x1F, 8),
    "e3m2": Element(ml_dtypes.float6_e3m2fn, 28, 0x1F, 8),
    "e2m1": Element(ml_dtypes.float4_e2m1fn, 6, 0x7, 4),
    "i8": Element(np.int8, 127, 0, 8),
    "i4": Element(np.int8, 7, 0, 4),
    "u4": Element(np.uint8, 15, 8, 4, 8),
    "u4_stored": Element(np.uint8, 15, 0, 4),  # each block's zero point is next to its scale
    "u4_odd": Element(np.uint8, 15, 5, 4, 5),
    "u8_odd": Element(np.uint8, 255, 77, 8, 77),
}


def cast(name, x):
    """fp32 to codes, to nearest even, saturating."""
    element, nan = ELEMENTS[name], np.isnan(x)
    least = -element.zero if element.zero else -element.most
    finite = np.clip(np.where(nan, F32(0), x), F32(least), F32(element.most - element.zero))
    if name[0] in "iu":
        finite = np.rint(finite) + element.zero
    codes = finite.astype(element.dtype).view(np.uint8)
    if name == "i4":
        codes = codes & 15
    return np.where(nan, np.uint8(element.nan), codes)


def cast_by_chance(name, x, random):
    """As cast, but `random` (a byte for each) decides between the two neighbours.

    They are 256 steps apart, x is s whole steps from the one nearer to zero, and the other one is
    taken if s + random >= 256.
    """
    element = ELEMENTS[name]
    codes = np.arange(128 if element.bits == 8 else 8, dtype=np.uint8)
    if name in ("e2m3", "e3m2"):
        codes = codes[:32]
    magnitudes = codes.view(element.dtype).astype(np.float64)
    magnitudes = magnitudes[np.isfinite(magnitudes)]
    size = np.minimum(np.abs(np.where(np.isnan(x), F32(0), x)).astype(np.float64), element.most)
    below = np.searchsorted(magnitudes, size, side="right") - 1
    above = np.minimum(below + 1, len(magnitudes) - 1)
    gap = np.where(above > below, magnitudes[above] - magnitudes[below], 1)
    steps = np.floor((size - magnitudes[below]) / gap * 256).astype(np.int64)
    code = np.where(steps + random >= 256, above, below).astype(np.uint8)
    width = 8 if name[1] in "45" else 4 if name == "e2m1" else 6
    code |= (np.signbit(x).astype(np.uint8) << (width - 1)).astype(np.uint8)
    return np.where(np.isnan(x), np.uint8(element.nan), code)


def decode(name, codes):
    if name == "i4":
        codes = (codes ^ 8).astype(np.int8) - 8
    values = codes.astype(np.uint8).view(ELEMENTS[name].dtype).astype(F32)
    return values - F32(ELEMENTS[name].zero)


def pack(name, codes):
    """Codes [rows, columns] to bytes; of two in a byte the even one is in the low half."""
    if ELEMENTS[name].bits == 8:
        return codes
    if codes.shape[1] % 2:
        codes = np.pad(codes, ((0, 0), (0, 1)), constant_values=ELEMENTS[name].zero)
    return codes[:, 0::2] | codes[:, 1::2] << 4


def unpack(name, data):
    if ELEMENTS[name].bits == 8:
        return data
    return np.stack([data & 15, data >> 4], axis=-1).reshape(data.shape[0], -1)


# --------------------------------------------------------------------------------------- random


def philox(seed, counter):
    """Philox 4x32-10 of 64-bit counters: 16 bytes for each, a word's low byte first."""
    counter = np.asarray(counter, np.uint64)
    low, half = np.uint64(0xFFFFFFFF), np.uint64(32)
    c = [counter & low, counter >> half, np.zeros_like(counter), np.zeros_like(counter)]
    key = [seed & 0xFFFFFFFF, seed >> 32]
    for _ in range(10):
        one, two = np.uint64(0xD2511F53) * c[0], np.uint64(0xCD9E8D57) * c[2]
        c = [(two >> half) ^ c[1] ^ np.uint64(key[0]), two & low,
             (one >> half) ^ c[3] ^ np.uint64(key[1]), one & low]
        key = [(key[0] + 0x9E3779B9) & 0xFFFFFFFF, (key[1] + 0xBB67AE85) & 0xFFFFFFFF]
    return np.stack(c, axis=-1).astype("<u4").view(np.uint8)


# --------------------------------------------------------------------------------------- scales


def amax_of(x, axis=None):
    """The largest magnitude; NaN does not count, and nothing has 0."""
    return np.max(np.where(np.isnan(x), F32(0), np.abs(x)), axis=axis, initial=F32(0))


def floor_to_power(x):
    return (x.view(np.uint32) & np.uint32(0x7F800000)).view(F32)


def scale_f32(amax, element, limit, pow2=False, eps=0.0):
    """The common rule: what is stored, and what values are multiplied by."""
    amax = np.maximum(np.asarray(amax, F32), F32(eps))
    scale = F32(element.most) / amax
    scale = np.where(np.isinf(scale), F32(limit), scale).astype(F32)
    if pow2:
        scale = floor_to_power(scale)
    scale = np.where((amax == 0) | ~np.isfinite(amax), F32(1), scale).astype(F32)
    return F32(1) / scale, scale


def e8m0_up(v):
    """The exponent of the power of two at or above v."""
    bits = np.asarray(v, F32).view(np.uint32)
    e, f = bits >> 23, bits & 0x7FFFFF
    up = (f > 0) & (e != 0xFE) & ~((e == 0) & (f <= 0x400000))
    return np.where(np.isnan(v), 0xFF, np.where(np.isinf(v), 0xFE, e + up)).astype(np.uint8)


def e8m0_ocp(amax, element):
    """floor(log2(amax)) - emax, of the OCP standard."""
    emax = int(np.floor(np.log2(element.most)))
    _, exponent = np.frexp(np.where(np.isfinite(amax), amax, 1))
    e = np.clip(exponent.astype(np.int64) - 1 - emax + 127, 0, 0xFE)
    return np.where(amax == 0, 0, np.where(np.isinf(amax), 0xFE, e)).astype(np.uint8)


def e8m0_multiplier(e):
    exact = np.ldexp(np.float64(1), 127 - e.astype(np.int64)).astype(F32)
    return np.where(e == 0xFF, F32(np.nan), exact)


def scale_mx(amax, element, ocp):
    if ocp:
        e = e8m0_ocp(amax, element)
    else:
        e = e8m0_up(np.asarray(amax, F32) * F32(1 / element.most))
    return e, e8m0_multiplier(e)


SIXTEEN = {"bf16": ml_dtypes.bfloat16, "f16": np.float16}


def scale_16(amax, element, scale):
    """A scale of 16 bits, as its bits, and its inverse."""
    least = min(element.zero, element.most - element.zero) or element.most  # steps on both sides
    wanted = np.asarray(amax, F32) * F32(1 / least)
    if scale == "f16":
        wanted = np.minimum(wanted, F32(65504))
    stored = wanted.astype(SIXTEEN[scale])
    factor = np.minimum(F32(1) / stored.astype(F32), FLT_MAX)
    return stored.view(np.uint16), factor


def outer_nv(amax):
    """The global scale: what is stored, and what block scales are multiplied by."""
    amax = np.asarray(amax, F32)
    scale, special = np.minimum(F32(2688) / amax, FLT_MAX), (amax == 0) | np.isinf(amax)
    stored = np.where(special, F32(1), amax / F32(2688))
    return stored.astype(F32), np.where(special, F32(1), scale).astype(F32)


def scale_nv(amax, outer):
    b = cast("e4m3", np.asarray(amax, F32) * (outer * F32(1 / 6)))
    return b, np.minimum(F32(1) / (decode("e4m3", b) * (F32(1) / outer)), FLT_MAX)


# -------------------------------------------------------------------------------------- recipes


@dataclasses.dataclass(frozen=True)
class Recipe:
    """How one tensor of a layer is quantized."""

    element: str
    scale: str  # "f32", "bf16", "f16", "e8m0", or "e4m3" below a second level
    block: object  # (rows, length), "row", "group", "tensor"
    storage: str = "plain"  # of STORAGES
    pow2: bool = False
    ocp: bool = False
    limit: str = "f32"  # an infinite scale becomes fp32's largest number, or the input type's
    hadamard: bool = False  # for the columnwise tensor
    zeros: bool = False  # zero points in the upper half of words with scales
    chance: bool = False
    near: bool = False  # no scale of the rowwise tensor is below 2^-14 of the largest of 128 values'


def _alike(**fields):
    return {of: Recipe(**fields) for of in ("x", "w", "dy")}


def _fp8_block(pow2):
    x = Recipe("e4m3", "f32", (1, 128), "mn", pow2, limit="input")
    return {"x": x, "w": dataclasses.replace(x, block=(128, 128), storage="rows4"), "dy": x}


def _fp8_tensor(block):
    recipes = _alike(element="e4m3", scale="f32", block=block)
    return recipes | {"dy": dataclasses.replace(recipes["dy"], element="e5m2")}


RECIPES = {
    "fp8_tensor": _fp8_tensor("group"),
    "fp8_tensor_delayed": _fp8_tensor("tensor"),
    "fp8_row": _alike(element="e4m3", scale="f32", block="row"),
    "fp8_block": _fp8_block(pow2=True),
    "fp8_block_any": _fp8_block(pow2=False),
    "mxfp8": _alike(element="e4m3", scale="e8m0", block=(1, 32)),
    "mxfp8_ocp": _alike(element="e4m3", scale="e8m0", block=(1, 32), ocp=True),
    "mxfp4": _alike(element="e2m1", scale="e8m0", block=(1, 32)),
    "nvfp4": {
        "x": Recipe("e2m1", "e4m3", (1, 16), hadamard=True),
        "w": Recipe("e2m1", "e4m3", (16, 16)),
        "dy": Recipe("e2m1", "e4m3", (1, 16), hadamard=True, chance=True),
    },
    "w4a16_int4": {"w": Recipe("i4", "f16", (1, 128))},
    "w4a16_int4_zeros": {"w": Recipe("u4_stored", "f16", (1, 128), zeros=True)},
    "w4a16_int4_fp16": {"w": Recipe("i4", "f16", (1, 128))},
    "w4a16_int4_zeros_fp16": {"w": Recipe("u4_stored", "f16", (1, 128), zeros=True)},
    "w4a16_mxfp4": {"w": Recipe("e2m1", "e8m0", (1, 32))},
    "w4a8_mxfp4": {"x": Recipe("e4m3", "f32", "row"),
                   "w": Recipe("e2m1", "e8m0", (1, 32), near=True)},
    "w4a16_nvfp4": {"w": Recipe("e2m1", "e4m3", (1, 16))},
    "w8a16_fp8_block": {"w": Recipe("e4m3", "f32", (128, 128), limit="input")},
    "w8a8_int8": {of: Recipe("i8", "f32", "row") for of in ("x", "w")},
    # Those of recipes/, which are not shipped.
    "mxfp8_tiles": _alike(element="e4m3", scale="e8m0", block=(1, 32), storage="tiles"),
    "nvfp4_tiles": _alike(element="e2m1", scale="e4m3", block=(1, 16), storage="tiles"),
    "tiles_of_few": {
        "x": Recipe("e2m1", "e8m0", (16, 16), "tiles"),
        "w": Recipe("e4m3", "e8m0", (1, 64), "tiles"),
        "dy": Recipe("e4m3", "e8m0", (1, 128), "tiles"),
    },
    "int8": _alike(element="i8", scale="f32", block=(1, 64)),
    "integers": {
        "x": Recipe("u4_odd", "bf16", (32, 32), "tiles"),
        "w": Recipe("i4", "f16", (1, 64)),
        "dy": Recipe("u8_odd", "bf16", (1, 16), "mn"),
    },
    "w4a16_around_8": {"w": Recipe("u4", "bf16", (1, 128))},
    "mxfp6": {
        "x": Recipe("e2m3", "e8m0", (1, 32), ocp=True),
        "w": Recipe("e2m3", "e8m0", (32, 32), ocp=True),
        "dy": Recipe("e3m2", "e8m0", (1, 32), ocp=True, chance=True),
    },
}


# ----------------------------------------------------------------------------------------- copies


def hadamard(x):
    """Along the last axis, a multiple of 16 long: signs, butterflies, a quarter, bf16."""
    v = (x.reshape(-1, 16) * SIGNS).astype(F32)
    for distance in (1, 2, 4, 8):
        pairs = v.reshape(-1, 8 // distance, 2, distance)
        a, b = pairs[:, :, 0], pairs[:, :, 1]
        with np.errstate(all="ignore"):
            v = np.stack([a + b, a - b], axis=2).reshape(-1, 16)
    v = v * F32(0.25)
    return v.astype(ml_dtypes.bfloat16).astype(F32).reshape(x.shape)


def block_amax(x, rows, length):
    """[ceil(x rows / rows), ceil(x columns / length)]; the last ones cover what is left."""
    down, along = -(-x.shape[0] // rows), -(-x.shape[1] // length)
    padded = np.zeros((down * rows, along * length), F32)
    padded[: x.shape[0], : x.shape[1]] = np.where(np.isnan(x), F32(0), np.abs(x))
    return padded.reshape(down, rows, along, length).max(axis=(1, 3), initial=F32(0))


def spread(blocks, shape, rows, length):
    """Each element its block's."""
    return np.repeat(np.repeat(blocks, rows, 0), length, 1)[: shape[0], : shape[1]]


def block_of(recipe, shape):
    """Rows and length of a block in a group's matrix; never 0."""
    rows, length = max(shape[0], 1), max(shape[1], 1)
    if recipe.block == "row":
        return 1, length
    return (rows, length) if isinstance(recipe.block, str) else recipe.block


def limit_of(recipe, dtype):
    return FLT_MAX if recipe.limit == "f32" else F32(ml_dtypes.finfo(dtype).max)


def rule(recipe, amax, whole, dtype):
    """Stored scales, factors, and the second level's scale, of blocks whose amax is given."""
    element = ELEMENTS[recipe.element]
    if recipe.scale == "e8m0":
        return *scale_mx(amax, element, recipe.ocp), None
    if recipe.scale == "e4m3":
        stored, outer = outer_nv(whole)
        return *scale_nv(amax, outer), stored
    if recipe.scale in SIXTEEN:
        return *scale_16(amax, element, recipe.scale), None
    return *scale_f32(amax, element, limit_of(recipe, dtype), recipe.pow2), None


def quantize_with_zeros(recipe, x):
    """Codes, and words of scales and zero points: 0 and the values of a block fill the codes."""
    below, above = (block_amax(np.where(side, x, F32(0)), *recipe.block) for side in (x < 0, x > 0))
    scales, factor = scale_16(below + above, ELEMENTS[recipe.element], recipe.scale)
    zeros = np.rint(np.minimum(below * factor, F32(15)))
    zero = spread(zeros, x.shape, *recipe.block)
    scaled = np.where(np.isnan(x), F32(0), x) * spread(factor, x.shape, *recipe.block)
    codes = np.rint(np.clip(scaled, -zero, 15 - zero)) + zero
    return codes.astype(np.uint8), scales | zeros.astype(np.uint32) << 16


def quantize_group(recipe, x, dtype, random=None, delayed=None):
    """One group's matrix, blocks along its columns: codes, scales by block, second-level scale.

    `dtype` is the type that x had, `random` a byte for each value where chance rounds, `delayed`
    the factor of delayed scaling.
    """
    rows, length = block_of(recipe, x.shape)
    if recipe.zeros:
        return *quantize_with_zeros(recipe, x), None
    if delayed is None:
        amax = block_amax(x, rows, length)
        if recipe.near:
            most = spread(block_amax(x, 1, 128), amax.shape, 1, 128 // length)
            amax = np.maximum(amax, most * F32(2.0**-14))
        scales, factor, outer = rule(recipe, amax, amax_of(x), dtype)
    else:
        factor = np.full((-(-x.shape[0] // rows), -(-x.shape[1] // length)), delayed, F32)
        scales, outer = F32(1) / factor, None
    scaled = x * spread(factor, x.shape, rows, length)
    if recipe.chance:
        return cast_by_chance(recipe.element, scaled, random), scales, outer
    return cast(recipe.element, scaled), scales, outer


def random_bytes(random, lines, pitch, first, count):
    """A byte for each of the values first .. first + count of some lines of a stored copy.

    Its values are numbered from the first one on, `pitch` to a line; 16 share a counter.
    """
    seed, offset = random
    place = np.asarray(lines)[:, None] * pitch + first + np.arange(count)[None, :]
    data = philox(seed, np.uint64(offset) + (place // 16).astype(np.uint64))
    return np.take_along_axis(data, place[..., None] % 16, axis=-1)[..., 0].astype(np.int64)


def turn(recipe, x):
    """A group's matrix as the columnwise tensor has it, transformed or not."""
    turned = np.ascontiguousarray(x.T)
    if not recipe.hadamard:
        return turned
    return hadamard(np.pad(turned, ((0, 0), (0, -turned.shape[1] % 16))))


# ---------------------------------------------------------------------------------- back to values


def dequantize_group(recipe, codes, scales, outer=None):
    """One group's matrix of codes, its scales by block. One rounding for each factor."""
    rows, length = block_of(recipe, codes.shape)
    codes = decode(recipe.element, codes)
    if recipe.zeros:
        codes = codes - spread((scales >> 16).astype(F32), codes.shape, rows, length)
    if recipe.scale == "e8m0":
        scales = np.ldexp(np.float64(1), scales.astype(np.int64) - 127).astype(F32)
    elif recipe.scale == "e4m3":
        scales = decode("e4m3", scales)
    elif recipe.scale in SIXTEEN:
        scales = scales.astype(np.uint16).view(SIXTEEN[recipe.scale]).astype(F32)
    value = codes * spread(scales, codes.shape, rows, length)
    return (value if outer is None else value * outer).astype(F32)


def dbias(x):
    """The sum over a group's rows: of 32 in order, then of those sums."""
    total = np.zeros(x.shape[1], F32)
    for first in range(0, len(x), 32):
        part = x[first]
        for row in x[first + 1 : first + 32]:
            part = part + row
        total = total + part if first else part
    return total


def next_scale(history, scale, most, margin=0, latest=False):
    """Delayed scaling: the next factor, and the history, newest last, with room for the next."""
    amax = history[0] if latest else history.max()
    if np.isfinite(amax) and amax > 0:
        with np.errstate(over="ignore"):
            scale = np.minimum(F32(most / 2.0**margin) / F32(amax), FLT_MAX)
    return F32(scale), np.concatenate([np.zeros(1, F32), history[2:], history[:1]])
