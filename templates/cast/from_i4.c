//$ -- SPDX-License-Identifier: Apache-2.0
/* A signed integer, in the low four bits, to fp32. */
FN float from_i4(unsigned code)
{
    return (float)((int)((code & 15) ^ 8) - 8);
}
