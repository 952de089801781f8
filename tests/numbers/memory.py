# SPDX-License-Identifier: Apache-2.0
"""The library's layout of reference.py's results: whole buffers, to be compared byte for byte.

A buffer begins as canaries. Data of groups are written over them, its padding of zeros
included; everything else must stay.

    tokens   x and dy: one matrix [m, k] whose rows are divided among the groups
    weights  w: a matrix [m, k] for each group
"""
import dataclasses

import numpy as np

import reference

CANARY = 0xA5

# Order of a matrix of scales, and multiples to which its rows and columns are padded.
STORAGES = {
    "plain": ("rows", 1, 1),
    "rows4": ("rows", 1, 4),
    "mn": ("columns", 4, 1),
    "tiles": ("tiles", 128, 4),
}


def ceil_to(length, multiple):
    return -(-length // multiple) * multiple


def tokens_bound(m, groups):
    """Columns of the columnwise tensor: each group's begin at a multiple of 128."""
    return (m + 127 * groups) // 128 * 128


def row_bytes(element, count):
    """Bytes of one row, padded to 16."""
    return ceil_to(-(-count * reference.ELEMENTS[element].bits // 8), 16)


@dataclasses.dataclass
class Copy:
    data: np.ndarray  # bytes
    sf: np.ndarray
    outer: np.ndarray  # fp32, as bytes


def canaries(count):
    return np.full(count, CANARY, np.uint8)


def item(recipe):
    if recipe.zeros:
        return np.dtype("<u4")
    return np.dtype({"f32": "<f4", "bf16": "<u2", "f16": "<u2"}.get(recipe.scale, "u1"))


def put(buffer, dtype, at, values):
    """Values of a type at element indices."""
    whole = buffer[: len(buffer) // dtype.itemsize * dtype.itemsize].view(dtype)
    whole[at] = values


def at_tiles(i, j, columns):
    """Blackwell's tiles of 128 rows by 4 scales; the matrix has `columns`, a multiple of 4."""
    return (i // 128 * (columns // 4) + j // 4) * 512 + i % 32 * 16 + i % 128 // 32 * 4 + j % 4


class Scales:
    """A matrix of scales in memory: all groups' in one, or one for each."""

    def __init__(self, recipe, buffer, rows, columns):
        self.order, pad_rows, pad_columns = STORAGES[recipe.storage]
        self.dtype, self.buffer = item(recipe), buffer
        self.rows, self.columns = ceil_to(rows, pad_rows), ceil_to(columns, pad_columns)

    def size(self):
        return self.rows * self.columns

    def put(self, base, first_row, first_column, values):
        i = first_row + np.arange(values.shape[0])[:, None]
        j = first_column + np.arange(values.shape[1])[None, :]
        if self.order == "rows":
            at = i * self.columns + j
        elif self.order == "columns":
            at = j * self.rows + i
        else:
            at = at_tiles(i, j, self.columns)
        put(self.buffer, self.dtype, base + at, values)


def padded(values, rows, columns, fill=0):
    out = np.full((rows, columns), fill, values.dtype)
    out[: values.shape[0], : values.shape[1]] = values
    return out


class Layout:
    """One quantization: sizes, and each group's position."""

    def __init__(self, name, of, sizes, m, k):
        self.recipe = reference.RECIPES[name][of]
        self.weights = of == "w"
        self.sizes, self.m, self.k, self.groups = sizes, m, k, len(sizes)
        self.starts = np.concatenate([[0], np.cumsum(sizes)]).astype(int)
        tiles = [-(-size // 128) for size in sizes]
        self.tiles = np.concatenate([[0], np.cumsum(tiles)]).astype(int)  # before each group
        element = self.recipe.element
        self.bits = reference.ELEMENTS[element].bits
        self.row_pitch = row_bytes(element, k)
        self.column_pitch = (row_bytes(element, m) if self.weights
                             else tokens_bound(m, self.groups) * self.bits // 8)

    # ------------------------------------------------------------------------------- values

    def pitch(self, side):
        """In values."""
        return (self.row_pitch if side == "row" else self.column_pitch) * 8 // self.bits

    def lines(self, side, g):
        """A group in the tensor: its columns, and its first value in each."""
        if side == "row":
            first = g * self.m if self.weights else self.starts[g]
            return first + np.arange(self.sizes[g]), 0
        if self.weights:
            return g * self.k + np.arange(self.k), 0
        return np.arange(self.k), self.tiles[g] * 128

    def put_values(self, side, data, g, codes):
        """Codes [lines, values] with zeros up to where the group's part of a line ends."""
        lines, first = self.lines(side, g)
        pitch = self.row_pitch if side == "row" else self.column_pitch
        whole = data.reshape(-1, pitch)
        begin, end = first * self.bits // 8, pitch
        if side == "column" and not self.weights:
            end = (first + ceil_to(self.sizes[g], 128)) * self.bits // 8
        packed = reference.pack(self.recipe.element, codes)
        zero = reference.ELEMENTS[self.recipe.element].zero * (17 if self.bits == 4 else 1)
        whole[lines, begin:end] = padded(packed, len(lines), end - begin, zero)

    def get_values(self, side, data, g, count):
        lines, first = self.lines(side, g)
        whole = data.reshape(-1, self.row_pitch if side == "row" else self.column_pitch)
        return reference.unpack(self.recipe.element, whole[lines])[:, first : first + count]

    # ------------------------------------------------------------------------------- scales

    def put_scales(self, side, buffer, g, scales):
        """A group's scales [rows of blocks, blocks], padding included."""
        block, dtype = self.recipe.block, item(self.recipe)
        if self.recipe.storage == "tiles":  # hardware's: a scale for each line of a block
            scales = np.repeat(scales, block[0], 0)[: len(self.lines(side, g)[0])]
        if block == "tensor":
            put(buffer, dtype, np.zeros(scales.shape, int), scales)
        elif block == "group":
            put(buffer, dtype, np.full(scales.shape, g), scales)
        elif block == "row":
            lines = self.lines(side, g)[0] + (0 if side == "row" or self.weights else g * self.k)
            put(buffer, dtype, lines[: len(scales), None], scales)
        elif self.weights:
            matrix = Scales(self.recipe, buffer, *scales.shape)
            full = padded(scales, matrix.rows, matrix.columns)
            matrix.put(g * matrix.size(), 0, 0, full)
        elif side == "row":
            self.put_row_scales(buffer, g, scales)
        else:
            self.put_column_scales(buffer, g, scales)

    def put_row_scales(self, buffer, g, scales):
        """Tokens: one matrix for all, but tiles are padded group by group."""
        if self.recipe.storage == "tiles":
            matrix = Scales(self.recipe, buffer, *scales.shape)
            full = padded(scales, matrix.rows, matrix.columns)
            matrix.put(self.tiles[g] * 128 * matrix.columns, 0, 0, full)
        else:
            matrix = Scales(self.recipe, buffer, self.m, scales.shape[1])
            matrix.put(0, self.starts[g], 0, padded(scales, len(scales), matrix.columns))

    def put_column_scales(self, buffer, g, scales):
        """Tokens: blocks of the group's tiles, those past its end zero."""
        each = 128 // self.recipe.block[1]  # blocks in a tile's 128 tokens
        first, count = self.tiles[g] * each, (self.tiles[g + 1] - self.tiles[g]) * each
        if self.recipe.storage == "plain":
            matrix = Scales(self.recipe, buffer, self.k, tokens_bound(self.m, self.groups)
                            // self.recipe.block[1])
            matrix.put(0, 0, first, padded(scales, len(scales), count))
        else:
            matrix = Scales(self.recipe, buffer, len(scales), count)
            each = ceil_to(each, STORAGES[self.recipe.storage][2])
            full = padded(scales, matrix.rows, matrix.columns)
            matrix.put(matrix.rows * self.tiles[g] * each, 0, 0, full)


def quantize(name, of, x, sizes, dtype, nbytes, random=(0, 0), delayed=None):
    """Copies of x [rows, k], values of `dtype` in fp32; for w the matrices back to back.

    `nbytes` has the sizes of the buffers, (data, sf, outer), by "row" and "column". Returns the
    layout, the buffers, and each group's codes, scales and second-level scale, all by side.
    """
    layout = Layout(name, of, sizes, sizes[0] if of == "w" else len(x), x.shape[1])
    copies = {side: Copy(*map(canaries, nbytes[side])) for side in nbytes}
    made = {side: [] for side in nbytes}
    with np.errstate(all="ignore"):
        for g, size in enumerate(sizes):
            part = x[layout.starts[g] : layout.starts[g] + size]
            for side, copy in copies.items():
                put_group = quantize_group if part.size else quantize_nothing
                made[side].append(put_group(layout, side, copy, g, part, dtype, random, delayed))
    return layout, copies, made


def quantize_group(layout, side, copy, g, part, dtype, random, delayed):
    recipe = layout.recipe
    matrix = part if side == "row" else reference.turn(recipe, part)
    if side == "column":
        recipe = dataclasses.replace(recipe, near=False)
    chosen = None
    if recipe.chance:
        lines, first = layout.lines(side, g)
        chosen = reference.random_bytes(random, lines, layout.pitch(side), first, matrix.shape[1])
    codes, scales, outer = reference.quantize_group(recipe, matrix, dtype, chosen, delayed)
    if recipe.zeros:  # zeros up to a row's end have its last block's code
        more = layout.pitch(side) - codes.shape[1]
        ends = np.repeat((scales[:, -1:] >> 16).astype(np.uint8), more, 1)
        layout.put_values(side, copy.data, g, np.concatenate([codes, ends], 1))
    else:
        layout.put_values(side, copy.data, g, codes)
    layout.put_scales(side, copy.sf, g, scales)
    if outer is not None:
        put(copy.outer, np.dtype("<f4"), g, outer)
    return codes, scales, outer


def quantize_nothing(layout, side, copy, g, part, dtype, _random, _delayed):
    """A group without rows has an amax of 0; where a scale is a group's own, that gives one."""
    recipe = layout.recipe
    own = recipe.block == "group" or recipe.block == "row" and side == "column"
    amax = np.zeros((part.shape[1] if recipe.block == "row" else 1, 1), np.float32)
    scales, _, outer = reference.rule(recipe, amax, np.float32(0), dtype)
    if own:
        layout.put_scales(side, copy.sf, g, scales)
    if outer is not None:
        put(copy.outer, np.dtype("<f4"), g, outer)
    return None
