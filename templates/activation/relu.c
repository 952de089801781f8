//$ -- SPDX-License-Identifier: Apache-2.0
//$ once "activation/gradient.c"
//$ once "cast/arith.c"
/* max(a, 0); at 0 the gradient is 0. There is no second operand: b is not looked at. */
FN float relu(float a, float b)
{
    (void)b;
    return a <= 0 ? 0 : a;
}

FN struct gradient relu_gradient(float a, float b)
{
    const struct gradient d = { a <= 0 ? 0 : 1, 0 };

    (void)b;
    return d;
}
