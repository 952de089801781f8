/* SPDX-License-Identifier: Apache-2.0 */
/* damage.c: an input, a little worse than before. */
#include "fuzz.h"

#include <string.h>

unsigned fuzz_draw(uint64_t *seed, unsigned below)
{
    *seed = *seed * 6364136223846793005u + 1442695040888963407u;
    return (unsigned)(*seed >> 33) % below;
}

static size_t insert(char *text, size_t length, size_t at, const char *part,
                     size_t size)
{
    if (length + size > FUZZ_MOST)
        return length;
    memmove(text + at + size, text + at, length - at + 1);
    memcpy(text + at, part, size);
    return length + size;
}

static const char *word(const char *const *words, uint64_t *seed)
{
    unsigned count = 0;

    while (words[count])
        count++;
    return count ? words[fuzz_draw(seed, count)] : "";
}

/* Values at which something could overflow. */
static const char *const numbers[] = {"0",
                                      "-1",
                                      "1",
                                      "2147483647",
                                      "2147483648",
                                      "1073741824",
                                      "4294967296",
                                      "65536",
                                      "1e308",
                                      "9223372036854775807",
                                      "00000000000000000000001",
                                      "99999999999999999999999",
                                      "0x7fffffffffffffff"};

/* In place of the digits from here on, if there are any. */
static size_t replace_number(char *text, size_t length, size_t at,
                             uint64_t *seed)
{
    const char *number =
        numbers[fuzz_draw(seed, sizeof numbers / sizeof *numbers)];
    size_t digits;

    while (at < length && (text[at] < '0' || text[at] > '9'))
        at++;
    digits = strspn(text + at, "0123456789");
    if (!digits)
        return length;
    memmove(text + at, text + at + digits, length - at - digits + 1);
    return insert(text, length - digits, at, number, strlen(number));
}

size_t fuzz_damage(char *text, size_t length, const char *const *words,
                   uint64_t *seed)
{
    size_t at = fuzz_draw(seed, (unsigned)length + 1);
    size_t size = fuzz_draw(seed, 20);
    const char *other = word(words, seed);
    char part[32];

    switch (fuzz_draw(seed, 7)) {
    case 0:
        if (at < length)
            text[at] = (char)fuzz_draw(seed, 256);
        return length;
    case 1:
        if (at + size > length)
            return length;
        memmove(text + at, text + at + size, length - at - size + 1);
        return length - size;
    case 2:
    case 3:
        return insert(text, length, at, other, strlen(other));
    case 4:
        if (at + size > length)
            return length;
        memcpy(part, text + at, size);
        return insert(text, length, fuzz_draw(seed, (unsigned)length + 1), part,
                      size);
    case 5:
        return replace_number(text, length, at, seed);
    default:
        if (at < length && text[at] >= '0' && text[at] <= '9')
            text[at] = (char)('0' + fuzz_draw(seed, 10));
        return length;
    }
}
