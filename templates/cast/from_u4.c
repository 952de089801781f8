//$ -- SPDX-License-Identifier: Apache-2.0
/* The low four bits, of which `zero` stands for 0, to fp32. */
FN float from_u4(unsigned code, int zero)
{
    return (float)((int)(code & 15) - zero);
}
