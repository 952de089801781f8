//$ -- SPDX-License-Identifier: Apache-2.0
//$ once "cast/from_f16.c"
/* A block's scale. */
FN float factor_f16(unsigned code)
{
    return from_f16(code);
}
