//$ -- SPDX-License-Identifier: Apache-2.0
//$ once "cast/from_narrow.c"
/* E5M2 to fp32: 0x7c is infinity and larger codes NaN, with either sign. */
FN float from_e5m2(unsigned code)
{
    const unsigned special = (code & 0x7f) > 0x7c ? 0x7fffffff : 0x7f800000 | (code & 0x80) << 24;

    return (code & 0x7f) < 0x7c ? from_narrow(code, 8, 2, 0x1p112f) : float_of(special);
}
