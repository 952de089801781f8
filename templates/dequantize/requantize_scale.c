//$ -- SPDX-License-Identifier: Apache-2.0
//$ once "cast/arith.c"
/*
** The scale of 128 values of k whose largest block of values that are not 0 has `largest` as its
** e8m0 code: the exponent that leaves this block at r = 6. Products of two such scales with sums of
** 128 products stay far from both ends of fp32: exponents end at 50.
*/
enum { REQUANTIZE_END = 50 };

FN int requantize_exponent(int largest)
{
    const int exponent = largest - 127 - 6;

    return exponent < -REQUANTIZE_END ? -REQUANTIZE_END
           : exponent > REQUANTIZE_END ? REQUANTIZE_END
                                     : exponent;
}

FN float requantize_scale(int exponent)
{
    return float_of((unsigned)(exponent + 127) << 23);
}
