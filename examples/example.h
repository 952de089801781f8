/* SPDX-License-Identifier: Apache-2.0 */
/*
** example.h: an end for errors, memory and random numbers.
*/
#include <quern.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static inline void must(int code)
{
    if (!code)
        return;
    fprintf(stderr, "%s: %s\n", quern_strerror(code), quern_errmsg());
    exit(1);
}

/* Host memory, at a multiple of 256. On a GPU it would be the device's. */
static inline void *zeros(int64_t bytes)
{
    static char pool[1 << 22], *next = pool;

    next += (256 - (uintptr_t)next % 256) % 256;
    next += bytes;
    return next - bytes;
}

/* -1 to 1. */
static inline float draw(void)
{
    static uint32_t state = 1;

    state = state * 1664525 + 1013904223;
    return (float)(state >> 8) / (1 << 23) - 1;
}

/* bf16 is the upper half of a float. */
static inline uint16_t to_bf16(float value)
{
    uint32_t bits;

    memcpy(&bits, &value, sizeof bits);
    return (uint16_t)(bits >> 16);
}

static inline float from_bf16(uint16_t value)
{
    const uint32_t bits = (uint32_t)value << 16;
    float result;

    memcpy(&result, &bits, sizeof result);
    return result;
}
