//$ -- SPDX-License-Identifier: Apache-2.0
//$ once "cast/from_narrow.c"
/* E4M3 to fp32. There is no infinity; 0x7f and 0xff are NaN. */
FN float from_e4m3(unsigned code)
{
    return (code & 0x7f) == 0x7f ? float_of(0x7fffffff) : from_narrow(code, 8, 3, 0x1p120f);
}
