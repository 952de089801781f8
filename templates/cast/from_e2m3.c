//$ -- SPDX-License-Identifier: Apache-2.0
//$ once "cast/from_narrow.c"
/* E2M3, in the low six bits, to fp32. */
FN float from_e2m3(unsigned code)
{
    return from_narrow(code, 6, 3, 0x1p126f);
}
