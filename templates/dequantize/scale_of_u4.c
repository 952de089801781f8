//$ -- SPDX-License-Identifier: Apache-2.0
//$ once "dequantize/integers.c"
/* A scale; `zero` is the code of 0. */
FN struct integer_scale scale_of_u4(float factor, unsigned zero)
{
    return integer_scale(factor, 0x43004300 + 0x10001 * zero);
}
