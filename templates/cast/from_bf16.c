//$ -- SPDX-License-Identifier: Apache-2.0
//$ once "cast/arith.c"
/* bf16 is the upper half of fp32. */
FN float from_bf16(unsigned code)
{
    return float_of(code << 16);
}
