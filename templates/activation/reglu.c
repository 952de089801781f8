//$ -- SPDX-License-Identifier: Apache-2.0
//$ once "activation/gradient.c"
//$ once "cast/arith.c"
/* max(a, 0) * b; at 0 the gradient is 0. */
FN float reglu(float a, float b)
{
    return mul_rn(a <= 0 ? 0 : a, b);
}

FN struct gradient reglu_gradient(float a, float b)
{
    const struct gradient d = { a <= 0 ? 0 : b, a <= 0 ? 0 : a };

    return d;
}
