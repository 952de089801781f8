//$ -- SPDX-License-Identifier: Apache-2.0
//$ once "cast/arith.c"
/* E8M0 to fp32: 2^(code - 127), a denormal for 0; 0xff is NaN. */
FN float from_e8m0(unsigned code)
{
    return float_of(code == 0 ? 0x400000 : code == 0xff ? 0x7fffffff : code << 23);
}
