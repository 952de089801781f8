//$ -- SPDX-License-Identifier: Apache-2.0
/* fp16 to fp32: exact. Without branches, so that loops of it become vectors. */
static float load_f16(unsigned short x)
{
    const unsigned int sign = (x & 0x8000u) << 16, magnitude = x & 0x7fffu;
    union { unsigned int u; float f; } v = { .u = magnitude << 13 };

    v.f *= 0x1p112f; /* moves the exponent's bias from 15 to 127, denormals too */
    v.u |= magnitude >= 0x7c00u ? 0x7f800000u : 0; /* infinity and NaN keep the largest exponent */
    v.u |= sign;
    return v.f;
}
