//$ -- SPDX-License-Identifier: Apache-2.0
//$ once "cast/arith.c"
/* fp16 to fp32: exact. */
FN float from_f16(unsigned code)
{
//$ if arch == "host" then
    /* Without branches, so that loops of it become vectors. */
    const unsigned rest = code & 0x7fff;
    const float value = mul_rn(float_of(rest << 13), 0x1p112f); /* from a bias of 15 to 127 */
    const unsigned special = rest >= 0x7c00 ? 0x7f800000 : 0;

    return float_of(bits_of(value) | special | (code & 0x8000) << 16);
//$ else
    float value;

    asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"((unsigned short)code));
    return value;
//$ end
}
