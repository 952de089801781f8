//$ -- SPDX-License-Identifier: Apache-2.0
//$ once "cast/from_narrow.c"
/* E2M1, in the low four bits, to fp32. */
FN float from_e2m1(unsigned code)
{
    return from_narrow(code, 4, 1, 0x1p126f);
}
