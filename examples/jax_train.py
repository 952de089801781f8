# SPDX-License-Identifier: Apache-2.0
"""An expert layer in FP8 over microbatches: its weights are quantized once, and their gradient is
added to an fp32 sum in place.

    python examples/jax_train.py
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

import quern.jax as qj

EXPERTS, HIDDEN, FFN, TOKENS, MICROBATCHES = 8, 256, 128, 512, 4


@functools.partial(jax.jit, donate_argnames="main_grad")
def step(w, main_grad, xs, experts, dys):
    quantized = qj.grouped_quantize(w, "fp8_block", of="w")

    def microbatch(main_grad, given):
        x, expert, dy = given
        order = jnp.argsort(expert)
        sizes = jnp.bincount(expert, length=EXPERTS).astype(jnp.int32)
        y, back = jax.vjp(lambda x: qj.ragged_dot(x, quantized, sizes), x[order])
        dx, = back(dy[order])
        main_grad = qj.wgrad(x[order], dy[order], sizes, recipe="fp8_block", accumulate=main_grad)
        return main_grad, (y, dx)

    return lax.scan(microbatch, main_grad, (xs, experts, dys))


def main():
    keys = jax.random.split(jax.random.key(0), 4)
    w = jax.random.normal(keys[0], (EXPERTS, HIDDEN, FFN), jnp.bfloat16)
    xs = jax.random.normal(keys[1], (MICROBATCHES, TOKENS, HIDDEN), jnp.bfloat16)
    dys = jax.random.normal(keys[2], (MICROBATCHES, TOKENS, FFN), jnp.bfloat16)
    experts = jax.random.randint(keys[3], (MICROBATCHES, TOKENS), 0, EXPERTS)
    main_grad, _ = step(w, jnp.zeros(w.shape), xs, experts, dys)
    expected = np.zeros(w.shape)
    for x, expert, dy in zip(np.asarray(xs, np.float64), np.asarray(experts),
                             np.asarray(dys, np.float64)):
        for e in range(EXPERTS):
            expected[e] += x[expert == e].T @ dy[expert == e]
    error = np.linalg.norm(np.asarray(main_grad) - expected) / np.linalg.norm(expected)
    print(f"main_grad of {MICROBATCHES} microbatches, relative error {error:.3f} in FP8")
    assert error < 0.06


if __name__ == "__main__":
    main()
