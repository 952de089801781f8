//$ -- SPDX-License-Identifier: Apache-2.0
/* fp32 to bf16, to nearest even; NaN becomes 0x7fff as on the device. */
static unsigned short store_bf16(float x)
{
    const union { float f; unsigned int u; } v = { .f = x };

    if ((v.u & 0x7fffffffu) > 0x7f800000u)
        return 0x7fff;
    return (unsigned short)((v.u + 0x7fffu + ((v.u >> 16) & 1)) >> 16);
}
