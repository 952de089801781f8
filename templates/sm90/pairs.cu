//$ -- SPDX-License-Identifier: Apache-2.0
//$ local copies = epilogue == "copies" or epilogue == "gradient_copies"
//$ local of = copies and d.type or "bf16" -- what the pairs are of
/* Two neighbouring values, in the type of the quantizer's input. */
FN float lo_of(unsigned int pair)
{
    return from_$(of)(pair$(of == "bf16" and "" or " & 0xffff"));
}

FN float hi_of(unsigned int pair)
{
//$ if of == "bf16" then
    return float_of(pair & 0xffff0000u);
//$ else
    return from_f16(pair >> 16);
//$ end
}

/* The larger magnitudes of two pairs; NaN loses against any number. */
FN unsigned int larger_pair(unsigned int a, unsigned int b)
{
    unsigned int most;

    asm("max.$(of)x2 %0, %1, %2;" : "=r"(most) : "r"(a), "r"(b));
    return most;
}

FN unsigned int magnitudes_of(unsigned int pair)
{
    return pair & 0x7fff7fffu;
}

/* The codes of two pairs, the first in the low half. */
FN unsigned int codes_of(unsigned int first, unsigned int second, const float factor[4])
{
    const unsigned int lo =
        to_$(a.type)_x2(mul_rn(lo_of(first), factor[0]), mul_rn(hi_of(first), factor[1]));
    const unsigned int hi =
        to_$(a.type)_x2(mul_rn(lo_of(second), factor[2]), mul_rn(hi_of(second), factor[3]));

    return lo | hi << 16;
}
