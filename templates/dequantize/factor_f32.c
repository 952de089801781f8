//$ -- SPDX-License-Identifier: Apache-2.0
//$ once "cast/arith.c"
/* A block's scale. */
FN float factor_f32(unsigned bits)
{
    return float_of(bits);
}
