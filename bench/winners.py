#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measure the winners that ship in bench/tune, on the GPU of this machine.

    python3 bench/winners.py [--recipes bf16,fp8_block,..] [--ops fprop,dgrad,wgrad,accumulate]
                             [--shapes GLOBS] [--seconds PER_PROBLEM] [--budget SECONDS]
                             [--store FOLDER] [--again] [--lines]

The problems are those of bench/shapes.json and bench/layers.json, and the products of bench/mlp.py's
layers. Problems that have a line which is not stale are left out, unless --again is given: a run that
is stopped, or whose budget is spent, goes on where it was. It needs a GPU and build/bin/quern, not
PyTorch, and each winner is in the file once it is measured.
"""

import argparse
import fnmatch
import json
import os
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
PROGRAM = os.path.join(HERE, "..", "build", "bin", "quern")
LAYERS = ("shapes.json", "layers.json")
# Experts, tokens, features of the model and of an expert: those of bench/mlp.py.
MLPS = (("mlp_dsv3", 8, 32768, 7168, 2048), ("mlp_dsv3_g32", 32, 32768, 7168, 2048),
        ("mlp_mixtral", 8, 16384, 4096, 14336), ("mlp_qwen3", 128, 65536, 2048, 768),
        ("mlp_gptoss", 32, 32768, 2880, 2880))
RECIPES = "bf16,fp8_block,fp8_row,fp8_tensor"


def shapes_of(options):
    """Every layer with name, groups, tokens, n and k."""
    found = []
    for name in LAYERS:
        with open(os.path.join(HERE, name), encoding="utf-8") as file:
            found += json.load(file)["shapes"]
    for name, groups, tokens, hidden, ffn in MLPS:
        found += [{"name": f"{name}_w1", "groups": groups, "tokens": tokens, "n": 2 * ffn, "k": hidden},
                  {"name": f"{name}_w2", "groups": groups, "tokens": tokens, "n": hidden, "k": ffn}]
    return [shape for shape in found
            if any(fnmatch.fnmatch(shape["name"], glob) for glob in options.shapes.split(","))]


def line_of(recipe, op, shape):
    tokens, n, k, groups = (shape[name] for name in ("tokens", "n", "k", "groups"))
    m, n, k = {"fprop": (tokens, n, k), "dgrad": (tokens, k, n)}.get(op, (n, k, tokens))
    name, more = ("wgrad", " d=f32 beta=1") if op == "accumulate" else (op, "")
    return f"{name} {recipe} g={groups} m={m} n={n} k={k}{more} split=mild"


def lines_of(options):
    """Each problem once, one layer after the other, so that a budget leaves out whole layers."""
    return list(dict.fromkeys(line_of(recipe, op, shape) for shape in shapes_of(options)
                              for recipe in options.recipes.split(",")
                              for op in options.ops.split(",")))


def command_of(options, lines):
    command = [PROGRAM, "tune", "--store", options.store, "--budget", str(options.seconds)]
    return command + ([] if options.again else ["--missing"]) + lines


def main(argv=None):
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--recipes", default=RECIPES)
    parser.add_argument("--ops", default="fprop,dgrad,wgrad,accumulate")
    parser.add_argument("--shapes", default="*", help="names or globs, by commas")
    parser.add_argument("--seconds", type=float, default=5, help="for one problem, at most")
    parser.add_argument("--budget", type=float, default=1e5, help="seconds for all of them")
    parser.add_argument("--store", default=os.path.join(HERE, "tune"))
    parser.add_argument("--again", action="store_true", help="also those that have a line")
    parser.add_argument("--lines", action="store_true", help="print the problems, measure nothing")
    options = parser.parse_args(argv)
    lines = lines_of(options)
    if options.lines:
        print("\n".join(lines))
        return 0
    try:
        return subprocess.run(command_of(options, lines), timeout=options.budget,
                              check=False).returncode
    except subprocess.TimeoutExpired:
        print(f"bench/winners.py: {options.budget:.0f} seconds are over; run it again for the rest")
        return 1


if __name__ == "__main__":
    sys.exit(main())
