//$ -- SPDX-License-Identifier: Apache-2.0
/* The zero point in a word with a scale: other bits than these eight mean nothing. */
FN int zero_u8(unsigned word)
{
    return (int)(word >> 16 & 255);
}
