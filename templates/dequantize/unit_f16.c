//$ -- SPDX-License-Identifier: Apache-2.0
//$ once "dequantize/f16.c"
//$ once "cast/arith.c"
/* The factor of a product of two operands as f16. */
FN float unit_f16(unsigned low_a, unsigned low_b)
{
    return float_of((low_a + low_b - 2 * 112 + 127) << 23);
}
