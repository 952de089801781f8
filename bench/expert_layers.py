# SPDX-License-Identifier: Apache-2.0
"""Layers whose experts are spread over GPUs, for quern.torch's and quern.jax's program."""

import argparse
import fnmatch

SHAPES = [  # name, tokens of a GPU, hidden, ffn, experts of all GPUs, choices
    ("qwen3_30b", 8192, 2048, 768, 128, 8), ("olmoe", 8192, 2048, 1024, 64, 8),
    ("mixtral", 8192, 4096, 14336, 8, 2), ("fine", 8192, 2048, 256, 128, 8)]


def parser():
    """The options of both programs."""
    made = argparse.ArgumentParser()
    made.add_argument("--recipes", default="bf16,fp8_block")
    made.add_argument("--shapes", default="*")
    made.add_argument("--tokens", type=int)
    made.add_argument("--rounds", type=int, default=9)
    made.add_argument("--json")
    made.add_argument("--commit", default="")
    return made


def chosen(options):
    """The shapes that --shapes names, with --tokens."""
    return [(shape[0], options.tokens or shape[1], *shape[2:]) for shape in SHAPES
            if any(fnmatch.fnmatch(shape[0], glob) for glob in options.shapes.split(","))]


def capacity(pairs, tokens, topk):
    """Room for a twentieth more pairs than there are, as a user who knows his routing would give."""
    return min(max(pairs * 21 // 20, tokens), tokens * topk)
