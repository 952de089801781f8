//$ -- SPDX-License-Identifier: Apache-2.0
/* bf16 is the upper half of fp32. */
static float load_bf16(unsigned short x)
{
    const union { unsigned int u; float f; } v = { .u = (unsigned int)x << 16 };
    return v.f;
}
