//$ -- SPDX-License-Identifier: Apache-2.0
//$ once "cast/from_bf16.c"
/* A block's scale. */
FN float factor_bf16(unsigned code)
{
    return from_bf16(code);
}
