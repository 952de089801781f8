#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The memory of a mixture-of-experts layer in each recipe, from the operands of its line. Needs
neither a GPU nor PyTorch.

    PYTHONPATH=runtime/python python3 examples/py_memory.py
"""

import quern

LINE = "mlp {recipe} g=8 m={rows} hidden=7168 ffn=2048 prob=1"
ROWS = 32768


def megabytes(operands, names):
    return sum(o.bytes.at(ROWS) for o in operands.values() if o.name.split(".")[0] in names) / 2**20


def main():
    print(LINE.format(recipe="RECIPE", rows=ROWS))
    print(f"{'recipe':10} {'weights':>8} {'saved':>8} {'pending':>8} {'workspace':>10}  MiB")
    for recipe in ("bf16", "fp8_block", "mxfp8", "nvfp4"):
        operands = quern.describe(LINE.format(recipe=recipe, rows=ROWS))
        quantized = [f"{w}_{copy}" for w in ("w1", "w2") for copy in ("rowwise", "columnwise")]
        weights = megabytes(operands, quantized) or megabytes(operands, ("w1", "w2"))
        print(f"{recipe:10} {weights:8.0f} {megabytes(operands, ('saved',)):8.0f} "
              f"{megabytes(operands, ('pending',)):8.0f} "
              f"{megabytes(operands, ('workspace',)):10.0f}")


if __name__ == "__main__":
    main()
