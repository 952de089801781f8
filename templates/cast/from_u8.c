//$ -- SPDX-License-Identifier: Apache-2.0
/* A byte, of which `zero` stands for 0, to fp32. */
FN float from_u8(unsigned code, int zero)
{
    return (float)((int)(code & 255) - zero);
}
