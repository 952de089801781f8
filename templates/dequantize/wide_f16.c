//$ -- SPDX-License-Identifier: Apache-2.0
//$ once "cast/from_f16.c"
//$ once "cast/to_f16.c"
//$ once "cast/arith.c"
/* Two values of f16 times a scale in fp32, rounded to f16. */
FN unsigned scale_pair_f16(unsigned pair, float factor)
{
    return to_f16_x2(mul_rn(from_f16(pair & 0xffff), factor),
                     mul_rn(from_f16(pair >> 16), factor));
}
