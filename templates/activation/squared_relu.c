//$ -- SPDX-License-Identifier: Apache-2.0
//$ once "activation/gradient.c"
//$ once "cast/arith.c"
/* max(a, 0)^2. There is no second operand: b is not looked at, and its gradient is 0. */
FN float squared_relu(float a, float b)
{
    const float up = a <= 0 ? 0 : a;

    (void)b;
    return mul_rn(up, up);
}

FN struct gradient squared_relu_gradient(float a, float b)
{
    const float up = a <= 0 ? 0 : a;
    const struct gradient d = { mul_rn(2, up), 0 };

    (void)b;
    return d;
}
