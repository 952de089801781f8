# SPDX-License-Identifier: Apache-2.0
"""The library's casts, byte for byte against reference.py.

    python3 tests/numbers/check.py [build/lib/libquern.so]

Prints a line for each recipe and tensor, as TAP. Needs numpy and ml_dtypes, else it is skipped.
"""
import functools
import os
import sys
import tempfile
import traceback

try:
    import ml_dtypes
    import numpy as np
except ImportError as error:
    print("1..1\nskip: needs Python's " + str(error.name) + "\nok 1 - numbers # SKIP")
    sys.exit(0)

sys.path.insert(1, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../bench"))
import memory
import reference
from libquern import HOST, Failed, Library, Plan

TYPES = {
    "bf16": np.dtype(ml_dtypes.bfloat16),
    "f16": np.dtype(np.float16),
    "f32": np.dtype(np.float32),
}
# Rows of each group, rows past the last group, features.
TOKENS = [
    ([0, 1, 7, 63, 64, 65], 3, 256),
    ([127, 128, 129, 0], 0, 96),
    ([33], 0, 1),
    ([40, 200], 5, 173),
    ([100, 100, 129, 3], 0, 72),
    ([0, 0], 2, 64),
]
WEIGHTS = [([96] * 3, 0, 160), ([1], 0, 40), ([129] * 2, 0, 257)]
RANDOM = np.array([0x1234567890ABCDEF, 0x89ABCDEF01234567], np.uint64)
FP8 = 448.0


def ordinary(rng, shape):
    """Values whose scale differs from block to block."""
    scale = np.exp2(rng.integers(-12, 12, (shape[0], 1)) + rng.integers(-3, 3, (1, shape[1])))
    return rng.standard_normal(shape) * scale


def special(rng, shape):
    """Blocks of each kind that a scale rule tells apart; 16 columns have one kind."""
    out = np.zeros(shape)
    kinds = [
        0.0, 1.0, np.nextafter(np.float32(1), np.float32(2)), np.nextafter(np.float32(1), 0),
        FP8 * 2.0**5, np.nextafter(np.float32(FP8 * 2.0**5), np.float32(np.inf)),
        FP8 * (1 + 2.0**-7), FP8 * (1 + 2.0**-10), 6 * 2.0**-20, 2.0**-126, 2.0**-127, 2.0**-133,
        1e-40, np.nextafter(np.float32(2.0**-118), 0), np.nextafter(np.float32(2.0**-124), 0),
        2.0**-149, 2.0**127, 3e38, np.inf, -np.inf, np.nan, 2.0**-24, 65504.0, 57344.0,
    ]
    for row in range(shape[0]):
        for first in range(0, shape[1], 16):
            kind = kinds[rng.integers(len(kinds))] if row % 3 else kinds[first // 16 % len(kinds)]
            part = rng.uniform(-1, 1, min(16, shape[1] - first))
            with np.errstate(all="ignore"):
                part = np.where(np.abs(part) < 0.7, part * kind if np.isfinite(kind) else part, 0)
            part[rng.integers(len(part))] = kind * rng.choice([-1, 1])
            out[row, first : first + 16] = part
    return out


KINDS = {"ordinary": ordinary, "special": special}
MIX = [("bf16", "ordinary"), ("bf16", "special"), ("f16", "special"), ("f32", "special")]


@functools.lru_cache(None)
def make(kind, dtype, shape):
    """Values of the type, and the same in fp32."""
    rng = np.random.default_rng([*shape, dtype.itemsize])
    with np.errstate(all="ignore"):
        typed = KINDS[kind](rng, shape).astype(np.float32).astype(dtype)
    return typed, typed.astype(np.float32)


class Mismatch(Exception):
    pass


def compare(what, got, expected):
    if got.shape != expected.shape:
        raise Mismatch(f"{what}: {len(got)} bytes, expected {len(expected)}")
    wrong = np.flatnonzero(got != expected)
    if len(wrong):
        at = wrong[0]
        raise Mismatch(f"{what}: {len(wrong)} of {len(got)} bytes differ, the first at {at}: "
                       f"{got[at]:#x} instead of {expected[at]:#x}")


def same_numbers(what, got, expected):
    """Floats to the bit; any NaN is as good as another."""
    a, b = got.view(np.uint32), expected.view(np.uint32)
    wrong = np.flatnonzero((a != b) & ~(np.isnan(got) & np.isnan(expected)))
    if len(wrong):
        at = wrong[0]
        raise Mismatch(f"{what}: {len(wrong)} of {len(a)} differ, the first at {at}: {got[at]!r} "
                       f"instead of {expected[at]!r}")


# The parts of a copy, and what the library adds to a tensor's name for each.
PARTS = {"data": "", "sf": ".sf", "outer": ".global"}


def give(plan, side, copy):
    """The addresses of a copy, for a call."""
    plan.bind(**{f"{side}wise{end}": getattr(copy, part).ctypes.data
                 for part, end in PARTS.items() if len(getattr(copy, part))})


def make_room(plan, side):
    """A copy of canaries, for a call."""
    size = {part: plan.operands.get(f"{side}wise{end}") for part, end in PARTS.items()}
    copy = memory.Copy(*[memory.canaries(o.bytes if o else 0) for o in size.values()])
    give(plan, side, copy)
    return copy


class Case:
    """One quantization: a recipe's tensor, a shape, a type, a kind of values."""

    def __init__(self, library, recipe, of, shape, in_type, kind):
        sizes, more, self.k = shape
        self.library, self.recipe, self.of, self.sizes = library, recipe, of, sizes
        self.weights, self.dtype = of == "w", TYPES[in_type]
        self.m = sizes[0] if self.weights else sum(sizes) + more
        rows = self.m * len(sizes) if self.weights else self.m
        self.typed, self.x = make(kind, self.dtype, (rows, self.k))
        self.delayed = np.array([37.5, 1 / 37.5], np.float32)  # factor and inverse, where asked for
        self.history = None
        self.lengths = np.array(sizes, np.int32)
        self.problem = f"{recipe} of={of} g={len(sizes)} m={self.m} k={self.k}"
        self.text = f"quantize {self.problem} in={in_type}" + (" dbias=1" if of == "dy" else "")
        self.name = f"{self.text} {kind}"

    def plan(self, text):
        """A plan with what all of this case's have in common, as far as the text needs it."""
        plan = Plan(self.library, text, backend=HOST)
        if self.history is None and "history" in plan.operands:
            self.history = np.zeros(plan.operands["history"].shape, np.float32)
        common = {"lengths": self.lengths, "scale": self.delayed, "history": self.history,
                  "random": RANDOM}
        plan.bind(**{name: array.ctypes.data for name, array in common.items()
                     if name in plan.operands})
        return plan

    def run(self, plan):
        work = np.zeros(plan.operands["workspace"].bytes, np.uint8)
        plan.bind(workspace=work.ctypes.data)
        plan.run(None)
        plan.check(None)
        plan.close()

    def quantize(self):
        """Into buffers of canaries, by side; and the sums."""
        plan = self.plan(self.text)
        self.got = {side: make_room(plan, side) for side in ("row", "column")}
        self.dbias = np.full((len(self.sizes), self.k), 7, np.float32)
        if self.of == "dy":
            plan.bind(dbias=self.dbias.ctypes.data)
        self.give_inputs(plan)
        self.run(plan)
        return "history" in plan.operands

    def give_inputs(self, plan):
        plan.bind(input=self.typed.ctypes.data)

    def expect(self, x, dtype, sides):
        """The reference's result: layout, buffers, codes and scales of each group."""
        sizes = {side: [len(a) for a in (copy.data, copy.sf, copy.outer)]
                 for side, copy in self.got.items() if side in sides}
        return memory.quantize(self.recipe, self.of, x, self.sizes, dtype, sizes,
                               [int(word) for word in RANDOM], self.before)

    def check_copies(self, expected):
        for side, copy in expected.items():
            for part in ("outer", "sf", "data"):
                compare(f"{side} {part}", getattr(self.got[side], part), getattr(copy, part))

    def groups(self):
        starts = self.layout.starts
        return [self.x[starts[g] : starts[g + 1]] for g in range(len(self.sizes))]

    def check_dbias(self):
        with np.errstate(all="ignore"):
            expected = [reference.dbias(part) for part in self.groups()]
        for g, row in enumerate(expected):
            same_numbers(f"dbias of group {g}", self.dbias[g], row)

    def check_history(self):
        """The call's outputs, and the resulting scale."""
        whole = reference.amax_of(np.concatenate(self.groups()))
        if self.history[0] != whole:
            raise Mismatch(f"history {self.history[0]!r} instead of {whole!r}")
        plan = self.plan(f"rescale {self.recipe} of={self.of}")
        self.history[5] = whole * 2
        element = reference.ELEMENTS[reference.RECIPES[self.recipe][self.of].element]
        scale, history = reference.next_scale(self.history.copy(), self.delayed[0], element.most)
        self.run(plan)
        same_numbers("rescale", self.delayed, np.array([scale, np.float32(1) / scale]))
        same_numbers("the history", self.history, history)

    def numbers_of(self, side):
        """The copy's values in fp32, [rows, k] of each group, as the reference made them."""
        for g, made in enumerate(self.made[side]):
            if not made:
                yield np.zeros((self.sizes[g], self.k), np.float32)
                continue
            with np.errstate(all="ignore"):
                back = reference.dequantize_group(self.layout.recipe, *made)
            yield back if side == "row" else back.T[: self.sizes[g]]

    def check_dequantize(self, side):
        plan = self.plan(f"dequantize {self.problem} out=f32 copies={side}wise")
        out = np.zeros(self.x.shape, np.float32)
        give(plan, side, self.got[side])
        plan.bind(output=out.ctypes.data)
        self.run(plan)
        for g, expected in enumerate(self.numbers_of(side)):
            got = out[self.layout.starts[g] : self.layout.starts[g + 1]]
            same_numbers(f"dequantize {side}, group {g}", got.ravel(), expected.ravel().copy())

    def check_transpose(self):
        """The columnwise tensor of what the rowwise tensor holds."""
        plan = self.plan(f"transpose {self.problem}")
        x = np.zeros(self.x.shape, np.float32)
        for g, numbers in enumerate(self.numbers_of("row")):
            x[self.layout.starts[g] : self.layout.starts[g + 1]] = numbers
        give(plan, "row", self.got["row"])
        self.got["column"] = make_room(plan, "column")
        self.run(plan)
        self.check_copies(self.expect(x, TYPES["f32"], ["column"])[1])

    def check(self):
        self.delays = self.quantize()
        self.before = self.delayed[0] if self.delays else None
        self.layout, copies, self.made = self.expect(self.x, self.dtype, ["row", "column"])
        self.check_copies(copies)
        if self.of == "dy":
            self.check_dbias()
        for side in ("row", "column"):
            self.check_dequantize(side)
        if self.delays:
            self.check_history()
        else:
            self.check_transpose()


class Activated(Case):
    """An activation first, or its backward: those made of single products.

    Operands a and b are halves of the features, or alternate in runs. Backward, dy has one feature
    for each pair, and what is quantized is the gradient of a and of b in the order of the operands.
    """

    def __init__(self, library, recipe, of, in_type, activation, run, probability):
        super().__init__(library, recipe, of, ([0, 70, 5, 130], 2, 192), in_type, "ordinary")
        pairs = activation == "reglu"
        results = self.k if of == "x" else self.k // 2 if pairs else self.k
        self.saved, operands = make("ordinary", self.dtype, (self.m, results * (1 + pairs)))
        at = np.arange(results)
        first = at // run * 2 * run + at % run if run else at
        second = first + run if run else at + results
        a, b = operands[:, first if pairs else at], operands[:, second if pairs else at]
        rng = np.random.default_rng(9)
        self.probability = rng.uniform(0, 1, (self.m, 1)).astype(np.float32)
        weight = self.probability if probability else np.float32(1)
        up = np.where(a > 0, a, np.float32(0))
        if of == "x":
            self.x = (up * (b if pairs else up) * weight).astype(np.float32)
        else:
            self.typed, dy = make("ordinary", self.dtype, (self.m, results))
            self.x = np.zeros((self.m, self.k), np.float32)
            along_a = np.where(a > 0, b if pairs else np.float32(2) * up, np.float32(0))
            self.x[:, first if pairs else at] = dy * weight * along_a
            if pairs:
                self.x[:, second] = dy * weight * up
        with np.errstate(over="ignore"):
            self.x = self.x.astype(self.dtype).astype(np.float32)
        if not probability:
            self.probability = None
        words = f" activation={activation} interleave={run if pairs else 0} prob={int(probability)}"
        self.text += words
        self.name += words

    def give_inputs(self, plan):
        plan.bind(input=(self.saved if self.of == "x" else self.typed).ctypes.data)
        if self.of == "dy":
            plan.bind(pre=self.saved.ctypes.data)
        if self.probability is not None:
            plan.bind(prob=self.probability.ctypes.data)

    def check_transpose(self):
        """That has no activation."""


def check_activation(library, recipe, of):
    count = 0
    for in_type in TYPES:
        for activation in ("reglu", "squared_relu"):
            for run in (0, 1, 32):
                for probability in (False, True):
                    case = Activated(library, recipe, of, in_type, activation, run, probability)
                    attempt(case)
                    count += 1
    return count


def attempt(case):
    try:
        case.check()
    except (Mismatch, Failed) as error:
        raise Mismatch(f"{case.name}\n#   {error}") from error


def check_tensor(library, recipe, of):
    """Every shape, type and kind of values. Returns how many cases agreed."""
    count = 0
    for shape in WEIGHTS if of == "w" else TOKENS:
        for in_type, kind in MIX:
            attempt(Case(library, recipe, of, shape, in_type, kind))
            count += 1
    return count


def check_every_value(library, recipe, of):
    """Weights of every code under every scale of 16 bits: the fp32 product, rounded once.

    A row has one scale, and the codes follow each other. A product's D has these values where it is
    multiplied with ones on the diagonal, which takes only finite ones.
    """
    form, half = reference.RECIPES[recipe][of], "f16" if recipe.endswith("_fp16") else "bf16"
    block = form.block[1]
    scales = np.arange(1 << 16, dtype=np.uint16)
    codes = np.tile(np.arange(16, dtype=np.uint8), (len(scales), block // 16))
    with np.errstate(all="ignore"):
        value = scales.view(reference.SIXTEEN[form.scale]).astype(np.float32)[:, None]
        zeros = np.arange(len(scales), dtype=np.uint32) * 7 % 16 if form.zeros else scales * 0
        exact = (reference.decode(form.element, codes) - zeros[:, None].astype(np.float32)) * value
        expected = exact.astype(TYPES[half])
    if form.zeros:
        scales = scales | zeros << 16
    finite = np.isfinite(expected.astype(np.float32)).all(axis=1)
    check_values(library, f"dequantize {recipe} of=w g=1 m={len(scales)} k={block} copies=rowwise "
                 f"out={half}",
                 {"rowwise": reference.pack(form.element, codes), "rowwise.sf": scales},
                 "output", expected)
    if "x" in reference.RECIPES[recipe]:  # which is quantized, too
        return codes.size
    identity = np.eye(block, dtype=TYPES[half])
    check_values(library, f"fprop {recipe} g=1 m={block} n={finite.sum()} k={block}",
                 {"a": identity, "b": reference.pack(form.element, codes[finite]),
                  "b.sf": scales[finite], "lengths": np.array([block], np.int32)},
                 "d", expected[finite].T + expected.dtype.type(0))  # sums have no -0
    if recipe in PACKED:
        rows = finite.sum() // block * block  # a whole matrix for each group
        groups, values = rows // block, expected[finite][:rows]
        check_values(library, f"dgrad {recipe} g={groups} m={rows} n={block} k={block}",
                     {"a": np.tile(identity, (groups, 1)), "lengths": np.full(groups, block, "i4"),
                      "b": reference.pack(form.element, codes[finite][:rows]),
                      "b.sf": scales[finite][:rows]}, "d", values + values.dtype.type(0))
    return codes.size


def check_values(library, line, inputs, output, expected):
    plan = Plan(library, line, backend=HOST)
    work = np.zeros(plan.operands["workspace"].bytes, np.uint8)
    got = np.zeros(expected.shape, expected.dtype)
    inputs = {name: np.ascontiguousarray(array) for name, array in inputs.items()}
    plan.bind(workspace=work.ctypes.data, **{output: got.ctypes.data},
              **{name: array.ctypes.data for name, array in inputs.items()})
    plan.run(None)
    plan.check(None)
    plan.close()
    same_numbers(line, got.astype(np.float32).ravel(), expected.astype(np.float32).ravel())


# Recipes of which dgrad reads the rowwise tensor of w, too.
PACKED = ("w4a16_int4", "w4a16_int4_zeros", "w4a16_int4_fp16", "w4a16_int4_zeros_fp16")
SAID = {check_activation: ", activated", check_every_value: ", every code with every scale"}


def main():
    root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    path = sys.argv[1] if len(sys.argv) > 1 else os.path.join(root, "build/lib/libquern.so")
    cache = tempfile.TemporaryDirectory()
    library = Library(path, specs=[os.path.join(root, "tests/numbers/recipes")], cache=cache.name)
    tests = [(check_tensor, recipe, of)
             for recipe, tensors in reference.RECIPES.items() for of in tensors]
    tests += [(check_every_value, recipe, "w")
              for recipe in (*PACKED, "w4a16_around_8", "integers")]
    tests += [(check_activation, recipe, of) for recipe in ("mxfp8", "fp8_block", "fp8_tensor")
              for of in ("x", "dy")]
    failed = 0
    share, shares = map(int, os.environ.get("QUERN_SHARE", "0/1").split("/"))  # as in tests/share.h
    mine = range(share, len(tests), shares)
    print(f"1..{len(mine)}\ncases: {len(mine)} of {len(tests)}")
    for number in mine:
        check, recipe, of = tests[number]
        name = f"{number + 1} - {recipe} {of}" + SAID.get(check, "")
        try:
            print(f"ok {name}: {check(library, recipe, of)} cases")
        except Mismatch as error:
            print(f"# {error}\nnot ok {name}")
            failed += 1
        except Exception:  # the reference's own mistake
            traceback.print_exc()
            print(f"not ok {name}")
            failed += 1
        sys.stdout.flush()
    library.close()
    sys.exit(failed > 0)


if __name__ == "__main__":
    main()
