//$ -- SPDX-License-Identifier: Apache-2.0
//$ once "activation/gradient.c"
//$ once "cast/sigmoid.c"
/* a * sigmoid(a) * b */
FN float swiglu(float a, float b)
{
    return mul_rn(mul_rn(a, sigmoid_f32(a)), b);
}

FN struct gradient swiglu_gradient(float a, float b)
{
    const float s = sigmoid_f32(a), growth = mul_rn(s, fma_rn(a, add_rn(1, -s), 1));
    const struct gradient d = { mul_rn(growth, b), mul_rn(a, s) };

    return d;
}
