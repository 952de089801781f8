//$ -- SPDX-License-Identifier: Apache-2.0
FN float from_i8(unsigned code)
{
    return (float)((int)((code & 0xff) ^ 0x80) - 128);
}
