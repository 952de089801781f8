//$ -- SPDX-License-Identifier: Apache-2.0
//$ once "dequantize/scale_of_u4.c"
/* The two codes of a byte, times a scale of 24 digits, as a pair. */
FN unsigned dequantize_u4_byte_wide(unsigned codes, struct integer_scale s)
{
    return scale_integer_wide(pair_of_byte(codes, 0x43004300), &s);
}
