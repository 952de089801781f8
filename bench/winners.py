#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measure the winners that ship in bench/tune, on the GPU of this machine.

    python3 bench/winners.py [--recipes bf16,fp8_block,..] [--ops fprop,dgrad,wgrad,accumulate]
                             [--shapes GLOBS] [--seconds PER_PROBLEM] [--budget SECONDS]
                             [--store FOLDER] [--again] [--lines]

The problems are those of bench/shapes.json and bench/layers.json, and the products of bench/mlps.json's
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
RECIPES = "bf16,fp8_block,fp8_row,fp8_tensor"


def read(name):
    with open(os.path.join(HERE, name), encoding="utf-8") as file:
        return json.load(file)["shapes"]


def shapes_of(options):
    """Every layer with name, groups, tokens, n and k."""
    found = []
    for name in LAYERS:
        found += read(name)
    for mlp in read("mlps.json"):
        same = {"groups": mlp["groups"], "tokens": mlp["tokens"]}
        hidden, ffn = mlp["hidden"], mlp["ffn"]
        found += [{"name": f"mlp_{mlp['name']}_w1", **same, "n": 2 * ffn, "k": hidden},
                  {"name": f"mlp_{mlp['name']}_w2", **same, "n": hidden, "k": ffn}]
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
