# SPDX-License-Identifier: Apache-2.0
"""Problems drawn from a seed: the splits of groups, and the many problems of bench/grid.py."""

import json
import os
import random

HERE = os.path.dirname(os.path.abspath(__file__))

# Problems of each recipe and op in one round of draws.
CELLS = {
    "bf16": {"fprop": 6, "dgrad": 6, "wgrad": 8, "accumulate": 8, "wgrad32": 2,
             "fprop+act": 2, "dgrad+act": 2},
    "fp16": {"fprop": 1, "dgrad": 1, "wgrad": 1, "accumulate": 1},
    "fp8_row": {"fprop": 2, "dgrad": 2, "wgrad": 2, "accumulate": 2},
    "fp8_tensor": {"fprop": 2, "dgrad": 2, "wgrad": 2, "accumulate": 2},
    "fp8_block": {"fprop": 3, "dgrad": 3, "wgrad": 3, "accumulate": 3, "fprop+act": 1},
    "mxfp8": {"fprop": 2, "dgrad": 2, "wgrad": 2, "accumulate": 2},
    "mxfp4": {"fprop": 2, "dgrad": 2, "wgrad": 1, "accumulate": 1},
    "nvfp4": {"fprop": 2, "dgrad": 2, "wgrad": 1, "accumulate": 1},
}
ROUNDS_OF_DRAWS = 12
SPLITS = ("even", "mild", "skew", "empty")
HIDDEN = (1024, 1536, 2048, 2880, 3072, 4096, 5120, 6144, 7168, 8192)
FFN = (512, 768, 1024, 1408, 1536, 2048, 2816, 4096, 5760, 8192, 10752, 14336, 28672)
GROUPS = (2, 4, 8, 16, 32, 64, 128, 256)
MOST_FLOPS = 3.5e12
MOST_BYTES = 3 << 30  # of an operand


def split(groups, tokens, kind, rng):
    """Rows of each group. mild: shares within 30 % of each other. skew: like 1/rank, in random
    order, and from 8 groups on one of them empty."""
    if kind == "mild":
        share = [rng.uniform(0.7, 1.3) for _ in range(groups)]
    else:
        share = [1 / rank for rank in range(1, groups + 1)]
        rng.shuffle(share)
        if groups >= 8:
            share[rng.randrange(groups)] = 0
    rows = [int(tokens * s / sum(share)) for s in share]
    rows[rows.index(max(rows))] += tokens - sum(rows)
    return rows


def named(file):
    with open(os.path.join(HERE, file)) as handle:
        return json.load(handle)["shapes"]


def draw_shape(rng, small):
    """A layer that fits; n and k are its output and input features."""
    while True:
        groups, hidden, ffn = rng.choice(GROUPS), rng.choice(HIDDEN), rng.choice(FFN)
        if small:
            tokens = groups * round(2 ** rng.uniform(0, 6))
        else:
            tokens = round(2 ** rng.uniform(11, 17)) // 8 * 8
        n, k = (ffn, hidden) if rng.random() < 0.5 else (hidden, ffn)
        fits = max(groups * n * k * 4, tokens * n * 2, tokens * k * 2) <= MOST_BYTES
        if fits and 2 * tokens * n * k <= MOST_FLOPS and (small or tokens / groups > 64):
            return {"groups": groups, "tokens": tokens, "n": n, "k": k}


def draw_rows(rng, groups, tokens, kind):
    if kind == "even":
        return [tokens // groups + (i < tokens % groups) for i in range(groups)]
    if kind == "empty":
        rows = draw_rows(rng, groups - 1, tokens, "mild")
        rows.insert(rng.randrange(groups), 0)
        return rows
    return split(groups, tokens, kind, rng)


def line_of(recipe, op, shape):
    g, m, n, k = (shape[key] for key in ("groups", "tokens", "n", "k"))
    name, _, act = op.partition("+")
    if name == "dgrad":
        n, k = k, n
    elif name != "fprop":
        m, n, k = n, k, m
    more = {"accumulate": " d=f32 beta=1", "wgrad32": " d=f32"}.get(name, "")
    more += " activation=swiglu" if act else ""
    word = name if name in ("fprop", "dgrad") else "wgrad"
    return f"{word} {recipe} g={g} m={m} n={n} k={k}{more}"


def draw_cell(recipe, op, count, seed):
    """Problems of a recipe and op: every second one is held out, a named layer every other time."""
    rng = random.Random(f"{seed} {recipe} {op}")
    fit, held = named("shapes.json"), named("layers.json")
    rng.shuffle(fit)
    rng.shuffle(held)
    for i in range(count):
        out = bool(i % 2)
        names = held if out else fit
        shape = names.pop() if names and seed == 1 and i // 2 % 2 == 0 else None
        shape = shape or draw_shape(rng, i // 4 % 2 == 1)
        kind = rng.choice(("even", "mild", "mild", "skew", "empty"))
        yield {"problem": line_of(recipe, op, shape), "recipe": recipe, "op": op, "held": out,
               "split": kind,
               "rows": draw_rows(rng, shape["groups"], shape["tokens"], kind)}


def problems(seed, only):
    """All of them, the recipes and ops in turn, so that a budget leaves some of each."""
    cells = []
    for recipe, ops in CELLS.items():
        for op, weight in ops.items():
            if not only or f"{recipe}/{op}" in only or recipe in only:
                drawn = list(draw_cell(recipe, op, weight * ROUNDS_OF_DRAWS, seed))
                cells += [((i + 0.5) / weight, recipe, op, p) for i, p in enumerate(drawn)]
    return [cell[3] for cell in sorted(cells, key=lambda cell: cell[:3])]


def every_split(problem):
    """The problem with each of SPLITS, drawn from its line."""
    words = dict(word.split("=") for word in problem["problem"].split() if "=" in word)
    tokens = words["k" if problem["problem"].startswith("wgrad") else "m"]
    for kind in SPLITS:
        rng = random.Random(f"{problem['problem']} {kind}")
        yield {**problem, "split": kind,
               "rows": draw_rows(rng, int(words["g"]), int(tokens), kind)}
