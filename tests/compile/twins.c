/* SPDX-License-Identifier: Apache-2.0 */
/* twins.c: kernels whose texts differ by their names only. */
#include "twins.h"

#include <string.h>

enum { MOST = 1 << 15 };

static struct {
    int count;
    uint64_t number[MOST];
    struct report report[MOST];
} known;

/* FNV-1a, 64 bits: http://www.isthe.com/chongo/tech/comp/fnv/ */
static uint64_t add_bytes(uint64_t hash, const char *from, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++)
        hash = (hash ^ (unsigned char)from[i]) * 0x100000001b3;
    return hash;
}

uint64_t twins_number(const struct qn_kernel *kernel, const char *source)
{
    const size_t name = strlen(kernel->name);
    const char *at = strstr(source, "*/"), *next;
    uint64_t hash =
        add_bytes(0xcbf29ce484222325, kernel->arch, strlen(kernel->arch));

    for (at = at ? at : source; (next = strstr(at, kernel->name));
         at = next + name)
        hash = add_bytes(hash, at, (size_t)(next - at));
    return add_bytes(hash, at, strlen(at));
}

const struct report *twins_find(uint64_t number)
{
    for (int i = 0; i < known.count; i++)
        if (known.number[i] == number)
            return &known.report[i];
    return NULL;
}

void twins_add(uint64_t number, const struct report *report)
{
    if (known.count == MOST)
        return;
    known.number[known.count] = number;
    known.report[known.count++] = *report;
}
