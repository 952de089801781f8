//$ -- SPDX-License-Identifier: Apache-2.0
//$ once "activation/gradient.c"
//$ once "cast/sigmoid.c"
/* a * sigmoid(a). There is no second operand: b is not looked at. */
FN float silu(float a, float b)
{
    (void)b;
    return mul_rn(a, sigmoid_f32(a));
}

FN struct gradient silu_gradient(float a, float b)
{
    const float s = sigmoid_f32(a);
    const struct gradient d = { mul_rn(s, fma_rn(a, add_rn(1, -s), 1)), 0 };

    (void)b;
    return d;
}
