//$ -- SPDX-License-Identifier: Apache-2.0
/* Two elements of D or C, $(d.type), in one word; the first in its lower half. */
enum { PER_WORD = 2 };

FN unsigned int pack(const float *x)
{
    unsigned int word;
    asm("cvt.rn.$(d.type)x2.f32 %0, %1, %2;" : "=r"(word) : "f"(x[1]), "f"(x[0]));
    return word;
}

FN void unpack(float *x, unsigned int word)
{
//$ if d.type == "bf16" then
    x[0] = __uint_as_float(word << 16);
    x[1] = __uint_as_float(word & 0xffff0000u);
//$ else
    asm("cvt.f32.f16 %0, %1;" : "=f"(x[0]) : "h"((unsigned short)word));
    asm("cvt.f32.f16 %0, %1;" : "=f"(x[1]) : "h"((unsigned short)(word >> 16)));
//$ end
}
