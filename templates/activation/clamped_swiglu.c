//$ -- SPDX-License-Identifier: Apache-2.0
//$ once "activation/gradient.c"
//$ once "cast/sigmoid.c"
/*
** g * sigmoid(slope * g) * (u + shift) with g = min(a, limit) and u = b within -limit .. limit. At
** a limit itself the gradient is that of the inside.
*/
FN float clamped_swiglu(float a, float b, float limit, float slope, float shift)
{
    const float g = a > limit ? limit : a, u = bounded(b, -limit, limit);

    return mul_rn(mul_rn(g, sigmoid_f32(mul_rn(slope, g))), add_rn(u, shift));
}

FN struct gradient clamped_swiglu_gradient(float a, float b, float limit, float slope, float shift)
{
    const float g = a > limit ? limit : a, u = bounded(b, -limit, limit);
    const float t = bounded(mul_rn(slope, g), -128, 128); /* the sigmoid is 0 or 1 there */
    const float s = sigmoid_f32(t), growth = mul_rn(s, fma_rn(t, add_rn(1, -s), 1));
    const struct gradient d = { a > limit ? 0 : mul_rn(growth, add_rn(u, shift)),
                              magnitude(b) > limit ? 0 : mul_rn(g, s) };

    return d;
}
