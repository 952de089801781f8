//$ -- SPDX-License-Identifier: Apache-2.0
/* Philox 4x32-10: sixteen random bytes, a function of only seed and counter. */
struct philox { unsigned word[4]; };

FN struct philox philox(unsigned long long seed, unsigned long long counter)
{
    unsigned a = (unsigned)counter, b = (unsigned)(counter >> 32), c = 0, d = 0;
    unsigned key_a = (unsigned)seed, key_b = (unsigned)(seed >> 32);
    struct philox random;

//$ if arch == "host" then
#pragma GCC unroll 10
//$ else
#pragma unroll
//$ end
    for (int round = 0; round < 10; round++) {
        const unsigned long long one = 0xd2511f53ull * a, two = 0xcd9e8d57ull * c;
        a = (unsigned)(two >> 32) ^ b ^ key_a;
        b = (unsigned)two;
        c = (unsigned)(one >> 32) ^ d ^ key_b;
        d = (unsigned)one;
        key_a += 0x9e3779b9;
        key_b += 0xbb67ae85;
    }
    random.word[0] = a;
    random.word[1] = b;
    random.word[2] = c;
    random.word[3] = d;
    return random;
}

/* Byte 0 .. 15, each word's low byte first. */
FN unsigned random_byte(const struct philox *random, int i)
{
    return random->word[i / 4] >> i % 4 * 8 & 0xff;
}
