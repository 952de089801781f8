//$ -- SPDX-License-Identifier: Apache-2.0
//$ once "cast/from_narrow.c"
/* E3M2, in the low six bits, to fp32. */
FN float from_e3m2(unsigned code)
{
    return from_narrow(code, 6, 2, 0x1p124f);
}
