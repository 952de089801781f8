//$ -- SPDX-License-Identifier: Apache-2.0
//$ once "dequantize/integers.c"
//$ once "dequantize/multiply_f16.c"
//$ once "dequantize/wide_f16.c"
//$ once "cast/to_f16.c"
/*
** Integers of four bits as f16, times a scale. A code in the last bits of 1024 is 1024 more than
** it; 1024 and the code that stands for 0 are taken away. A product with a scale that f16 holds is
** rounded once, as the product in fp32 would be.
*/
struct integer_scale_f16 {
    unsigned twice; /* the scale as f16, twice in a word */
    float factor;
    unsigned zero; /* 1024 and the code that stands for 0, likewise */
};

FN struct integer_scale_f16 integer_scale_f16(float factor, unsigned zero)
{
    const struct integer_scale_f16 s = { to_f16_x2(factor, factor), factor, zero };

    return s;
}

/* Two codes in the last bits of 1024. */
FN unsigned scale_integer_f16(unsigned pair, const struct integer_scale_f16 *s)
{
    return multiply_f16x2(subtract_f16x2(pair, s->zero), s->twice);
}

/* The same where f16 may not hold the scale. */
FN unsigned scale_integer_f16_wide(unsigned pair, const struct integer_scale_f16 *s)
{
    return scale_pair_f16(subtract_f16x2(pair, s->zero), s->factor);
}

//$ for _, type in ipairs { "i4", "u4" } do
//$ local signed = type == "i4"
//$ local zero = signed and "" or ", unsigned zero"
//$ local low = signed and "0x64086408" or "0x64006400"
//$ for _, wide in ipairs { "", "_wide" } do
/* The two codes of a byte, times a scale$(wide == "" and " that f16 holds" or ""), as a pair. */
FN unsigned dequantize_$(type)_byte_f16$(wide)(unsigned codes, struct integer_scale_f16 s)
{
    return scale_integer_f16$(wide)(pair_of_byte(codes, $(low)), &s);
}

//$ end
/* A scale$(signed and "" or "; `zero` is the code of 0"). */
FN struct integer_scale_f16 scale_of_$(type)_f16(float factor$(zero))
{
    return integer_scale_f16(factor, $(signed and low or low .. " + 0x10001 * zero"));
}

//$ end
