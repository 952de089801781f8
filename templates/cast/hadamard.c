//$ -- SPDX-License-Identifier: Apache-2.0
//$ once "cast/to_bf16.c"
//$ local unroll = arch == "host" and "GCC unroll 16" or "unroll"
/*
** v becomes H16 * (signs * v), H16 being Sylvester's. Bit i of `negative` turns v[i]; then come
** butterflies of distance 1, 2, 4 and 8 in fp32.
*/
FN void butterflies16(float v[16], unsigned negative)
{
#pragma $(unroll)
    for (int i = 0; i < 16; i++)
        v[i] = negative >> i & 1 ? -v[i] : v[i];
//$ for _, distance in ipairs { 1, 2, 4, 8 } do
#pragma $(unroll)
    for (int i = 0; i < 16; i++)
        if (!(i & $(distance))) {
            const float x = v[i], y = v[i + $(distance)];
            v[i] = add_rn(x, y);
            v[i + $(distance)] = add_rn(x, -y);
        }
//$ end
}

/* One of the sums as it is kept. */
FN float hadamard_result(float sum)
{
    return float_of(to_bf16(mul_rn(sum, 0.25f)) << 16);
}

/* v becomes H16 * (signs * v) / 4, rounded to bf16. */
FN void hadamard16(float v[16], unsigned negative)
{
    butterflies16(v, negative);
#pragma $(unroll)
    for (int i = 0; i < 16; i++)
        v[i] = hadamard_result(v[i]);
}
