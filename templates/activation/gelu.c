//$ -- SPDX-License-Identifier: Apache-2.0
//$ once "activation/gradient.c"
//$ once "cast/normal.c"
/*
** a times the part of the standard normal distribution below a: a/2 (1 + erf(a / sqrt(2))). There
** is no second operand: b is not looked at.
*/
FN float gelu(float a, float b)
{
    (void)b;
    return mul_rn(a, normal_f32(a).below);
}

FN struct gradient gelu_gradient(float a, float b)
{
    const struct normal n = normal_f32(a);
    const struct gradient d = { fma_rn(bounded(a, -16, 16), n.density, n.below), 0 };

    (void)b;
    return d;
}
