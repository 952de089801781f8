//$ -- SPDX-License-Identifier: Apache-2.0
/* fp32 to fp16, to nearest even; overflow becomes infinity, NaN 0x7fff as on the device. */
static unsigned short store_f16(float x)
{
    const union { float f; unsigned int u; } v = { .f = x };
    const unsigned int sign = (v.u >> 16) & 0x8000u, magnitude = v.u & 0x7fffffffu;
    union { float f; unsigned int u; } denormal = { .u = magnitude };

    if (magnitude > 0x7f800000u)
        return 0x7fff;
    if (magnitude >= 0x47800000u) /* 65536 and above */
        return (unsigned short)(sign | 0x7c00u);
    if (magnitude < 0x38800000u) { /* below 2^-14: let fp32 round at 2^-24 */
        denormal.f += 0.5f;
        return (unsigned short)(sign | (denormal.u - 0x3f000000u));
    }
    const unsigned int rounded = magnitude - 0x38000000u + 0xfffu + (magnitude >> 13 & 1);
    return (unsigned short)(sign | rounded >> 13);
}
