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

/* The derivative of tanh is (1 - tanh)(1 + tanh), that of the sigmoid s(1 - s). */
FN struct gradient situ_gradient(float a, float b)
{
    const float t = tanh_f32(mul_rn(a, 0.25f)), s = sigmoid_f32(a);
    const float u = tanh_f32(mul_rn(b, 0x1.47ae14p-5f));
    const float growth = fma_rn(mul_rn(4, t), add_rn(1, -s), mul_rn(add_rn(1, -t), add_rn(1, t)));
    const float gate = mul_rn(mul_rn(4, t), s);
    const struct gradient d = { mul_rn(mul_rn(s, growth), mul_rn(25, u)),
                                mul_rn(gate, mul_rn(add_rn(1, -u), add_rn(1, u))) };

    return d;
}
