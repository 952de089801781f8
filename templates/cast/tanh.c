//$ -- SPDX-License-Identifier: Apache-2.0
//$ once "cast/exp.c"
/* tanh(x), at most 2 ulp off: an odd polynomial near zero, else 1 - 2 / (1 + e^2|x|). */
FN float tanh_f32(float x)
{
    const float size = magnitude(x), z = mul_rn(x, x);
    float t;

    if (size < 0.55f) {
        t = fma_rn(z, -0x1.b1eedap-8f, 0x1.5d3e2ep-6f);
        t = fma_rn(t, z, -0x1.b9a2eep-5f);
        t = fma_rn(t, z, 0x1.110ff4p-3f);
        t = fma_rn(t, z, -0x1.555554p-2f);
        t = fma_rn(mul_rn(t, z), size, size);
    } else {
        const struct power e = exp_parts(bounded(add_rn(size, size), 0, 40));
        const float scale = power_of_two(e.whole);

        t = add_rn(1, -mul_rn(2, rcp_rn(fma_rn(scale, e.part, add_rn(scale, 1)))));
    }
    return float_of(bits_of(t) | (bits_of(x) & 0x80000000u));
}
