//$ -- SPDX-License-Identifier: Apache-2.0
FN unsigned int load_shared_word(unsigned int from)
{
    unsigned int word;

    asm volatile("ld.shared.b32 %0, [%1];" : "=r"(word) : "r"(from) : "memory");
    return word;
}

FN unsigned int load_shared_half(unsigned int from)
{
    unsigned short half;

    asm volatile("ld.shared.u16 %0, [%1];" : "=h"(half) : "r"(from) : "memory");
    return half;
}

FN unsigned int load_shared_byte(unsigned int from)
{
    unsigned int byte;

    asm volatile("ld.shared.u8 %0, [%1];" : "=r"(byte) : "r"(from) : "memory");
    return byte;
}

FN void load_shared_x4(unsigned int from, unsigned int *word)
{
    asm volatile("ld.shared.v4.b32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(word[0]), "=r"(word[1]), "=r"(word[2]), "=r"(word[3])
                 : "r"(from) : "memory");
}

FN void store_shared_x2(unsigned int to, unsigned int first, unsigned int second)
{
    asm volatile("st.shared.v2.b32 [%0], {%1, %2};"
                 : : "r"(to), "r"(first), "r"(second) : "memory");
}
