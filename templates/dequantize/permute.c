//$ -- SPDX-License-Identifier: Apache-2.0
/* Bytes of x, 0 to 3, and y, 4 to 7, by four digits; 8 on top: the byte's sign, eight times. */
//$ if arch == "host" then
FN unsigned permute(unsigned x, unsigned y, unsigned digits)
{
    const unsigned long long both = (unsigned long long)y << 32 | x;
    unsigned result = 0;

    for (int i = 0; i < 4; i++) {
        const unsigned digit = digits >> 4 * i & 15;
        const unsigned byte = (unsigned)(both >> 8 * (digit & 7)) & 255;
        result |= (digit < 8 ? byte : byte >> 7 ? 255u : 0u) << 8 * i;
    }
    return result;
}
//$ else
FN unsigned permute(unsigned x, unsigned y, unsigned digits)
{
    unsigned result;

    asm("prmt.b32 %0, %1, %2, %3;" : "=r"(result) : "r"(x), "r"(y), "r"(digits));
    return result;
}
//$ end
