//$ -- SPDX-License-Identifier: Apache-2.0
//$ once "activation/geglu.c"
/* The tanh form of gelu: geglu with 1 as b. There is no second operand: b is not looked at. */
FN float gelu_tanh(float a, float b)
{
    (void)b;
    return mul_rn(a, geglu_sigmoid(a));
}

FN struct gradient gelu_tanh_gradient(float a, float b)
{
    const struct gradient d = { geglu_gradient(a, 1).a, 0 };

    (void)b;
    return d;
}
