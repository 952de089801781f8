//$ -- SPDX-License-Identifier: Apache-2.0
//$ once "activation/gradient.c"
//$ once "cast/sigmoid.c"
/*
** a/2 (1 + tanh(sqrt(2/pi) (a + 0.044715 a^3))) * b, the first factor as a * sigmoid(2 sqrt(2/pi)
** (a + 0.044715 a^3)): the same number without the cancellation at negative a. Beyond 30 the
** sigmoid is 0 or 1, and nothing overflows before.
*/
FN float geglu_sigmoid(float a)
{
    const float v = bounded(a, -30, 30);

    return sigmoid_f32(mul_rn(fma_rn(mul_rn(v, v), 0x1.2444f2p-4f, 0x1.988454p+0f), v));
}

FN float geglu(float a, float b)
{
    return mul_rn(mul_rn(a, geglu_sigmoid(a)), b);
}

FN struct gradient geglu_gradient(float a, float b)
{
    const float s = geglu_sigmoid(a), v = bounded(a, -30, 30);
    const float inner = mul_rn(v, fma_rn(mul_rn(v, v), 0x1.b6676cp-3f, 0x1.988454p+0f));
    const float growth = fma_rn(mul_rn(s, add_rn(1, -s)), inner, s);
    const struct gradient d = { mul_rn(growth, b), mul_rn(a, s) };

    return d;
}
