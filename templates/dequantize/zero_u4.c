//$ -- SPDX-License-Identifier: Apache-2.0
/* The zero point in a word with a scale: other bits than these four mean nothing. */
FN int zero_u4(unsigned word)
{
    return (int)(word >> 16 & 15);
}
