//$ once "cast/to_bf16.c"
/*
** v becomes H16 * (signs * v) / 4, rounded to bf16, H16 being Sylvester's. Bit i of `negative`
** turns v[i]; then come butterflies of distance 1, 2, 4 and 8 in fp32.
*/
FN void hadamard16(float v[16], unsigned negative)
{
//$ local unroll = arch == "host" and "GCC unroll 16" or "unroll"
#pragma $(unroll)
    for (int i = 0; i < 16; i++)
        v[i] = float_of(bits_of(v[i]) ^ (negative >> i & 1) << 31);
//$ for _, distance in ipairs { 1, 2, 4, 8 } do
#pragma $(unroll)
    for (int i = 0; i < 16; i++)
        if (!(i & $(distance))) {
            const float x = v[i], y = v[i + $(distance)];
            v[i] = add_rn(x, y);
            v[i + $(distance)] = add_rn(x, -y);
        }
//$ end
#pragma $(unroll)
    for (int i = 0; i < 16; i++)
        v[i] = float_of(to_bf16(mul_rn(v[i], 0.25f)) << 16);
}
