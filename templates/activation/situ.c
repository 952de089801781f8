//$ -- SPDX-License-Identifier: Apache-2.0
//$ once "activation/gradient.c"
//$ once "cast/sigmoid.c"
//$ once "cast/tanh.c"
/* 4 tanh(a / 4) * sigmoid(a) * 25 tanh(b / 25), a / 4 exact and b / 25 as b times fp32's 1/25 */
FN float situ(float a, float b)
{
    const float gate = mul_rn(mul_rn(4, tanh_f32(mul_rn(a, 0.25f))), sigmoid_f32(a));

    return mul_rn(gate, mul_rn(25, tanh_f32(mul_rn(b, 0x1.47ae14p-5f))));
}

/*
** The derivative of tanh is 4 r (1 - r) with r = sigmoid(-2 |x|), that of the sigmoid s (1 - s),
** with the smaller of s and 1 - s from -|a|: no difference of almost equal values.
*/
FN struct gradient situ_gradient(float a, float b)
{
    const float size = magnitude(a), v = mul_rn(b, 0x1.47ae14p-5f);
    const float small = sigmoid_f32(-size), large = add_rn(1, -small);
    const float s = a < 0 ? small : large, rest = a < 0 ? large : small;
    const float r = sigmoid_f32(mul_rn(-0.5f, size)), q = sigmoid_f32(mul_rn(-2, magnitude(v)));
    const float t = mul_rn(4, tanh_f32(mul_rn(a, 0.25f)));
    const float growth = fma_rn(t, rest, mul_rn(mul_rn(4, r), add_rn(1, -r)));
    const struct gradient d = { mul_rn(mul_rn(s, growth), mul_rn(25, tanh_f32(v))),
                                mul_rn(mul_rn(t, s), mul_rn(mul_rn(4, q), add_rn(1, -q))) };

    return d;
}
