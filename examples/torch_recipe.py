# SPDX-License-Identifier: Apache-2.0
"""A recipe of one's own: values of six bits, in groups of 32 with a scale.

    python examples/torch_recipe.py
"""

import os
import tempfile

import torch
import quern.torch as qt

RECIPE = """
-- Values of six bits, one power-of-two scale for 32 of them, rounded up.
recipe "mxfp6" {
  element = { x = e2m3, w = e2m3, dy = e2m3 },
  scale   = blocked { type = e8m0, per = { k = 32 }, rule = function (amax, of)
    return e8m0_up(amax * (1 / of.element.max))
  end },
  d       = { bf16, f32 },
}
-- SPDX-License-Identifier: Apache-2.0
"""


def main():
    device = "cuda" if torch.cuda.is_available() else "cpu"
    torch.manual_seed(0)
    x = torch.randn(600, 256, device=device, dtype=torch.bfloat16, requires_grad=True)
    w = torch.randn(4, 128, 256, device=device, dtype=torch.bfloat16, requires_grad=True)
    sizes = torch.tensor([100, 0, 300, 200], device=device)
    dy = torch.randn(600, 128, device=device, dtype=torch.bfloat16)
    results = {}
    for recipe in ("bf16", "mxfp8", "mxfp6"):
        x.grad = w.grad = None
        y = qt.grouped_mm(x, w, sizes, recipe=recipe)
        y.backward(dy)
        results[recipe] = y.detach(), x.grad, w.grad
    for recipe in ("mxfp8", "mxfp6"):
        errors = [((found - exact).float().norm() / exact.float().norm()).item()
                  for found, exact in zip(results[recipe], results["bf16"])]
        print(f"{recipe} errors: y {errors[0]:.4f}, dx {errors[1]:.4f}, dw {errors[2]:.4f}")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        os.mkdir(os.path.join(folder, "recipes"))
        with open(os.path.join(folder, "recipes", "mine.lua"), "w", encoding="utf-8") as file:
            file.write(RECIPE)
        qt.add_specs(folder)
        main()
