//$ -- SPDX-License-Identifier: Apache-2.0
//$ once "cast/from_e8m0.c"
/* A block's scale. */
FN float factor_e8m0(unsigned code)
{
    return from_e8m0(code);
}
