//$ -- SPDX-License-Identifier: Apache-2.0
//$ once "dequantize/integers.c"
/* A scale. */
FN struct integer_scale scale_of_i4(float factor)
{
    return integer_scale(factor, 0x43084308);
}
